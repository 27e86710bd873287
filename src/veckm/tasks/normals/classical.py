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

from veckm.inputs import check_points
from veckm.knn import build_tree, query
from veckm.parallel import one_thread, share, workers

#: Neighbors processed together by one worker: they fit in its cache.
_PAIRS = 1 << 17
#: A spread below this share of the largest is rounding: the points lie on a line.
THIN = 1e-6


@one_thread()
def pca_normals(
    pos: Tensor,  # (N, 3)
    k: int,
    at: Tensor | None = None,  # (M,)
) -> Tensor:  # (N, 3) or (M, 3)
    r"""Unit normals from the covariance of the k nearest points, the point itself among them.

    .. math:: n_i = \arg\min_{|n| = 1} \sum_{j \in kNN(i)} (n \cdot (x_j - \bar x))^2

    The sign is arbitrary. In a cloud of fewer than k points all are neighbors.

    Args:
        pos: the cloud.
        k: number of neighbors.
        at: rows of `pos` to compute, all by default.

    Shapes:
        - pos: (N, 3)
        - at: (M,) int64
        - output: (N, 3), or (M, 3) with `at`
    """
    return Neighbors(pos).map(k, at, 3, pca).to(pos)


class Neighbors:
    """The k nearest neighbors of points, by SciPy's k-d tree, a chunk of points at a time.

    The points are first put in the order of the leaves of a tree: what is near in space is then
    near in memory, and both the search and the sums find it in the cache.
    """

    def __init__(self, pos: Tensor) -> None:  # (N, 3)
        check_cloud(pos)
        raw = pos.detach().to("cpu", torch.float64).numpy()
        self._order = torch.from_numpy(build_tree(raw).indices)  # (N,) rows of pos
        x = torch.from_numpy(raw)[self._order]
        self._columns = x.T.contiguous()  # (3, N)
        self._tree = build_tree(x.numpy())
        # Differences of coordinates below the rounding of the caller's dtype mean nothing.
        self._floor = torch.finfo(pos.dtype).eps * x.abs().amax(1)  # (N,)

    def map(
        self,
        k: int,
        at: Tensor | None,  # (M,) rows of pos
        width: int,
        function: Callable[[Tensor, Tensor], Tensor],  # (3, m, k), (m,) -> (m, width)
    ) -> Tensor:  # (M, width) float64
        """Apply a function to the neighborhoods of points.

        Args:
            k: number of neighbors, the point itself among them.
            at: rows of the cloud, all by default.
            width: numbers per point that the function returns.
            function: called with x_j - x_i of the k neighbors j of m points i, one coordinate
                after the other, and with the length below which differences are rounding.
        """
        k = check_k(k, self._columns.shape[1])
        rows, slot = self._rows(_check_at(at, len(self._order)))
        out = torch.empty(len(rows), width, dtype=torch.float64)
        step = max(1, _PAIRS // k)

        def chunk(first: int) -> None:
            here = rows[first : first + step]
            own = self._columns[:, here]
            near = torch.from_numpy(query(self._tree, own.T.numpy(), k, workers=1)[1])
            flat = near.reshape(-1)
            d = torch.stack([x.index_select(0, flat) for x in self._columns]).view(3, *near.shape)
            out[slot[first : first + step]] = function(d.sub_(own[:, :, None]), self._floor[here])

        starts = range(0, len(rows), step)
        share(starts, lambda _: chunk, workers(out.device, len(starts)))
        return out

    def _rows(self, at: Tensor | None) -> tuple[Tensor, Tensor]:  # (M,), (M,)
        """Rows in the order of the tree, and the row of the output that each belongs to."""
        if at is None:
            return torch.arange(len(self._order)), self._order
        return torch.sort(torch.argsort(self._order)[at])


def check_cloud(pos: Tensor, name: str = "pos") -> None:
    """A float tensor (N, 3) with finite entries; raises otherwise."""
    check_points(pos, name)
    if pos.dim() != 2 or pos.shape[1] != 3:
        raise ValueError(
            f"{name} must have shape (N, 3), one cloud of points in space, got {tuple(pos.shape)}"
        )


def check_k(k: int, count: int) -> int:
    """k, or the number of points if that is smaller; raises unless k is a whole number."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"k is a number of neighbors, got {k!r}; pass a whole number")
    if k < 1:
        raise ValueError(f"k is a number of neighbors, got {k}; ask for at least 1, usually 10+")
    return max(1, min(k, count))


def _check_at(at: Tensor | None, count: int) -> Tensor | None:
    if at is None:
        return None
    if not isinstance(at, Tensor) or at.dtype not in (torch.int64, torch.int32) or at.dim() != 1:
        got = f"{at.dtype} {tuple(at.shape)}" if isinstance(at, Tensor) else type(at).__name__
        raise TypeError(f"at must be an int64 tensor (M,) of rows of pos, got {got}")
    if len(at) and not 0 <= int(at.min()) <= int(at.max()) < count:
        raise ValueError(
            f"at has rows from {int(at.min())} to {int(at.max())}, but pos has {count} points"
        )
    return at.to("cpu", torch.int64)


def pca(d: Tensor, floor: Tensor) -> Tensor:  # (3, m, k), (m,) -> (m, 3)
    """The direction of least spread of the points d, for :meth:`Neighbors.map`."""
    centered = (d - d.mean(2, keepdim=True)).transpose(0, 1)  # (m, 3, k)
    value, vector = torch.linalg.eigh(centered @ centered.mT / d.shape[2])
    least = floor.square()
    line = value[:, 1] <= torch.maximum(THIN**2 * value[:, 2], least)
    place = value[:, 2] <= least
    normal = torch.where(line[:, None], _across_line(vector[:, :, 2]), vector[:, :, 0])
    return torch.where(place[:, None], normal.new_tensor([0.0, 0.0, 1.0]), normal)


def _across_line(line: Tensor) -> Tensor:  # (m, 3) unit -> (m, 3) unit
    """The direction orthogonal to a line that is nearest to +z, or to +x if it is vertical."""
    x, _, z = torch.eye(3, dtype=line.dtype)
    toward = torch.where(line[:, 2:].abs() < 1 - THIN, z, x)
    across = toward - (toward * line).sum(-1, keepdim=True) * line
    return torch.nn.functional.normalize(across, dim=-1)
