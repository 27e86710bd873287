"""Principal curvatures, given normals: a quadric fitted to the neighbours and to their normals.

In the frame of the normal of a point, with lengths in units of its neighbourhood,

    z(u, v) = c0 + c1 u + c2 v + (a u^2 + 2 b u v + c v^2) / 2

each neighbour says three things: its height is z, and its normal is at right angles to the slopes
of z along u and v. Heights are exact on a clean cloud; normals, which have looked at more points
already, say more on a noisy one. Both are weighed by what they leave unexplained, point by point.

Small neighbourhoods follow the surface, large ones average noise away. Several are tried, and the
largest is kept whose curvature agrees with those of all smaller ones within their own errors
(Lepski's rule), the errors being those of least squares. There is no length in this: clouds may be
in any units.
"""

from __future__ import annotations

import torch
from torch import Tensor

from veckm.parallel import share, workers
from veckm.tasks.normals.classical import Neighbours, bending, check_cloud, check_k, frame

#: Neighbourhoods tried: so many nearest points.
SIZES = (12, 24, 48, 96)
#: Agreement: this many standard errors.
_ERRORS = 2.0
#: Points at a time in one worker.
_PAIRS = 1 << 15
#: Unexplained variance that counts as none, in units of the neighbourhood.
_EXACT = 1e-10
#: Where the weight of a neighbour falls to zero, beyond the farthest of them (a square).
_RIM = 1.2
_RIDGE = 1e-12


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
    sign (and places). Each normal may have any sign, whatever the signs of its neighbours are.
    Where the neighbours do not tell (fewer than three points, points on a line, duplicates) the
    answer is 0.

    Args:
        pos: the cloud.
        normal: unit normals.
        k: number of neighbours; by default each point has its own, see the top of this file.
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
            f"normal must have shape {tuple(pos.shape)}, one a point, got {tuple(normal.shape)}"
        )
    if len(pos) < 3:
        return pos.new_zeros(len(pos), 2)
    near = _known(neighbors, len(pos)) if neighbors is not None else None
    n = torch.nn.functional.normalize(normal.detach().to("cpu", torch.float64), dim=-1)
    if near is not None:
        return _over_known(pos, n, near).to(pos)
    sizes = _sizes(k, len(pos))
    tree = Neighbours(pos)
    n = n[tree.order]

    def work(here: Tensor, nearest: Tensor) -> Tensor:
        return _estimate(tree.x, n, here, [nearest[:, :size] for size in sizes])

    return tree.fill(sizes[-1], None, 2, work, pairs=_PAIRS).to(pos)


def _sizes(k: int | None, count: int) -> tuple[int, ...]:
    if k is None:
        return tuple(sorted({min(size, count) for size in SIZES}))
    return (check_k(k, count),)


def _known(neighbors: Tensor, count: int) -> Tensor:  # (N, S, K)
    """The caller's neighbours, checked."""
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


def _over_known(pos: Tensor, n: Tensor, near: Tensor) -> Tensor:  # (N, 3), (N, 3), (N, S, K)
    x = pos.detach().to("cpu", torch.float64)
    out = x.new_empty(len(x), 2)
    step = max(1, _PAIRS // near.shape[-1])

    def chunk(first: int) -> None:
        here = torch.arange(first, min(first + step, len(x)))
        out[here] = _estimate(x, n, here, list(near[here].long().unbind(1)))

    starts = range(0, len(x), step)
    share(starts, lambda _: chunk, workers(out.device, len(starts)))
    return out


def _estimate(
    x: Tensor,  # (N, 3)
    n: Tensor,  # (N, 3)
    here: Tensor,  # (m,)
    sets: list[Tensor],  # (m, K) each, small ones first
) -> Tensor:  # (m, 2)
    """Curvatures of the points `here`: the fit to the largest set that smaller ones agree with."""
    axes = frame(n[here])
    fits = [_fit((x[s] - x[here][:, None]) @ axes, n[s] @ axes) for s in sets]
    slope, bend, error = (t.clone() for t in fits[0])
    alive = torch.ones_like(error, dtype=torch.bool)
    for s in range(1, len(fits)):
        for t in range(s):
            off = torch.linalg.vector_norm(fits[s][1] - fits[t][1], dim=-1)
            alive &= off <= _ERRORS * (fits[s][2] + fits[t][2])
        slope, bend, error = (
            torch.where(alive if new.dim() == 1 else alive[:, None], new, old)
            for new, old in zip(fits[s], (slope, bend, error), strict=True)
        )
    return bending(slope, bend)


def _fit(
    d: Tensor,  # (m, K, 3) neighbours about the point, in its frame
    n: Tensor,  # (m, K, 3) their normals, in the same frame
) -> tuple[Tensor, Tensor, Tensor]:  # (m, 2), (m, 3), (m,)
    """Slopes (c1, c2), second derivatives (a, b, c) and the standard error of these."""
    square = d.square().sum(-1)  # (m, K)
    far = square.amax(1).sqrt()
    far = torch.where(far > 0, far, 1.0)
    u, v, z = (d / far[:, None, None]).unbind(-1)
    p, q, r = (n * torch.where(n[..., 2:] < 0, -1.0, 1.0)).unbind(-1)
    w = 1 - square / (_RIM * far.square())[:, None]  # its square is the weight
    one, none = torch.ones_like(u), torch.zeros_like(u)
    height = torch.stack((one, u, v, u * u / 2, u * v, v * v / 2, z), -1) * w[..., None]
    # r z_u + p = 0 and r z_v + q = 0: the tangents (1, 0, z_u) and (0, 1, z_v) are across (p, q, r)
    along_u = torch.stack((none, r, none, r * u, r * v, none, -p), -1) * w[..., None]
    along_v = torch.stack((none, none, r, none, r * u, r * v, -q), -1) * w[..., None]
    heights = height.mT @ height  # (m, 7, 7)
    slopes = along_u.mT @ along_u + along_v.mT @ along_v
    weight = w.square().sum(1)  # (m,)
    c = _solve(heights + slopes)[0]
    # Once more, each kind by what it left unexplained.
    heights = heights / _unexplained(heights, c, weight)
    slopes = slopes / _unexplained(slopes, c, 2 * weight)
    c, spread = _solve(heights + slopes)
    error = spread.sqrt() / far
    return c[:, 1:3], c[:, 3:] / far[:, None], error


def _unexplained(gram: Tensor, c: Tensor, count: Tensor) -> Tensor:  # -> (m, 1, 1)
    """Variance of the residuals of one kind of row: the quadratic form of the Gram at (c, -1)."""
    full = torch.cat((c, torch.full_like(c[:, :1], -1.0)), -1)
    rest = torch.einsum("mi,mij,mj->m", full, gram, full)
    return (rest.clamp_min(0.0) / (count - 3).clamp_min(1.0) + _EXACT)[:, None, None]


def _solve(gram: Tensor) -> tuple[Tensor, Tensor]:  # (m, 7, 7) -> (m, 6), (m,)
    """The coefficients, and the summed variance of the last three for rows of unit variance."""
    left, right = gram[:, :6, :6], gram[:, :6, 6:]
    ridge = _RIDGE * left.diagonal(dim1=-2, dim2=-1).sum(-1)
    factor = torch.linalg.cholesky_ex(left + ridge[:, None, None] * torch.eye(6).to(left))[0]
    inverse = torch.cholesky_inverse(factor)
    c = (inverse @ right).squeeze(-1)
    return c, inverse.diagonal(dim1=-2, dim2=-1)[:, 3:].sum(-1)
