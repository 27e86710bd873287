"""Rotation-invariant descriptors: the encoding on spheres of frequencies, without its direction.

    G(rho_s u) = 1/W sum_j w_j window(x_j - q) exp(i rho_s u . (x_j - q))    W = sum of the weights
    c_{s,l,m} = sum_k q_k Y_lm(u_k) G(rho_s u_k)           over a symmetric spherical quadrature
    any rotation   P_{s,s',l} = sum_m c_{s,l,m} c_{s',l,m}
    about an axis  c'_{s,l,0} and |(c'_{s,l,m}, c'_{s,l,-m})|, where c' is c with the axis as z

G turns with the cloud. Real spherical harmonics of degree l turn among themselves, so that their
inner products stay; about z, those of (l, m) and (l, -m) turn as the two parts of one complex
number. G(-u) = conj G(u): half of the directions are enough, Re G has the even degrees and Im G the
odd ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from scipy.integrate import lebedev_rule
from scipy.special import sph_harm_y
from torch import Tensor, nn

from veckm import inputs
from veckm.engines.phasors import as_real
from veckm.frequencies import suggest_radius
from veckm.parallel import share, workers
from veckm.planning import Scales
from veckm.sizes import make_window, resolve_beta

#: rho_s in units of beta, one over the standard deviation of the window.
SHELLS = (1.0, 2.0, 3.2, 4.6, 6.5)
#: Highest degree l of the spherical harmonics.
DEGREE = 8
#: Points within the radius when no radius is given.
_NEIGHBORS = 256
#: Squares below this are rounding: it keeps the gradient of the square root finite.
_TINY = 1e-8
#: Rows whose invariants are computed at a time.
_ROWS = 1 << 11


class Descriptor(nn.Module):
    """What surrounds every point as a real vector that does not change when the cloud turns.

        F(q) = sign(P) sqrt|P|,  P_{s,s',l} = sum_m c_{s,l,m} c_{s',l,m}    for any rotation
        F(q) = c'_{s,l,0} and |(c'_{s,l,m}, c'_{s,l,-m})|                   about an axis

    where c_{s,l,m} are the coefficients, in real spherical harmonics, of the encoding at
    frequencies of length rho_s (shell s). Without an axis a bump and a dent are the same; with one,
    such as an oriented normal or gravity, they are not.

    Args:
        radius: size of the window in the units of the data; several are put side by side. None
            takes one from the density of each call's points.
        shells: rho_s in units of beta = 1.8 / radius.
        degree: the highest l.
        density: weigh every point by one over the density around it, so that uneven sampling
            matters little.
        eps: mean relative error of the sums, as for :func:`veckm.plan`.

    Shapes:
        pos: (N, 3), or (B, N, 3), or (N, 3) with `batch` (N,).
        returns: (..., F), real. Zero where no point is in reach.

    Example:
        >>> Descriptor(radius=0.3)(torch.rand(1000, 3)).shape
        torch.Size([1000, 135])
    """

    def __init__(
        self,
        radius: float | Sequence[float] | None = None,
        *,
        shells: Sequence[float] = SHELLS,
        degree: int = DEGREE,
        density: bool = True,
        eps: float = 1e-2,
    ) -> None:
        super().__init__()
        self.radius = radius
        if radius is not None:
            resolve_beta(None, radius)  # raises
        self.shells = tuple(inputs.check_positive(rho, "shells") for rho in shells)
        if not self.shells:
            raise ValueError("shells is empty: give at least one")
        self.degree = inputs.check_count(degree, "degree", least=0)
        self.density, self.eps = density, eps
        self.spheres = [sphere(*_degrees(rho, self.degree)) for rho in self.shells]

    def forward(
        self,
        pos: Tensor,  # (N, 3) or (B, N, 3)
        batch: Tensor | None = None,  # (N,)
        *,
        axis: Tensor | None = None,  # (3,) or of the shape of the queries
        queries: Tensor | None = None,  # (M, 3) or (B, M, 3)
        query_batch: Tensor | None = None,  # (M,)
        weights: Tensor | None = None,  # (N,) or (B, N)
    ) -> Tensor:
        """Describe the surroundings of every point or query."""
        rows = pos if queries is None else queries
        frames = None if axis is None else inputs.check_axis(axis, rows)
        scales = Scales.of(pos, batch, queries, query_batch, 3, True)
        radius = self.radius
        if radius is None:
            radius = suggest_radius(pos.reshape(-1, 3), neighbors=_NEIGHBORS)
        parts = []
        for beta in resolve_beta(None, radius):
            c = self._coefficients(scales, beta, weights)
            parts.append(self._invariants([part.flatten(0, -2) for part in c], frames))
        return torch.cat(parts, -1).view(*rows.shape[:-1], -1)

    def _invariants(self, c: list[Tensor], axis: Tensor | None) -> Tensor:  # S of (M, (L_s + 1)^2)
        """Of some rows at a time: what lies between is several times as large as the result."""
        chunks = list(zip(*(part.split(_ROWS) for part in c), strict=True))
        axes = axis if axis is None or axis.dim() > 1 else axis.expand(len(c[0]), 3)
        frames = None if axes is None else axes.flatten(0, -2).split(_ROWS)
        out: list[Tensor] = [c[0]] * len(chunks)

        def work(k: int) -> None:
            some = chunks[k]
            out[k] = about_axis(some, self.spheres, frames[k]) if frames else spectra(some)

        learning = any(t.requires_grad for t in (*c, *(frames or ())))  # in this thread then
        count = 1 if learning else workers(c[0].device, 4 * len(chunks))
        share(range(len(chunks)), lambda _: work, count)
        return torch.cat(out)

    def _coefficients(
        self, scales: Scales, beta: float, weights: Tensor | None
    ) -> list[Tensor]:  # S of (..., (degree + 1)^2)
        """c_{s,l,m}, some shells at a time: the encodings of all at once would fill the memory."""
        window = make_window("gaussian", beta, None)
        columns = 2 * max(len(ball.directions) for ball in self.spheres)
        plan = scales.plan(window, "auto", self.eps, None, columns, False)
        if self.density:
            own = plan
            if scales.queries is not scales.points:
                alone = Scales(scales.points, scales.points, scales.validate)
                own = alone.plan(window, "auto", self.eps, None, 1, False)
            ones = torch.ones_like(scales.points.pos[..., 0]) if weights is None else weights
            inverse = 1 / own.sum(ones).clamp_min(_TINY)
            weights = ones * inverse
        out = []
        for group in self._together:
            parts = [rho * beta * ball.directions for rho, ball in group]
            A = torch.cat(parts).t().to(scales.points.pos)
            G = plan.encode(A, norm="mean", weights=weights)
            values = G.split([len(part) for part in parts], -1)
            for some, (_, ball) in zip(values, group, strict=True):
                out.append(as_real(some) @ ball.analysis.to(G.real))
        return out

    @property
    def _together(self) -> list[list[tuple[float, Sphere]]]:
        """Shells that are encoded at once: no more directions than the largest has."""
        groups: list[list[tuple[float, Sphere]]] = [[]]
        most = max(len(ball.directions) for ball in self.spheres)
        for shell in zip(self.shells, self.spheres, strict=True):
            if sum(len(ball.directions) for _, ball in (*groups[-1], shell)) > most:
                groups.append([])
            groups[-1].append(shell)
        return [group for group in groups if group]

    def extra_repr(self) -> str:
        return f"radius={self.radius}, shells={self.shells}, degree={self.degree}"


def describe(
    pos: Tensor,  # (N, 3) or (B, N, 3)
    *,
    radius: float | Sequence[float] | None = None,
    axis: Tensor | None = None,  # (3,) or of the shape of the queries
    batch: Tensor | None = None,  # (N,)
    queries: Tensor | None = None,  # (M, 3) or (B, M, 3)
    query_batch: Tensor | None = None,  # (M,)
    weights: Tensor | None = None,  # (N,) or (B, N)
    shells: Sequence[float] = SHELLS,
    degree: int = DEGREE,
    density: bool = True,
    eps: float = 1e-2,
) -> Tensor:
    """Rotation-invariant descriptors of the surroundings of every point: see :class:`Descriptor`.

    Args:
        axis: None for invariance to any rotation; a direction per point (an oriented normal), or
            one for all (gravity), for invariance to rotations about it.
        weights: a number for each point, not negative.

    All other arguments as for :class:`Descriptor` and :func:`veckm.plan`. Linear in time and
    memory; differentiable in pos, queries, weights and axis.
    """
    made = Descriptor(radius, shells=shells, degree=degree, density=density, eps=eps)
    found: Tensor = made(
        pos, batch, axis=axis, queries=queries, query_batch=query_batch, weights=weights
    )
    return found


def spectra(c: Sequence[Tensor]) -> Tensor:  # S of (..., (L_s + 1)^2) -> (..., F)
    """sign(P) sqrt|P| of P_{s,s',l} = sum_m c_{s,l,m} c_{s',l,m}, for s <= s' and l of both."""
    powers = []
    for s, first in enumerate(c):
        for second in c[s:]:
            count = min(first.shape[-1], second.shape[-1])
            # A product with zeros and ones: sums over short rows are many times as slow.
            powers.append((first[..., :count] * second[..., :count]) @ _same_degree(count, first))
    P = torch.cat(powers, -1)
    return P / (P.abs() + _TINY).sqrt()


