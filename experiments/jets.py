"""Jets: a polynomial z(u, v) fitted over the PCA plane of the k nearest neighbors.

A classical estimator of normals and curvature, for comparison.
"""

from __future__ import annotations

import torch
from torch import Tensor

from veckm.tasks.normals.classical import map_neighborhoods, pca
from veckm.tasks.normals.curvature import frame, graph_curvatures

#: Keeps a fit solvable when the points do not determine it, far below the data.
_RIDGE = 1e-12
_HIGHEST_ORDER = 4
#: A spread below this share of the largest is rounding: the points lie on a line.
_THIN = 1e-6


def jet_normals(
    pos: Tensor,  # (N, 3)
    k: int,
    order: int = 2,
    at: Tensor | None = None,  # (M,)
) -> Tensor:  # (N, 3) or (M, 3)
    """The normals of :func:`jet`, without the curvatures."""
    return jet(pos, k, order, at)[0]


def jet(
    pos: Tensor,  # (N, 3)
    k: int,
    order: int = 2,
    at: Tensor | None = None,  # (M,)
) -> tuple[Tensor, Tensor]:  # (N, 3), (N, 2)
    r"""Unit normals and principal curvatures of a polynomial fitted to the k nearest points.

    .. math:: z(u, v) = \sum_{a + b \le order} c_{ab} u^a v^b, \qquad
              n \propto (-c_{10}, -c_{01}, 1)

    in the frame of the PCA normal about the point, by least squares. The curvatures are those of
    the fitted surface above the point, larger first, positive where it bends away from the normal.
    The sign of a normal is arbitrary and its curvatures go with it. With fewer points than there
    are coefficients the normal is that of PCA and the curvature 0; curvature is also 0 for
    order 1.

    Args:
        pos: the cloud.
        k: number of neighbors.
        order: degree of the polynomial, 1 to 4.
        at: rows of `pos` to compute, all by default.

    Shapes:
        - pos: (N, 3)
        - at: (M,) int64
        - output: (N, 3) and (N, 2), or (M, 3) and (M, 2) with `at`
    """
    if order not in range(1, _HIGHEST_ORDER + 1):
        raise ValueError(f"order is the degree of a polynomial, 1 to 4, got {order!r}")

    def fit(d: Tensor, floor: Tensor) -> Tensor:
        return _jet(d, pca(d, floor), floor, order)

    out = map_neighborhoods(pos, k, at, 5, fit)
    return out[:, :3], out[:, 3:]


def _jet(
    d: Tensor,  # (3, m, k) about the point
    normal: Tensor,  # (m, 3) of PCA
    floor: Tensor,  # (m,)
    order: int,
) -> Tensor:  # (m, 5)
    """Normal and principal curvatures of the polynomial through the points d above the origin."""
    flat = torch.cat((normal, normal.new_zeros(len(normal), 2)), -1)
    if d.shape[2] < (order + 1) * (order + 2) // 2:
        return flat
    axes = frame(normal)
    u, v, z = (axes.mT @ d.transpose(0, 1)).unbind(1)  # (m, k) each
    size = (u.square() + v.square()).mean(1).sqrt()  # (m,)
    size = torch.where(size > 0, size, 1.0)
    wide = _wide(u, v, floor)
    u, v, z = (t / size[:, None] for t in (u, v, z))
    c = _solve(torch.stack((*_monomials(u, v, order), z), 1))  # (m, coefficients)
    tilted = axes @ torch.stack((-c[:, 1], -c[:, 2], torch.ones_like(size)), -1)[:, :, None]
    found = torch.nn.functional.normalize(tilted.squeeze(-1), dim=-1)
    if order == 1:
        return torch.where(wide[:, None], torch.cat((found, flat[:, 3:]), -1), flat)
    second = torch.stack((2 * c[:, 3], c[:, 4], 2 * c[:, 5]), -1) / size[:, None]
    return torch.where(
        wide[:, None], torch.cat((found, graph_curvatures(c[:, 1:3], second)), -1), flat
    )


def _wide(u: Tensor, v: Tensor, floor: Tensor) -> Tensor:  # (m, k), (m, k), (m,) -> (m,)
    """Whether the points spread over a plane at all, and not only along a line in it."""
    uu, vv, uv = ((s * t).mean(1) - s.mean(1) * t.mean(1) for s, t in ((u, u), (v, v), (u, v)))
    # The smaller eigenvalue as a product over the larger: a difference would lose its digits.
    large = (uu + vv) / 2 + torch.hypot((uu - vv) / 2, uv)
    return (uu * vv - uv * uv) > large * torch.maximum(_THIN**2 * large, floor.square())


def _monomials(u: Tensor, v: Tensor, order: int) -> list[Tensor]:
    """1, u, v, u^2, u v, v^2, ... up to the order."""
    result = last = [torch.ones_like(u)]
    for _ in range(order):
        last = [*(u * t for t in last), v * last[-1]]
        result = result + last
    return result


def _solve(rows: Tensor) -> Tensor:  # (m, c + 1, k) -> (m, c)
    """Least squares: the last row from the others, by the normal equations.

    A ridge far below the data decides what the rows leave open, in favor of small coefficients.
    """
    gram = rows @ rows.mT
    left, right = gram[:, :-1, :-1], gram[:, :-1, -1:]
    ridge = _RIDGE * left.diagonal(dim1=-2, dim2=-1).sum(-1)
    eye = torch.eye(left.shape[-1], dtype=rows.dtype)
    factor = torch.linalg.cholesky_ex(left + ridge[:, None, None] * eye)[0]
    return torch.cholesky_solve(right, factor).squeeze(-1)
