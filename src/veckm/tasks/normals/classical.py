"""PCA and jets over the k nearest neighbors: the classical estimators, to measure ours against.

    PCA   the direction in which the k points spread least
    jet   a polynomial z(u, v) fitted over the PCA plane: its normal and curvature above the point

All is float64 and about the point itself, so that large coordinates cost nothing. Where the points
do not say what the normal is, the answer is still a unit vector and always the same one:

    fewer than two distinct points     +z
    points on a line                   of the directions across the line the one nearest to +z;
                                       nearest to +x where the line itself is vertical
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from veckm.inputs import check_points
from veckm.knn import build_tree, query
from veckm.parallel import one_thread, share, workers
from veckm.tasks.normals.eigen import THIN, least_direction

#: Neighbors in hand in one worker: they fit in its cache, and hide the cost of the calls.
_PAIRS = 1 << 17
#: Keeps a fit solvable when the points do not determine it, far below what any fit can see.
_RIDGE = 1e-12
_HIGHEST_ORDER = 4


@one_thread()
def pca_normals(
    pos: Tensor,  # (N, 3)
    k: int,
    at: Tensor | None = None,  # (M,)
) -> Tensor:  # (N, 3) or (M, 3)
    r"""Unit normals from the covariance of the k nearest points, the point itself among them.

    .. math:: n_i = \arg\min_{|n| = 1} \sum_{j \in kNN(i)} (n \cdot (x_j - \bar x))^2

    The sign is arbitrary. A cloud of fewer than k points is one neighborhood.

    Args:
        pos: the cloud.
        k: number of neighbors.
        at: rows of `pos` to answer for, all of them by default.

    Shapes:
        - pos: (N, 3)
        - at: (M,) int64
        - output: (N, 3), or (M, 3) with `at`
    """
    check_cloud(pos)
    k, at = check_k(k, len(pos)), _check_at(at, len(pos))
    near = Neighbors(pos)

    def work(here: Tensor, nearest: Tensor) -> Tensor:
        return _pca(near.around(here, nearest), near.floor[here])

    return near.fill(k, at, 3, work).to(pos)


def jet_normals(
    pos: Tensor,  # (N, 3)
    k: int,
    order: int = 2,
    at: Tensor | None = None,  # (M,)
) -> Tensor:  # (N, 3) or (M, 3)
    """The normals of :func:`jet`, without the curvatures."""
    return jet(pos, k, order, at)[0]


@one_thread()
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
        at: rows of `pos` to answer for, all of them by default.

    Shapes:
        - pos: (N, 3)
        - at: (M,) int64
        - output: (N, 3) and (N, 2), or (M, 3) and (M, 2) with `at`
    """
    check_cloud(pos)
    k, at = check_k(k, len(pos)), _check_at(at, len(pos))
    if order not in range(1, _HIGHEST_ORDER + 1):
        raise ValueError(f"order is the degree of a polynomial, 1 to 4, got {order!r}")
    near = Neighbors(pos)

    def work(here: Tensor, nearest: Tensor) -> Tensor:
        d = near.around(here, nearest)
        floor = near.floor[here]
        return _jet(d, _pca(d, floor), floor, order)

    out = near.fill(k, at, 5, work).to(pos)
    return out[:, :3], out[:, 3:]


