"""Principal curvatures, given normals: a cubic fitted to the neighbors and to their normals.

In the frame of the normal of a point, with lengths in units of its neighborhood,

    z(u, v) = c0 + c1 u + c2 v + (a u^2 + 2 b u v + c v^2) / 2 + cubic terms

each neighbor gives three equations: its height is z, and its normal is orthogonal to the tangents
along u and along v. Heights are exact on a clean cloud; normals, which were estimated from more
points, tell far more on a noisy one. Both are weighted by their noise: the residuals of a fit over
the smallest neighborhood, where the surface is still simple.

Small neighborhoods follow the surface, large ones average noise away. Three are tried: the 24
nearest of all points, of a quarter and of a sixteenth of them, which reach two and four times as
far at the same cost. The largest is kept whose curvature agrees with those of all smaller ones
within three standard errors (Lepski's rule). Clouds may be in any units.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from veckm.knn import query
from veckm.parallel import one_thread, share, workers
from veckm.tasks.normals.eigen import adjugate, dot, packed, trace
from veckm.tasks.normals.pyramid import Subsets

#: Neighborhoods tried: so many nearest, of every point, of one in four, of one in sixteen.
NEIGHBORS, LEVELS = 24, 3
#: Agreement: this many standard errors.
_ERRORS = 3.0
#: Rounds that find the noise of heights and normals.
_ROUNDS = 5
#: Points processed together by one worker.
_ROWS = 2048
#: Where the weight of a neighbor falls to zero, beyond the farthest of them (a square).
_RIM = 1.2
#: Unexplained variance that counts as none, in units of the neighborhood.
_EXACT = 1e-10
_RIDGE = 1e-12
#: Coefficients: c0, c1, c2, four cubic ones, and those wanted last.
_WANTED, _ALL = 7, 10


@one_thread()
def part_curvatures(
    subsets: Subsets,
    normal: Tensor,  # (N, 3)
    rows: np.ndarray,  # (m,)
) -> Tensor:  # (m, 2) float64
    """Curvatures at some rows of a part of a cloud, times the spacing of the cloud."""
    x, n = torch.from_numpy(subsets.x), torch.nn.functional.normalize(normal.double(), dim=-1)
    out, k = x.new_zeros(len(rows), 2), min(NEIGHBORS, len(x))
    if k < 3:
        return out
    levels, direction = list(zip(subsets.members, subsets.trees, strict=True))[:LEVELS], n.float()

    def chunk(first: int) -> None:
        here = rows[first : first + _ROWS]
        at, axes, sets = subsets.moved[here], frame(n[here]).float(), []
        for members, tree in levels:
            near = torch.from_numpy(members[query(tree, at, k, workers=1)[1]].reshape(-1))
            some = (t.index_select(0, near).view(-1, k, 3) for t in (x, direction))
            off = (next(some) - x[here][:, None]).float()  # small, so float32 has its digits
            sets.append(_rows(off @ axes, next(some) @ axes))
        out[first : first + _ROWS] = _choose(sets)

    starts = range(0, len(rows), _ROWS)
    share(starts, lambda _: chunk, workers(out.device, len(starts)))
    return out


def part_reach(subsets: Subsets, rows: np.ndarray) -> np.ndarray:  # (m,) -> (m,)
    """The radius of the largest neighborhood of each row, in spacings; infinite if unknown."""
    if not subsets.complete:
        return np.full(len(rows), np.inf)
    return query(subsets.trees[LEVELS - 1], subsets.moved[rows], NEIGHBORS)[0][:, -1]


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
    """Gram matrices of the equations of heights and of normals; their radius; their weight."""
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
    return _gram(heights), _gram(both), far.double(), w.square().sum(1).double()


def _gram(columns: list[Tensor]) -> Tensor:  # 11 times (m, K) -> (11, 11, m)
    rows = torch.stack(columns, 1).double()  # in float32 equal rows would not be dependent
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
            wanted = packed(a[j:_ALL, j:_ALL].permute(2, 0, 1))
            cofactors = adjugate(wanted)
            det = dot(wanted[[0, 3, 4]], cofactors[[0, 3, 4]])
            variance = (trace(cofactors) / det).clamp_min(0.0)
        a[j + 1 :, j + 1 :] -= (a[j + 1 :, j] / a[j, j])[:, None] * a[j, j + 1 :]
    c = torch.empty_like(a[:_ALL, 0])
    for j in reversed(range(_ALL)):
        c[j] = (a[j, _ALL] - (a[j, j + 1 : _ALL] * c[j + 1 :]).sum(0)) / a[j, j]
    return c, variance


def frame(normal: Tensor) -> Tensor:  # (m, 3) -> (m, 3, 3)
    """Two tangents and the unit normal, as columns: an orthonormal right-handed frame."""
    x, y, z = normal.unbind(-1)
    sign = torch.where(z < 0, -1.0, 1.0).to(z)
    a = -1 / (sign + z)  # never divides by less than 1
    b = x * y * a
    first = torch.stack((1 + sign * x * x * a, sign * b, -sign * x), -1)
    second = torch.stack((b, sign + y * y * a, -y), -1)
    return torch.stack((first, second, normal), -1)


def graph_curvatures(
    first: Tensor,  # (m, 2) z_u, z_v
    second: Tensor,  # (m, 3) z_uu, z_uv, z_vv
) -> Tensor:  # (m, 2)
    r"""Principal curvatures of the graph z(u, v), larger first.

    .. math:: I = L L^T = \begin{pmatrix} E & F \\ F & G \end{pmatrix}, \qquad
              \kappa = \text{eigenvalues of } -L^{-1} II\, L^{-T}

    Positive where the surface bends away from +z, as a sphere does from its outward normal.
    """
    p, q = first.unbind(-1)
    E, F = 1 + p * p, p * q
    D = 1 + p * p + q * q  # = E G - F^2
    e, f, g = (-second / D.sqrt()[:, None]).unbind(-1)
    a = e / E
    b = (f - F * a) / D.sqrt()
    c = (F * F * a - 2 * F * f + E * g) / D
    middle, half = (a + c) / 2, torch.hypot((a - c) / 2, b)
    return torch.stack((middle + half, middle - half), -1)
