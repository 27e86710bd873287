"""Principal curvatures, given normals: a cubic fitted to the neighbors and to their normals.

In the frame of the normal of a point, with lengths in units of its neighborhood,

    z(u, v) = c0 + c1 u + c2 v + (a u^2 + 2 b u v + c v^2) / 2 + cubic terms

each neighbor says three things: its height is z, and its normal is at right angles to the slopes
of z along u and along v. Heights are exact on a clean cloud; normals, which have looked at more
points already, say far more on a noisy one. Both are weighed by their noise: by what the fit over
the smallest neighborhood, where the surface is still simple, leaves unexplained of each.

Small neighborhoods follow the surface, large ones average noise away. Three are tried: the 24
nearest of all points, of a quarter and of a sixteenth of them, which reach two and four times as
far at the same price. The largest is kept whose curvature agrees with those of all smaller ones
within three standard errors (Lepski's rule). There is no length in this: clouds may be in any
units.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from veckm.knn import build_tree, query
from veckm.parallel import one_thread, share, workers
from veckm.tasks.normals.classical import check_cloud, check_k, frame, graph_curvatures
from veckm.tasks.normals.eigen import adjugate, trace
from veckm.tasks.normals.stats import break_ties, hash_cells, thinned

#: Neighborhoods tried: so many nearest, of every point, of one in four, of one in sixteen.
NEIGHBORS, LEVELS = 24, 3
#: Agreement: this many standard errors.
_ERRORS = 3.0
#: Rounds that find the noise of heights and normals.
_ROUNDS = 5
#: Neighbors in hand in one worker.
_PAIRS = 1 << 16
#: Where the weight of a neighbor falls to zero, beyond the farthest of them (a square).
_RIM = 1.2
#: Unexplained variance that counts as none, in units of the neighborhood.
_EXACT = 1e-10
_RIDGE = 1e-12
#: The unit in which equal distances are told apart, as a share of the box.
_UNIT = 1e-4
#: Coefficients: c0, c1, c2, four cubic ones, and those wanted last.
_WANTED, _ALL = 7, 10

Search = Callable[[Tensor], list[Tensor]]  # (m,) -> S times (m, K)


def mean_curvature(curvature: Tensor) -> Tensor:
    r"""H, the mean of the principal curvatures.

    .. math:: H = (\kappa_1 + \kappa_2) / 2

    Shapes:
        - curvature: (..., 2)
        - output: (...)
    """
    return curvature.mean(-1)


def gaussian_curvature(curvature: Tensor) -> Tensor:
    r"""K, the product of the principal curvatures, whatever the sign of the normal.

    .. math:: K = \kappa_1 \kappa_2

    Shapes:
        - curvature: (..., 2)
        - output: (...)
    """
    return curvature.prod(-1)


@one_thread()
def principal_curvatures(
    pos: Tensor,  # (N, 3)
    normal: Tensor,  # (N, 3)
    k: int | None = None,
    neighbors: Tensor | None = None,  # (N, K) or (N, S, K)
) -> Tensor:  # (N, 2)
    r"""Principal curvatures of the surface at every point, larger first, in one over a length.

    .. math:: \kappa_1 \ge \kappa_2, \qquad \kappa_1 = \kappa_2 = 1/r
              \text{ on a sphere with outward normals}

    Positive where the surface bends away from the normal; with the other normal both change their
    sign (and places). Each normal may have any sign, whatever the signs of its neighbors are.
    Where neither the neighbors nor their normals tell (fewer than three points, all in one place,
    on a line with one normal) the answer is 0.

    Args:
        pos: the cloud.
        normal: unit normals.
        k: number of neighbors; by default each point has its own, see the top of this file.
        neighbors: rows of `pos` near each point, where they are known already. With (N, S, K)
            the S sets, small ones first, are what the sizes are chosen from.

    Shapes:
        - pos, normal: (N, 3)
        - neighbors: (N, K) or (N, S, K) int64 or int32
        - output: (N, 2)
    """
    check_cloud(pos)
    check_cloud(normal, "normal")
    if normal.shape != pos.shape:
        raise ValueError(
            f"normal must have shape {tuple(pos.shape)}, one per point, got {tuple(normal.shape)}"
        )
    if len(pos) < 3:
        return pos.new_zeros(len(pos), 2)
    x = pos.detach().to("cpu", torch.float64)
    n = torch.nn.functional.normalize(normal.detach().to("cpu", torch.float64), dim=-1)
    every = torch.arange(len(x))
    if neighbors is not None:
        near = _known(neighbors, len(x))
        width = near.shape[-1]
        found = _everywhere(x, n, every, lambda here: list(near[here].long().unbind(1)), width)
        return found.to(pos)
    k, levels = (NEIGHBORS, LEVELS) if k is None else (k, 1)
    k = check_k(k, len(x))
    # In the order of the leaves of a tree what is near in space is near in memory.
    order = build_tree(x.numpy()).indices
    found = torch.empty(len(x), 2, dtype=torch.float64)
    x, n = x[order], n[order]
    low = x.numpy().min(0)
    sets = Neighborhoods(x.numpy(), order, low, float((x.numpy() - low).max()), k, levels)
    found[order] = _everywhere(x, n, every, sets.near, k)
    return found.to(pos)


class Neighborhoods:
    """The neighborhoods that are tried, of a cloud or of a part of it.

    Who is in a level depends on the place in the box of the whole cloud, and not on the row: a
    part, or a shuffled cloud, has the same.
    """

    def __init__(
        self,
        x: np.ndarray,  # (N, 3) float64
        ids: np.ndarray,  # (N,) the number of each point in the cloud
        low: np.ndarray,  # (3,) of the box of the whole cloud
        extent: float,  # its longest side
        k: int = NEIGHBORS,
        levels: int = LEVELS,
    ) -> None:
        self.k, self._levels = k, levels
        off, extent = x - low, max(extent, 1e-300)
        self._moved = break_ties(off, ids, _UNIT * extent)
        rank = hash_cells(np.floor(off / extent * 4096).astype(np.int64))
        members = [thinned(rank, level) for level in range(levels)]
        self._trees = [(m, build_tree(self._moved[m])) for m in members if len(m) >= k]

    def near(self, here: Tensor) -> list[Tensor]:  # (m,) -> S times (m, K)
        """The k nearest of each level that has so many."""
        at = self._moved[here.numpy()]
        found = [members[query(tree, at, self.k, workers=1)[1]] for members, tree in self._trees]
        return [torch.from_numpy(rows) for rows in found]

    def reach(self, rows: np.ndarray) -> np.ndarray:  # (m,) -> (m,)
        """How far the largest neighborhood of each row reaches; infinite if a level is missing."""
        if len(self._trees) < self._levels:
            return np.full(len(rows), np.inf)
        distance, _ = query(self._trees[-1][1], self._moved[rows], self.k)
        return distance[:, -1]


@one_thread()
def part_curvatures(
    pos: np.ndarray,  # (N, 3) float64
    normal: np.ndarray,  # (N, 3)
    rows: np.ndarray,  # (m,)
    sets: Neighborhoods,
) -> np.ndarray:  # (m, 2) float64
    """:func:`principal_curvatures` at some points of a part of a cloud."""
    n = torch.nn.functional.normalize(torch.from_numpy(normal).double(), dim=-1)
    return _everywhere(torch.from_numpy(pos), n, torch.from_numpy(rows), sets.near, sets.k).numpy()


def _known(neighbors: Tensor, count: int) -> Tensor:  # (N, S, K)
    """The caller's neighbors, checked."""
    if not isinstance(neighbors, Tensor) or neighbors.dtype not in (torch.int64, torch.int32):
        got = neighbors.dtype if isinstance(neighbors, Tensor) else type(neighbors).__name__
        raise TypeError(f"neighbors must be an int64 tensor of rows of pos, got {got}")
    if neighbors.dim() not in (2, 3) or len(neighbors) != count or not neighbors.numel():
        raise ValueError(
            f"neighbors must have shape ({count}, K) or ({count}, S, K), "
            f"got {tuple(neighbors.shape)}"
        )
    low, high = int(neighbors.min()), int(neighbors.max())
    if low < 0 or high >= count:
        raise ValueError(f"neighbors has rows from {low} to {high}, but pos has {count} points")
    return neighbors.reshape(count, -1, neighbors.shape[-1]).cpu()