class Neighbors:
    """The nearest points of every point, by scipy's k-d tree, a chunk of points at a time.

    The points are first put in the order of the leaves of a tree: what is near in space is then
    near in memory, and both the search and the sums find it in the cache.
    """

    def __init__(self, pos: Tensor) -> None:  # (N, 3)
        raw = pos.detach().to("cpu", torch.float64).numpy()
        self.order = torch.from_numpy(
            build_tree(raw).indices
        )  # (N,) the caller's row of each of ours
        self.x = torch.from_numpy(raw)[self.order]  # (N, 3)
        self.columns = self.x.T.contiguous()  # (3, N)
        self.tree = build_tree(self.x.numpy())
        # Differences of coordinates below the rounding of the caller's dtype mean nothing.
        self.floor = torch.finfo(pos.dtype).eps * self.x.abs().amax(1)  # (N,)

    def around(self, here: Tensor, nearest: Tensor) -> Tensor:
        """The neighbors as seen from their point: x_j - x_i, one coordinate after the other.

        Shapes:
            - here: (m,)
            - nearest: (m, k)
            - output: (3, m, k)
        """
        flat = nearest.reshape(-1)
        d = torch.stack([x.index_select(0, flat) for x in self.columns]).view(3, *nearest.shape)
        return d.sub_(self.columns[:, here, None])

    def fill(
        self,
        k: int,
        at: Tensor | None,  # (M,) the caller's rows
        width: int,
        work: Callable[[Tensor, Tensor], Tensor],  # (m,), (m, k) -> (m, width)
        pairs: int = _PAIRS,
    ) -> Tensor:  # (M, width) float64
        """What `work` says of each point and its k nearest, as rows in the order of the caller.

        `work` is called with our rows of some points and of the nearest of each, itself first.
        """
        rows, slot = self._rows(at)
        out = torch.empty(len(rows), width, dtype=torch.float64)
        step = max(1, pairs // k)

        def make(_worker: int) -> Callable[[int], None]:
            def chunk(first: int) -> None:
                here = rows[first : first + step]
                found = query(self.tree, self.x[here].numpy(), k, workers=1)[1]
                out[slot[first : first + step]] = work(here, torch.from_numpy(found))

            return chunk

        starts = range(0, len(rows), step)
        share(starts, make, workers(out.device, len(starts)))
        return out

    def _rows(self, at: Tensor | None) -> tuple[Tensor, Tensor]:  # (M,), (M,)
        """Our rows of the points asked for, in our order, and where each belongs in the answer."""
        if at is None:
            return torch.arange(len(self.x)), self.order
        ours = torch.empty_like(self.order)
        ours[self.order] = torch.arange(len(ours))
        return torch.sort(ours[at])


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


def _pca(
    d: Tensor,  # (3, m, k) about the point, which is one of them
    floor: Tensor,  # (m,)
) -> Tensor:  # (m, 3)
    x, y, z = d
    pairs = torch.stack([torch.linalg.vecdot(s, t) for s, t in _products(x, y, z)])  # (6, m)
    mean = d.mean(2)
    middle = torch.stack([s * t for s, t in _products(*mean)])
    return least_direction(pairs / d.shape[2] - middle, floor)


def _products(x: Tensor, y: Tensor, z: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(x, x), (y, y), (z, z), (x, y), (x, z), (y, z)]


def frame(normal: Tensor) -> Tensor:  # (m, 3) -> (m, 3, 3)
    """Two tangents and the normal, as columns: an orthonormal right-handed frame.

    Shapes:
        - normal: (m, 3) unit
        - output: (m, 3, 3)
    """
    x, y, z = normal.unbind(-1)
    sign = torch.where(z < 0, -1.0, 1.0).to(z)
    a = -1 / (sign + z)  # never divides by less than 1
    b = x * y * a
    first = torch.stack((1 + sign * x * x * a, sign * b, -sign * x), -1)
    second = torch.stack((b, sign + y * y * a, -y), -1)
    return torch.stack((first, second, normal), -1)


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
    return (uu * vv - uv * uv) > large * torch.maximum(THIN**2 * large, floor.square())


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


def graph_curvatures(
    first: Tensor,  # (m, 2) z_u, z_v
    second: Tensor,  # (m, 3) z_uu, z_uv, z_vv
) -> Tensor:  # (m, 2)
    r"""Principal curvatures of the graph z(u, v), larger first.

    .. math:: I = L L^T = \begin{pmatrix} E & F \\ F & G \end{pmatrix}, \qquad
              \kappa = \text{eigenvalues of } -L^{-1} II\, L^{-T}

    Positive where the surface bends away from +z, as a sphere does from its outward normal.

    Shapes:
        - first: (m, 2)
        - second: (m, 3)
        - output: (m, 2)
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
