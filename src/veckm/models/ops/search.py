"""Nearest neighbors, by a k-d tree on the CPU and by all distances elsewhere; interpolation.

A tree takes N log N time and needs no N x M distances. Already with 256 points of 8 clouds it took
half the time of distances and ``topk``, and with 8192 points a tenth. Distances win in spaces of
many dimensions, where a tree has to look everywhere, and on other devices. They are held a chunk
of queries at a time, so memory stays linear.
"""

from __future__ import annotations

import torch
from torch import Tensor

from veckm import inputs
from veckm.knn import build_tree, query
from veckm.parallel import one_thread, share, workers

#: Clouds of fewer points are searched by distances.
_SMALL = 128
#: Beyond so many dimensions a tree looks at almost every point.
_TREE_DIMENSIONS = 8
#: Distances held at a time: on a device, and in one worker of the CPU.
_PAIRS, _WORKER_PAIRS = 1 << 24, 1 << 18
#: Added to squared distances, so that a query on a point takes that point's values.
_EPS = 1e-8


@one_thread()
def knn(
    points: Tensor,  # (B, N, D)
    queries: Tensor,  # (B, M, D)
    k: int,
    *,
    validate: bool = True,
) -> Tensor:  # (B, M, k) int64
    """The ``k`` points nearest to every query, the nearest first, in any number of dimensions D.

    Where two points are equally far, which comes first is not defined. A query that is a point
    finds itself.
    """
    inputs.check_count(k, "k")
    _check_pair(points, queries, validate)
    return _nearest(points.detach(), queries.detach(), k)


@one_thread()
def ball_query(
    points: Tensor,  # (B, N, D)
    queries: Tensor,  # (B, M, D)
    radius: float,
    k: int,
    *,
    validate: bool = True,
) -> Tensor:  # (B, M, k) int64
    """Up to ``k`` points within ``radius`` of every query, the nearest first.

    Where the ball holds fewer, the nearest point is repeated, as in PointNet++, so that a maximum
    over the neighbors is not affected; also where that point is outside the ball itself. Where the
    ball holds more, the nearest are taken: PointNet++ takes those that come first in memory, and
    so depends on the order of the points.
    """
    inputs.check_count(k, "k")
    inputs.check_positive(radius, "radius")
    _check_pair(points, queries, validate)
    points, queries = points.detach(), queries.detach()
    index = _nearest(points, queries, min(k, points.shape[1]))
    squared = points.new_empty(index.shape)
    for j in range(index.shape[2]):  # one neighbor at a time, so that no (B, M, k, D) is held
        squared[:, :, j] = (gather(points, index[:, :, j]) - queries).square().sum(-1)
    index = torch.where(squared <= radius**2, index, index[:, :, :1])
    return torch.cat((index, index[:, :, :1].expand(-1, -1, k - index.shape[2])), dim=2)


def interpolate(
    values: Tensor,  # (B, N, C)
    points: Tensor,  # (B, N, 3)
    queries: Tensor,  # (B, M, 3)
    k: int = 3,
    *,
    validate: bool = True,
) -> Tensor:  # (B, M, C)
    r"""Values at the queries from the ``k`` nearest points, by inverse squared distance.

    .. math:: f(q) = \frac{\sum_j w_j f_j}{\sum_j w_j}, \qquad w_j = \frac{1}{|q - x_j|^2}

    Section 3.4 of `PointNet++ <https://arxiv.org/abs/1706.02413>`_, with k = 3. Clouds of fewer
    than ``k`` points give them all. Gradients reach values, points and queries.
    """
    inputs.check_count(k, "k")
    inputs.check_points(points, "points", values=False)  # the search checks their values
    if values.shape[:-1] != points.shape[:-1]:
        raise ValueError(
            f"values of shape {tuple(values.shape)} are not one row for every point of "
            f"{tuple(points.shape)}; pass values (B, N, C) for points (B, N, 3)"
        )
    near = knn(points, queries, min(k, points.shape[1]), validate=validate).unbind(-1)
    if len(near) == 1:
        return gather(values, near[0])
    # One neighbor after the other, so that no (B, M, k, C) is held.
    apart = [(gather(points, i) - queries).square().sum(-1, keepdim=True) for i in near]
    weight = [1 / (squared + _EPS) for squared in apart]
    total = torch.stack(weight).sum(0)
    out = gather(values, near[0]) * (weight[0] / total)
    for i, w in zip(near[1:], weight[1:], strict=True):
        out = out + gather(values, i) * (w / total)
    return out


def gather(
    values: Tensor,  # (B, N, C), or (N, C)
    index: Tensor,  # (B, ...) int64, or (...)
) -> Tensor:  # (B, ..., C), or (..., C)
    """The rows of ``values`` that ``index`` names, cloud by cloud, or among all rows."""
    if values.dim() == 3 and index.dim() and index.shape[0] == values.shape[0]:
        first = torch.arange(len(values), device=index.device) * values.shape[1]
        index = index + first.view(-1, *[1] * (index.dim() - 1))
        values = values.flatten(0, 1)
    elif values.dim() != 2:
        raise ValueError(
            "gather expects values (B, N, C) with index (B, ...), or values (N, C) with index "
            f"(...); got {tuple(values.shape)} and {tuple(index.shape)}"
        )
    # By index_select, whose gradient is a sum; that of values[index] sorts first.
    return values.index_select(0, index.flatten()).view(*index.shape, values.shape[1])


def _check_pair(points: Tensor, queries: Tensor, validate: bool) -> None:
    inputs.check_points(points, "points", values=validate)
    if queries is not points:
        inputs.check_points(queries, "queries", values=validate)
    both = points.dim() == queries.dim() == 3
    if not both or (len(points), points.shape[2]) != (len(queries), queries.shape[2]):
        raise ValueError(
            "points and queries must be dense batches (B, N, D) and (B, M, D), got "
            f"{tuple(points.shape)} and {tuple(queries.shape)}"
        )


def _nearest(points: Tensor, queries: Tensor, k: int) -> Tensor:
    n = points.shape[1]
    if k > n:
        raise ValueError(f"k = {k} neighbors were requested of a cloud of {n} points; use k <= {n}")
    if points.device.type == "cpu" and n > _SMALL and points.shape[2] <= _TREE_DIMENSIONS:
        return _by_tree(points, queries, k)
    return _by_distances(points, queries, k)


def _by_tree(points: Tensor, queries: Tensor, k: int) -> Tensor:
    found = torch.empty(*queries.shape[:2], k, dtype=torch.int64)

    def work(cloud: int) -> None:
        tree = build_tree(points[cloud].numpy(), balanced=False)  # for a single query
        found[cloud] = torch.from_numpy(query(tree, queries[cloud].numpy(), k)[1])

    # One cloud per worker: threads inside every query would wait for each other every time.
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
