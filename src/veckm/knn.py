"""The k nearest neighbors of points, by SciPy's k-d tree."""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial import cKDTree

from veckm.parallel import threads


def build_tree(x: np.ndarray, *, balanced: bool = True) -> cKDTree:  # (N, 3)
    """A k-d tree. An unbalanced one is built several times as fast and is a little slower to ask.

    ``indices`` of the tree are the rows in the order of its leaves: points that are near in space
    are then near in memory.
    """
    return cKDTree(x, leafsize=16, compact_nodes=balanced, balanced_tree=balanced)


def query(
    tree: cKDTree,  # from build_tree
    at: np.ndarray,  # (M, 3)
    k: int,
    max_distance: float = math.inf,
    workers: int | None = None,  # threads; those of torch by default
) -> tuple[np.ndarray, np.ndarray]:  # (M, k), (M, k)
    """Distances and rows of the k nearest points, nearest first.

    Where the tree has fewer points within `max_distance`, the distance is infinite and the row is
    the number of points of the tree.
    """
    count = threads() if workers is None else workers
    ranks = np.arange(1, k + 1)  # an array of ranks keeps the axis of the result for k = 1
    distance, index = tree.query(at, ranks, distance_upper_bound=max_distance, workers=count)
    return distance, index