def _same_degree(count: int, like: Tensor) -> Tensor:  # ((L + 1)^2, L + 1)
    """1 where a column of coefficients is of a degree."""
    degree = torch.arange(count, device=like.device).sqrt().floor().long()  # l^2 is its first
    return torch.nn.functional.one_hot(degree).to(like)


def about_axis(
    c: Sequence[Tensor], spheres: Sequence[Sphere], axis: Tensor
) -> Tensor:  # -> (..., F)
    """c'_{s,l,0} and the moduli of (c'_{s,l,m}, c'_{s,l,-m}) in the frame where the axis is z."""
    out = []
    for part, ball in zip(c, spheres, strict=True):
        turned = ball.to_pole(part.t().contiguous(), axis)  # long rows are fast
        pair = (turned[ball.plus].square() + turned[ball.minus].square() + _TINY).sqrt()
        out += [turned[ball.zero], pair - _TINY**0.5]
    return torch.cat(out).t()


@dataclass(frozen=True)
class Sphere:
    """Half of a symmetric spherical quadrature, and real spherical harmonics up to a degree."""

    directions: Tensor  # (K, 3) float64, without their opposites
    weights: Tensor  # (K,) float64: of a direction and its opposite together; sum 4 pi
    harmonics: Tensor  # (K, (L + 1)^2) float64, Y_lm at the directions
    swap: Tensor  # ((L + 1)^2, (L + 1)^2): coefficients of f(x, z, -y) from those of f
    degree: int
    exact: int  # degree up to which the quadrature is exact

    @property
    def analysis(self) -> Tensor:
        """(2 K, (L + 1)^2): from Re and Im of G in turns to the coefficients."""
        odd = self.order[0] % 2 == 1
        weighted = self.weights[:, None] * self.harmonics
        return torch.stack([weighted * ~odd, weighted * odd], 1).flatten(0, 1)

    @property
    def order(self) -> tuple[Tensor, Tensor]:
        """l and m of every column."""
        pairs = [(n, m) for n in range(self.degree + 1) for m in range(-n, n + 1)]
        degree, m = torch.tensor(pairs).t()
        return degree, m

    @property
    def zero(self) -> Tensor:
        """Columns with m = 0."""
        return (self.order[1] == 0).nonzero()[:, 0]

    @property
    def plus(self) -> Tensor:
        """Columns with m > 0."""
        return (self.order[1] > 0).nonzero()[:, 0]

    @property
    def minus(self) -> Tensor:
        """The column of (l, -m) for each of `plus`."""
        return self.plus - 2 * self.order[1][self.plus]

    def to_pole(self, c: Tensor, axis: Tensor) -> Tensor:  # ((L + 1)^2, M), (M, 3)
        """Coefficients of the function turned so that its axis becomes z.

        About z by minus the azimuth, then about y by minus the polar angle: the second is a
        rotation about z between two fixed ones that exchange y and z.
        """
        x, y, z = axis.unbind(-1)
        off = x.square() + y.square() > _TINY  # at the pole any azimuth will do
        x, y = torch.where(off, x, 1), torch.where(off, y, 0)
        flat = (x.square() + y.square()).sqrt()
        swap = self.swap.to(c)
        c = self._about_z(c, x / flat, y / flat)
        return swap @ self._about_z(swap.t() @ c, z, torch.where(off, flat, 0))

    def _about_z(self, c: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Coefficients of f(R x), with R the rotation about z by the angle of cos and sin."""
        powers = [(torch.ones_like(cos), torch.zeros_like(sin))]  # exp(i m angle)
        for _ in range(self.degree):
            re, im = powers[-1]
            powers.append((re * cos - im * sin, re * sin + im * cos))
        m = self.order[1]
        real, imag = (torch.stack(part)[m.abs()] for part in zip(*powers, strict=True))
        partner = torch.arange(len(m)) - 2 * m  # the row of (l, -m)
        return c * real + c[partner] * (imag * m.sign().to(c)[:, None])


def _degrees(rho: float, highest: int) -> tuple[int, int]:
    """The degrees that a shell has, and those that its quadrature must be exact to.

    exp(i rho u . x) has degrees up to about rho |x|, and little beyond two standard
    deviations counts. The degrees above 2 rho + 1 are too small to tell one place from another.
    """
    degree = min(highest, int(2 * rho) + 1)
    return degree, max(2 * degree, degree + math.ceil(2 * rho) + 2)


@lru_cache(maxsize=32)
def sphere(degree: int, exact: int) -> Sphere:
    """Half of the smallest Lebedev rule that integrates polynomials of degree `exact`."""
    x, q = _lebedev(exact)
    # One of each pair of opposites: the one whose first coordinate that is not zero is positive.
    lead = np.where(np.abs(x[0]) > 1e-9, x[0], np.where(np.abs(x[1]) > 1e-9, x[1], x[2]))
    half, weights = x[:, lead > 0], q[lead > 0] * 2
    here = harmonics(half.T, degree)
    there = harmonics(x.T, degree), harmonics(np.stack([x[0], -x[2], x[1]], 1), degree)
    swap = (there[0] * q[:, None]).T @ there[1]
    u, w, y, s = (torch.from_numpy(np.ascontiguousarray(a)) for a in (half.T, weights, here, swap))
    return Sphere(u, w, y, s, degree, exact)


def _lebedev(exact: int) -> tuple[np.ndarray, np.ndarray]:  # (3, n), (n,)
    """The smallest symmetric rule that is exact up to a degree."""
    for order in (*range(3, 33, 2), *range(35, 132, 6)):
        if order >= exact:
            x, q = lebedev_rule(order)
            return x, q
    raise ValueError(f"there is no quadrature of degree {exact}: use smaller shells or degree")


def harmonics(u: np.ndarray, degree: int) -> np.ndarray:  # (n, 3) -> (n, (degree + 1)^2)
    """Real, orthonormal spherical harmonics Y_lm, l = 0 .. degree, m = -l .. l."""
    polar = np.arccos(np.clip(u[:, 2], -1, 1))
    azimuth = np.arctan2(u[:, 1], u[:, 0])
    columns = []
    for n in range(degree + 1):
        for m in range(-n, n + 1):
            y = sph_harm_y(n, abs(m), polar, azimuth) * (-1) ** m  # without Condon and Shortley's
            columns.append(y.real if m == 0 else 2**0.5 * (y.real if m > 0 else y.imag))
    return np.stack(columns, 1)
