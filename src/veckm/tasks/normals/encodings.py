r"""VecKM encodings of the neighborhood at several scales, as a normal sees them.

    G(a) = sum_j w(x_j - q) exp(i a . (x_j - q)) / sum_j w(x_j - q)

at frequencies a = rho u on shells rho and directions u of a spherical design. On a plane |G| is
large only along its normal: the map u -> |G(rho u)| shows every plane in the window as a peak, and
the phase at the peak how far the point lies from it. Seen from a reference normal n it turns with
the cloud,

    F_l = sum_u q_u P_l(u . n) H(u),        V_l = sum_u q_u P_l'(u . n) H(u) (u - (u . n) n)

with H one of |G|, Re G (even l) and Im G (odd l), and q_u the weights of the design: F are numbers
that do not change when the cloud is turned, V is the direction in which n would have to be moved
for F to grow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from veckm.engines import Gaussian, Geometry, GridTooLarge, Modulation, Points
from veckm.engines.blocks import anchored
from veckm.engines.cost import CPU
from veckm.engines.grid import GridOperator, block_price, lattice_of
from veckm.engines.lattice import Lattice
from veckm.functional import encode
from veckm.tasks.normals import eigen

#: Standard deviations of the windows in units of the spacing, and doublings of their blocks.
SIGMA, _DOUBLINGS = (5.0, 12.0), (4, 3)
#: Shells of frequencies, in units of 1 / sigma, and the accuracy of the encodings.
SHELLS, EPS = (1.0, 2.0), 3e-2
SCALES, RINGS = len(SIGMA), len(SHELLS)
PEAKS = SCALES * RINGS
#: Numbers of the peaks: the share of each, its |G|, and the angles between them.
PEAK_NUMBERS = 2 * PEAKS + PEAKS * (PEAKS - 1) // 2
#: Added to |G|^2, whose root has no slope at zero.
_TINY = 1e-8


def design() -> tuple[Tensor, Tensor]:  # (16, 3), (16,)
    """Half of the vertices of an icosahedron and of its dual, exact up to degree 9."""
    g = (1 + math.sqrt(5)) / 2
    twelve = [(0.0, 1.0, g), (0.0, 1.0, -g)]
    twenty = [(1.0, s, t) for s in (1.0, -1.0) for t in (1.0, -1.0)]
    twenty += [v for t in (g, -g) for v in [(0.0, t, 1 / g), (t, 1 / g, 0.0), (1 / g, 0.0, t)]]
    turned = [v[k:] + v[:k] for v in twelve for k in range(3)]
    u = torch.nn.functional.normalize(torch.tensor(turned + twenty), dim=1)
    weights = torch.tensor([25 / 420] * 6 + [27 / 420] * 10)
    return u, weights


DIRECTIONS, WEIGHTS = design()
COUNT = len(WEIGHTS)
_OUTER = eigen.outer(DIRECTIONS.t()) * WEIGHTS  # (6, J)
#: Numbers of a scale that do not change when the cloud is turned, and vectors.
_EVEN, _ODD = 2 * RINGS, RINGS
INVARIANTS = _EVEN * 3 + _ODD * 2 + 2 * _EVEN
VECTORS = 2 * _EVEN


def window_reach() -> float:
    """How far the encodings of the widest window depend on other points, in spacings."""
    lattice = Lattice.for_accuracy(1 / SIGMA[-1], EPS, 3)
    return float(lattice.spacing / 4 * 2 ** _DOUBLINGS[-1] + 2 * lattice.reach)


def encode_windows(
    x: Tensor,  # (N, 3) float64, in spacings
    rows: Tensor,  # (n,)
) -> Tensor:  # (N, S, 2, RINGS, J) float16
    """Real and imaginary parts at all scales; other rows are undefined."""
    wanted = None
    if len(rows) < len(x):
        wanted = torch.zeros(len(x), dtype=torch.bool).index_fill_(0, rows, True)
    out = torch.empty(len(x), SCALES, 2, RINGS, COUNT, dtype=torch.float16)
    for s, (sigma, levels) in enumerate(zip(SIGMA, _DOUBLINGS, strict=True)):
        A = torch.cat([DIRECTIONS.t() * (rho / sigma) for rho in SHELLS], 1)
        try:
            G = _local_encodings(x, A, Gaussian(1 / sigma), levels, wanted)
        except (GridTooLarge, OverflowError):  # few points far apart: another engine
            G = encode(
                x.float(), A, beta=1 / sigma, eps=EPS, norm="mean", progress=False, validate=False
            )
        out[:, s] = torch.view_as_real(G).unflatten(1, (RINGS, COUNT)).permute(0, 3, 1, 2)
    return out


def _local_encodings(
    x: Tensor,  # (N, 3) float64
    A: Tensor,  # (3, D)
    window: Gaussian,
    levels: int,
    wanted: Tensor | None,  # (N,) bool
) -> Tensor:  # (N, D) complex64
    """Encodings of a part of a cloud as those of the whole, up to rounding: for clouds in tiles.

    By the grid engine with blocks in fixed cells about zero, so that its errors are those of the
    whole: the part must not be moved. Rows that are not `wanted` are undefined. Raises
    GridTooLarge where points lie too thinly for windows of this size.
    """
    points, columns = Points(x.float()), 2 * A.shape[1]
    geometry = Geometry(points, points, window, EPS, progress=False)
    lattice = lattice_of(geometry)
    blocks = anchored(x, lattice.spacing / 4, levels, block_price(lattice, columns, CPU, 4))
    operator = GridOperator.of(geometry, lattice, [blocks], columns, adapt=False)
    out = torch.empty(len(x), A.shape[1], dtype=torch.complex64)
    with torch.no_grad():
        operator.encode(Modulation(A, None, "mean"), out, wanted)
    return out


def peaks(G: Tensor) -> tuple[Tensor, Tensor]:  # (B, S, 2, RINGS, J) -> (3, PEAKS, B), (n, B)
    """The normals of the windows, and how clear they are.

    The dominant direction of |G|^2 of every scale and shell; and the share of |G|^2 along it, |G|,
    and the angles between the peaks. On a plane nearly all is in one peak, and all peaks agree.
    """
    power = G[:, :, 0].square() + G[:, :, 1].square()  # (B, S, RINGS, J)
    T = (power.flatten(1, 2) @ _OUTER.t()).permute(2, 1, 0)  # (6, PEAKS, B)
    top, total = eigen.dominant(T), eigen.trace(T)
    share = eigen.dot(eigen.times(T, top), top) / total.clamp_min(_TINY)
    i, j = torch.triu_indices(PEAKS, PEAKS, 1)
    return top, torch.cat((share, total.sqrt(), eigen.dot(top[:, i], top[:, j]).abs()))


def seen_from(
    G: Tensor,  # (B, S, 2, RINGS, J)
    n: Tensor,  # (3, B)
) -> tuple[Tensor, Tensor]:  # (S * INVARIANTS, B), (3, S * VECTORS, B)
    """F and the lengths of V; V."""
    B = len(G)
    c = (n.t() @ DIRECTIONS.t())[:, None]  # (B, 1, J)
    c2 = c * c
    ones = torch.ones_like(c)
    even = torch.cat((ones, 1.5 * c2 - 0.5, (4.375 * c2 - 3.75) * c2 + 0.375), 1)
    slopes = torch.cat((3 * c, (17.5 * c2 - 7.5) * c), 1)  # of the last two
    slopes = (slopes[:, :, None] * DIRECTIONS.t()).flatten(1, 2)  # (B, 6, J)
    odd = torch.cat((c, (2.5 * c2 - 1.5) * c), 1)  # (B, 2, J)
    re, im = (G * WEIGHTS).unbind(2)  # (B, S, RINGS, J)
    H = torch.cat(((re.square() + im.square() + _TINY).sqrt(), re), 2).flatten(1, 2)
    FV = torch.bmm(H, torch.cat((even, slopes), 1).mT)  # (B, S EVEN, 9)
    F = torch.bmm(im.flatten(1, 2), odd.mT).view(B, SCALES, -1)
    F = F * torch.where(F[..., :1] < 0, -1.0, 1.0)  # the sign of n is arbitrary
    V = FV[..., 3:].reshape(B, -1, 3).permute(2, 1, 0).contiguous()  # (3, S VECTORS, B)
    V -= eigen.dot(V, n[:, None]) * n[:, None]
    numbers = torch.cat((FV[..., :3].flatten(1), F.flatten(1)), 1).t()
    return torch.cat((numbers, eigen.dot(V, V).sqrt())), V
