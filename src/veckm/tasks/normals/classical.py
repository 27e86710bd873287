"""PCA of the k nearest neighbors: the classical estimator, for comparison.

Everything is computed in float64 about the point itself, so that large coordinates lose no
accuracy. Where the points do not determine a normal, the result is a fixed unit vector:

    fewer than two distinct points     +z
    points on a line                   the direction across the line that is nearest to +z, or to
                                       +x where the line is vertical
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from veckm.inputs import check_count, check_points
from veckm.knn import build_tree, query
from veckm.parallel import one_thread, share, workers
from veckm.tasks.normals import eigen

#: Neighbors processed together by one worker: they fit in its cache.
_PAIRS = 1 << 17
#: Ratios of eigenvalues to the power of 2^10: in float64 even close ones are told apart.
_SQUARINGS = 10


def pca_normals(
    pos: Tensor,  # (N, 3)
    k: int,
    at: Tensor | None = None,  # (M,)
) -> Tensor:  # (N, 3) or (M, 3)
    r"""Unit normals from the covariance of the k nearest points, the point itself among them.

    .. math:: n_i = \arg\min_{|n| = 1} \sum_{j \in kNN(i)} (n \cdot (x_j - \bar x))^2

    The sign is arbitrary. In a cloud of fewer than k points all are neighbors. With `at` only
    those rows of `pos` are computed.
    """
    return map_neighborhoods(pos, k, at, 3, pca)


@one_thread()
def map_neighborhoods(
    pos: Tensor,  # (N, 3)
    k: int,
    at: Tensor | None,  # (M,)
    width: int,
    function: Callable[[Tensor, Tensor], Tensor],  # (3, m, k), (m,) -> (m, width)
) -> Tensor:  # (M, width)
    """Apply a function to the k nearest neighbors of points, the points themselves among them.

    The function is called with x_j - x_i of the neighbors j of m points i in float64, one
    coordinate after the other, and with the length below which differences are rounding.
    """
    check_cloud(pos)
    k = min(check_count(k, "k, the number of neighbors,"), max(1, len(pos)))
    x = pos.detach().to("cpu", torch.float64)
    order = torch.from_numpy(build_tree(x.numpy()).indices)  # near in space is near in memory
    tree, columns = build_tree(x[order].numpy()), x[order].T.contiguous()  # (3, N)
    floor = torch.finfo(pos.dtype).eps * columns.abs().amax(0)
    rows, slot = (torch.arange(len(x)), order) if at is None else order.argsort()[at].sort()
    out, step = x.new_empty(len(rows), width), max(1, _PAIRS // k)

    def chunk(first: int) -> None:
        here = rows[first : first + step]
        own = columns[:, here]
        near = torch.from_numpy(query(tree, own.T.numpy(), k, workers=1)[1])
        flat = near.reshape(-1)
        d = torch.stack([c.index_select(0, flat) for c in columns]).view(3, *near.shape)
        out[slot[first : first + step]] = function(d.sub_(own[:, :, None]), floor[here])

    starts = range(0, len(rows), step)
    share(starts, lambda _: chunk, workers(out.device, len(starts)))
    return out.to(pos)


def check_cloud(pos: Tensor, name: str = "pos", like: Tensor | None = None) -> None:
    """A float tensor (N, 3) with finite entries, one per point of `like`; raises otherwise."""
    check_points(pos, name)
    if pos.dim() != 2 or pos.shape[1] != 3:
        raise ValueError(
            f"{name} must have shape (N, 3), one cloud of points in space, got {tuple(pos.shape)}"
        )
    if like is not None and pos.shape != like.shape:
        raise ValueError(
            f"{name} must have shape {tuple(like.shape)}, one per point, got {tuple(pos.shape)}"
        )


def pca(d: Tensor, floor: Tensor) -> Tensor:  # (3, m, k), (m,) -> (m, 3)
    """The direction of least spread of the points d, for :func:`map_neighborhoods`."""
    x, y, z = d - d.mean(2, keepdim=True)
    pairs = ((x, x), (y, y), (z, z), (x, y), (x, z), (y, z))
    covariance = torch.stack([torch.linalg.vecdot(s, t) for s, t in pairs]) / d.shape[2]
    return eigen.smallest(covariance, floor.square(), _SQUARINGS).t()
