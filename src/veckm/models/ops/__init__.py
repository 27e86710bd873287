"""What point networks do to points: sample, search, interpolate, gather.

Clouds are dense batches (B, N, 3), or ragged ones: flat (N, 3) with ``batch`` (N,), the number of
the cloud of every point, ascending. Indices of a dense batch count within a cloud, those of a
ragged one are rows of the flat tensor; :func:`gather` takes either.
"""

from veckm.models.ops.gather import gather
from veckm.models.ops.interpolate import interpolate
from veckm.models.ops.sampling import farthest_points, grid_points
from veckm.models.ops.search import ball_query, knn

__all__ = ["ball_query", "farthest_points", "gather", "grid_points", "interpolate", "knn"]
