"""Nearest neighbors, by a k-d tree on the CPU and by all distances elsewhere.

A tree takes N log N time and needs no N x M distances. Already with 256 points of 8 clouds it took
half the time of distances and ``topk``, and with 8192 points a tenth. Distances win in spaces of
many dimensions, where a tree has to look everywhere, and on other devices. They are held a chunk
of queries at a time, so memory stays linear.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from veckm import inputs
from veckm.models.ops.clouds import check_pair, pairs
from veckm.models.ops.gather import gather
from veckm.parallel import one_thread, share, threads, workers

#: Clouds of fewer points are searched by distances.
_SMALL = 128
#: Beyond so many dimensions a tree looks at almost every point.
_TREE_DIMENSIONS = 8
#: Distances held at a time: on a device, and in one worker of the CPU.
_PAIRS, _WORKER_PAIRS = 1 << 24, 1 << 18


@one_thread()
def knn(
    points: Tensor,  # (B, N, D), or (N, D)
    queries: Tensor,  # (B, M, D), or (M, D)
    k: int,
    batch: Tensor | None = None,  # (N,)
    query_batch: Tensor | None = None,  # (M,)
    *,
    validate: bool = True,
) -> Tensor:  # (B, M, k), or (M, k) int64
    """The ``k`` points nearest to every query, the nearest first.

    Where two points are equally far, which comes first is not defined. The search has no
    gradient; gather the coordinates and subtract where one is wanted.

    Args:
        points: where to look, in any number of dimensions D.
        queries: whose neighbors to find; a query that is a point finds itself.
        k: how many; no cloud may have fewer points.
        batch: cloud of every point of a ragged batch, ascending.
        query_batch: cloud of every query, ascending.
        validate: False skips the checks of values (finite, ascending); shapes are checked always.

    Shapes:
        - dense: points (B, N, D), queries (B, M, D); output (B, M, k)
        - ragged: points (N, D), queries (M, D); output (M, k), rows of ``points``
    """
    inputs.check_count(k, "k")
    check_pair(points, queries, batch, query_batch, validate)
    points, queries = points.detach(), queries.detach()
    if points.dim() == 3:
        return _dense(points, queries, k)
    found = [
        _dense(p[None], q[None], k)[0] + first
        for first, p, q in pairs(points, queries, batch, query_batch, validate)
    ]
    return torch.cat(found) if found else queries.new_empty(0, k, dtype=torch.int64)


@one_thread()
def ball_query(
    points: Tensor,  # (B, N, D), or (N, D)
    queries: Tensor,  # (B, M, D), or (M, D)
    radius: float,
    k: int,
    batch: Tensor | None = None,  # (N,)
    query_batch: Tensor | None = None,  # (M,)
    *,
    validate: bool = True,
) -> Tensor:  # (B, M, k), or (M, k) int64
    """Up to ``k`` points within ``radius`` of every query, the nearest first.

    Where the ball holds fewer, the nearest point stands in the places that are left, as in
    PointNet++, so that a maximum over the neighbors does not see them. It stands there even if
    it is outside the ball itself. Where the ball holds more, the nearest are taken: PointNet++
    takes those that come first in memory, and so depends on the order of the points.
    ``validate`` as for :func:`knn`.

    Shapes:
        - dense: points (B, N, D), queries (B, M, D); output (B, M, k)
        - ragged: points (N, D), queries (M, D); output (M, k), rows of ``points``
    """
    inputs.check_count(k, "k")
    inputs.check_positive(radius, "radius")
    check_pair(points, queries, batch, query_batch, validate)
    if points.dim() == 3:
        return _within(points, queries, radius, k)
    found = [
        _within(p[None], q[None], radius, k)[0] + first
        for first, p, q in pairs(points, queries, batch, query_batch, validate)
    ]
    return torch.cat(found) if found else queries.new_empty(0, k, dtype=torch.int64)


def _within(points: Tensor, queries: Tensor, radius: float, k: int) -> Tensor:
    points, queries = points.detach(), queries.detach()
    index = _dense(points, queries, min(k, points.shape[1]))
    squared = points.new_empty(index.shape)
    for j in range(index.shape[2]):  # one neighbor at a time, so that no (B, M, k, D) is held
        squared[:, :, j] = (gather(points, index[:, :, j]) - queries).square().sum(-1)
    index = torch.where(squared <= radius**2, index, index[:, :, :1])
    if index.shape[2] == k:
        return index
    return torch.cat((index, index[:, :, :1].expand(-1, -1, k - index.shape[2])), dim=2)


def _dense(points: Tensor, queries: Tensor, k: int) -> Tensor:
    n = points.shape[1]
    if k > n:
        raise ValueError(f"k = {k} neighbors were asked of a cloud of {n} points; use k <= {n}")
    if points.device.type == "cpu" and n > _SMALL and points.shape[2] <= _TREE_DIMENSIONS:
        return _by_tree(points, queries, k)
    return _by_distances(points, queries, k)


def _by_tree(points: Tensor, queries: Tensor, k: int) -> Tensor:
    found = torch.empty(*queries.shape[:2], k, dtype=torch.int64)
    each = np.arange(1, k + 1)

    def work(cloud: int) -> None:
        # Neither balanced nor compact: a tree that is asked once is cheaper to build so.
        tree = cKDTree(points[cloud].numpy(), balanced_tree=False, compact_nodes=False)
        near = tree.query(queries[cloud].numpy(), each, workers=threads())[1]
        found[cloud] = torch.from_numpy(near)

    # A cloud to a worker: threads inside every query would wait for each other every time.
    share(range(len(points)), lambda _: work, workers(points.device, 4 * len(points)))
    return found


def _by_distances(points: Tensor, queries: Tensor, k: int) -> Tensor:
    clouds, n, dims = points.shape
    # Products are faster but lose digits where points are close; features can afford that.
    mode = (
        "donot_use_mm_for_euclid_dist"
        if dims <= _TREE_DIMENSIONS
        else "use_mm_for_euclid_dist_if_necessary"
    )
    asked = queries.shape[1]
    pairs = _WORKER_PAIRS if points.device.type == "cpu" else _PAIRS
    some = max(1, min(clouds, pairs // max(1, n * asked)))  # clouds at a time, rows of each
    rows = max(1, pairs // max(1, some * n))
    found = torch.empty(clouds, asked, k, dtype=torch.int64, device=points.device)

    def work(start: tuple[int, int]) -> None:
        a, b = slice(start[0], start[0] + some), slice(start[1], start[1] + rows)
        distance = torch.cdist(queries[a, b], points[a], compute_mode=mode)
        found[a, b] = distance.topk(k, dim=2, largest=False).indices

    starts = [(c, row) for c in range(0, clouds, some) for row in range(0, asked, rows)]
    share(starts, lambda _: work, workers(points.device, 4 * len(starts)))
    return found