def _everywhere(
    x: Tensor,  # (N, 3)
    n: Tensor,  # (N, 3)
    rows: Tensor,  # (m,)
    search: Search,
    width: int,
) -> Tensor:  # (m, 2)
    """The curvatures at some rows, by neighborhoods of `width` points, found on the way."""
    out = x.new_empty(len(rows), 2)
    step = max(1, _PAIRS // width)

    def chunk(first: int) -> None:
        here = rows[first : first + step]
        out[first : first + step] = _curvatures(x, n, here, search(here))

    starts = range(0, len(rows), step)
    share(starts, lambda _: chunk, workers(out.device, len(starts)))
    return out


def _curvatures(x: Tensor, n: Tensor, here: Tensor, sets: list[Tensor]) -> Tensor:  # (m, 2)
    axes = frame(n[here])
    return _choose([_rows((x[s] - x[here][:, None]) @ axes, n[s] @ axes) for s in sets])


def _choose(sets: list[tuple[Tensor, Tensor, Tensor, Tensor]]) -> Tensor:  # (m, 2)
    """The curvatures of the largest neighborhood that all smaller ones agree with."""
    height, slope = _noise(*sets[0])
    fits = []
    for heights, slopes, far, _ in sets:
        c, variance = _solve(heights * (far / height).square() + slopes / slope.square())
        fits.append((c[1:3], c[_WANTED:] / far, variance.sqrt() / far))
    first, second, _ = fits[0]
    agreed = torch.ones_like(height, dtype=torch.bool)
    for s in range(1, len(fits)):
        for smaller in fits[:s]:
            off = torch.linalg.vector_norm(fits[s][1] - smaller[1], dim=0)
            agreed &= off <= _ERRORS * smaller[2]
        first = torch.where(agreed, fits[s][0], first)
        second = torch.where(agreed, fits[s][1], second)
    return graph_curvatures(first.T, second.T)


def _noise(
    heights: Tensor, slopes: Tensor, far: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:  # (m,), (m,)
    """The noise of heights, a length, and of normals, an angle: each weighs the other's fit."""
    height = slope = torch.ones_like(far)
    for _ in range(_ROUNDS):
        c = _solve(heights / height + slopes / slope)[0]
        height = _unexplained(heights, c, weight)
        slope = _unexplained(slopes, c, 2 * weight)
    return height.sqrt() * far, slope.sqrt()


def _unexplained(gram: Tensor, c: Tensor, count: Tensor) -> Tensor:  # -> (m,)
    """Variance of the residuals of one kind of row: the quadratic form of the Gram at (c, -1)."""
    full = torch.cat((c, torch.full_like(c[:1], -1.0)))
    rest = ((gram * full).sum(1) * full).sum(0)
    return rest.clamp_min(0.0) / (count - _ALL / 2).clamp_min(1.0) + _EXACT


def _rows(
    d: Tensor,  # (m, K, 3) neighbors about the point, in its frame
    n: Tensor,  # (m, K, 3) their normals, in the same frame
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # (11, 11, m), (11, 11, m), (m,), (m,)
    """What heights and normals say, as Gram matrices; how far they reach; their summed weight."""
    square = d.square().sum(-1)  # (m, K)
    far = square.amax(1).sqrt()
    far = torch.where(far > 0, far, 1.0)
    u, v, z = (d / far[:, None, None]).unbind(-1)
    p, q, r = (n * torch.where(n[..., 2:] < 0, -1.0, 1.0)).unbind(-1)
    w = 1 - square / (_RIM * far.square())[:, None]  # its square is the weight
    uu, uv, vv = u * u / 2, u * v, v * v / 2
    # The tangents (1, 0, z_u) and (0, 1, z_v) are across (p, q, r): r z_u = -p, r z_v = -q.
    t, o = r * w, torch.zeros_like(u)
    tu, tv, tuu, tuv, tvv = (t * s for s in (u, v, uu, uv, vv))
    wu, wv, wuu, wuv, wvv = (w * s for s in (u, v, uu, uv, vv))
    heights = [w, wu, wv, u * wuu / 3, v * wuu, u * wvv, v * wvv / 3, wuu, wuv, wvv, w * z]
    along_u = [o, t, o, tuu, tuv, tvv, o, tu, tv, o, -p * w]
    along_v = [o, o, t, o, tuu, tuv, tvv, o, tu, tv, -q * w]
    both = [torch.cat(pair, 1) for pair in zip(along_u, along_v, strict=True)]
    return _gram(heights), _gram(both), far, w.square().sum(1)


def _gram(columns: list[Tensor]) -> Tensor:  # 11 times (m, K) -> (11, 11, m)
    rows = torch.stack(columns, 1)
    return (rows @ rows.mT).permute(1, 2, 0).contiguous()


def _solve(gram: Tensor) -> tuple[Tensor, Tensor]:  # (11, 11, m) -> (10, m), (m,)
    """The coefficients, and the summed variance of those wanted, for rows of unit variance.

    Elimination without pivots, as the matrix is positive; each step is one pass over all points.
    The Gram matrix is used up.
    """
    a = gram
    diagonal = a.diagonal()[:, :_ALL]  # (m, 10), a view
    diagonal += _RIDGE * diagonal.sum(1, keepdim=True)
    variance = torch.zeros_like(a[0, 0])
    for j in range(_ALL):
        if j == _WANTED:  # what is left is the inverse of the covariance of the wanted
            variance = _inverse_trace(a[j:_ALL, j:_ALL])
        a[j + 1 :, j + 1 :] -= (a[j + 1 :, j] / a[j, j])[:, None] * a[j, j + 1 :]
    c = torch.empty_like(a[:_ALL, 0])
    for j in reversed(range(_ALL)):
        c[j] = (a[j, _ALL] - (a[j, j + 1 : _ALL] * c[j + 1 :]).sum(0)) / a[j, j]
    return c, variance


def _inverse_trace(m: Tensor) -> Tensor:  # (3, 3, m) -> (m,)
    packed = torch.stack((m[0, 0], m[1, 1], m[2, 2], m[0, 1], m[0, 2], m[1, 2]))
    cofactors = adjugate(packed)
    det = packed[0] * cofactors[0] + packed[3] * cofactors[3] + packed[4] * cofactors[4]
    return (trace(cofactors) / det).clamp_min(0.0)
