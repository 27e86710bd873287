"""Operations on dense batches of clouds (B, N, 3): sample, search, interpolate, gather.

For clouds of different sizes see :class:`veckm.models.clouds.Clouds`. Searches have no gradient;
gather the coordinates and subtract where one is wanted. All of them take ``validate=False``, which
skips the check for finite values; shapes are always checked.
"""

from veckm.models.ops.sampling import farthest_points, grid_points
from veckm.models.ops.search import ball_query, gather, interpolate, knn

__all__ = ["ball_query", "farthest_points", "gather", "grid_points", "interpolate", "knn"]
