"""An endless variety of solids with exact normals and curvatures, for training and for tests.

A solid draws points of its own surface and knows which places are inside it. That is enough to
turn, stretch and cut solids out of each other, and the result is a solid again:

>>> from veckm.data.surfaces import Torus, random_shape
>>> Torus(0.4).stretched((1.0, 1.0, 2.0)).sample(1000).curvature.shape
torch.Size([1000, 2])
>>> random_shape(1000, seed=7).normal.shape
torch.Size([1000, 3])
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from scipy.spatial import ConvexHull, QhullError
from torch import Tensor

from veckm.data.cells import pick
from veckm.data.sampling import (
    Seed,
    Shape,
    check_count,
    check_positive,
    collect,
    directions,
    finish,
    gaussian,
    make_generator,
    rotation,
    uniform,
)

Way = Literal["or", "and", "minus"]

_CHUNK = 1 << 15  # candidates at a time, so that what lies between stays in the cache


@dataclass(frozen=True, eq=False)
class Spots:
    r"""Candidates for points of a surface.

    .. math:: B = \nabla^2 f / |\nabla f|, \qquad n = \nabla f / |\nabla f|

    for any function f that is zero on the surface and positive outside.

    Shapes (float64):
        - pos, normal: (N, 3)
        - weight: (N,) from 0 to 1, the chance to keep it that makes what is kept even by area
        - bend: (R,) -> (R, 3, 3), the matrix B of some candidates, by their numbers; only how it
          acts along the surface has a meaning
    """

    pos: Tensor
    normal: Tensor
    weight: Tensor
    bend: Callable[[Tensor], Tensor]

    def curvature(
        self,
        rows: Tensor,  # (R,)
    ) -> Tensor:  # (R, 2)
        """The eigenvalues of B along the surface, the larger first."""
        normal, bend = self.normal[rows], self.bend(rows)
        axis = torch.nn.functional.one_hot(normal.abs().argmin(-1), 3).to(normal)
        s = torch.nn.functional.normalize(torch.linalg.cross(axis, normal), dim=-1)
        t = torch.linalg.cross(normal, s)
        bs, bt = ((bend @ v.unsqueeze(-1)).squeeze(-1) for v in (s, t))
        a, b, c = (s * bs).sum(-1), (s * bt).sum(-1), (t * bt).sum(-1)
        spread = torch.hypot((a - c) / 2, b)
        return torch.stack(((a + c) / 2 + spread, (a + c) / 2 - spread), dim=-1)


class Solid(ABC):
    """A body with a surface; subclasses say how to draw from it and what is inside."""

    @property
    @abstractmethod
    def measure(self) -> float:
        """The area that the surface would have if all candidates were kept."""

    @abstractmethod
    def draw(self, m: int, generator: torch.Generator) -> Spots:
        """m candidates; times the mean of their weights the measure is the area."""

    @abstractmethod
    def level(
        self,
        x: Tensor,  # (N, 3)
    ) -> Tensor:  # (N,)
        """Below zero inside, above zero outside, zero on the surface."""

    def sample(self, n: int, seed: Seed = 0) -> Shape:
        """n points of the surface, uniform by area, in random order.

        Args:
            n: number of points.
            seed: an int or a torch.Generator; decides the points, not the solid.

        Shapes:
            - pos, normal: (n, 3), curvature: (n, 2)
        """
        generator, n = _on_cpu(seed), check_count(n)

        def trial(m: int) -> tuple[Tensor, Tensor, Tensor]:
            spots = self.draw(m, generator)
            rows = (uniform(generator, m) < spots.weight).nonzero().squeeze(-1)
            rows = rows[torch.randperm(len(rows), generator=generator)]  # the parts come in turn
            return spots.pos[rows], spots.normal[rows], spots.curvature(rows)

        return finish(*collect(n, trial, _CHUNK, "its parts cut each other away"))

    def moved(
        self,
        matrix: Tensor,  # (3, 3)
        shift: Tensor | None = None,  # (3,)
    ) -> Solid:
        """The solid of the points matrix x + shift."""
        return Moved(self, matrix, torch.zeros_like(matrix[0]) if shift is None else shift)

    def stretched(self, factors: Sequence[float]) -> Solid:
        """The solid stretched along x, y and z."""
        check_positive("every factor", min(factors))
        return self.moved(torch.diag(torch.tensor(factors, dtype=torch.float64)))

    def __or__(self, other: Solid) -> Solid:
        return Joined(self, other, "or")

    def __and__(self, other: Solid) -> Solid:
        return Joined(self, other, "and")

    def __sub__(self, other: Solid) -> Solid:
        return Joined(self, other, "minus")


class Uneven(Solid):
    """A solid whose candidates stand for unequal areas, of which a trial finds the largest."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """What candidates are spread over."""

    @abstractmethod
    def candidates(self, m: int, generator: torch.Generator) -> Spots:
        """m candidates with the area per spread as their weights."""

    @cached_property
    def _peak(self) -> float:
        """About the largest weight; where one is above it, a few points are missing."""
        return 1.1 * float(self.candidates(4096, torch.Generator().manual_seed(0)).weight.max())

    @property
    def measure(self) -> float:
        return self.spread * self._peak

    def draw(self, m: int, generator: torch.Generator) -> Spots:
        spots = self.candidates(m, generator)
        return replace(spots, weight=spots.weight / self._peak)


@dataclass(frozen=True, eq=False)
class Moved(Uneven):
    r"""A solid under an affine map, with its normals and curvatures.

    .. math:: x' = M x + t, \qquad \nabla f' = M^{-T} \nabla f, \qquad
              \nabla^2 f' = M^{-T}\, \nabla^2 f\, M^{-1}, \qquad dA' = |\det M|\, |M^{-T} n|\, dA
    """

    solid: Solid
    matrix: Tensor
    shift: Tensor

    @cached_property
    def _inverse(self) -> Tensor:
        inverse: Tensor = torch.linalg.inv(self.matrix)
        return inverse

    @property
    def spread(self) -> float:
        return self.solid.measure

    def candidates(self, m: int, generator: torch.Generator) -> Spots:
        spots = self.solid.draw(m, generator)
        slope = spots.normal @ self._inverse  # M^-T n, as rows
        length = slope.norm(dim=-1, keepdim=True)
        growth = length.squeeze(-1) * torch.linalg.det(self.matrix).abs()

        def bend(rows: Tensor) -> Tensor:
            inverse, scale = self._inverse, length[rows].unsqueeze(-1)
            bent: Tensor = inverse.T @ spots.bend(rows) @ inverse / scale
            return bent

        pos = spots.pos @ self.matrix.T + self.shift
        return Spots(pos, slope / length, spots.weight * growth, bend)

    def moved(self, matrix: Tensor, shift: Tensor | None = None) -> Solid:
        moved = matrix @ self.shift  # one map in place of two
        return Moved(self.solid, matrix @ self.matrix, moved if shift is None else moved + shift)

    def level(self, x: Tensor) -> Tensor:
        return self.solid.level((x - self.shift) @ self._inverse.T)


@dataclass(frozen=True, eq=False)
class Joined(Solid):
    """Two solids as one: a or b, a and b, a minus b. The edges where they meet are sharp."""

    a: Solid
    b: Solid
    how: Way

    @property
    def measure(self) -> float:
        return self.a.measure + self.b.measure

    def draw(self, m: int, generator: torch.Generator) -> Spots:
        share = self.a.measure / self.measure
        k = int((uniform(generator, m) < share).sum())
        a, b = self.a.draw(k, generator), self.b.draw(m - k, generator)
        out_a = self.a.level(b.pos) > 0  # (m - k,)
        out_b = self.b.level(a.pos) > 0  # (k,)
        keep_a = ~out_b if self.how == "and" else out_b
        keep_b = out_a if self.how == "or" else ~out_a
        side = -1 if self.how == "minus" else 1  # what is left of b is then the wall of a hollow

        def bend(rows: Tensor) -> Tensor:
            result = a.pos.new_empty(len(rows), 3, 3)
            result[rows < k] = a.bend(rows[rows < k])
            result[rows >= k] = side * b.bend(rows[rows >= k] - k)
            return result

        return Spots(
            torch.cat((a.pos, b.pos)),
            torch.cat((a.normal, side * b.normal)),
            torch.cat((a.weight * keep_a, b.weight * keep_b)),
            bend,
        )

    def moved(self, matrix: Tensor, shift: Tensor | None = None) -> Solid:
        # Each part by itself, for then each has a peak of its own.
        return Joined(self.a.moved(matrix, shift), self.b.moved(matrix, shift), self.how)

    def level(self, x: Tensor) -> Tensor:
        a, b = self.a.level(x), self.b.level(x)
        if self.how == "or":
            return torch.minimum(a, b)
        return torch.maximum(a, b if self.how == "and" else -b)


class Star(Uneven):
    r"""A solid given by how far it reaches in every direction.

    .. math:: x = u / G(u), \qquad f = \log G, \qquad
              dA = |x|^2\, |\nabla f(u)|\, d\omega

    where G grows in proportion along every ray, so that grad f and the Hessian of f at x are
    those at u times G and G squared, and u . grad f(u) = 1.
    """

    @property
    def spread(self) -> float:
        return 4 * math.pi

    @abstractmethod
    def log_gauge(
        self,
        x: Tensor,  # (N, 3)
    ) -> Tensor:  # (N,)
        """f = log G."""

    @abstractmethod
    def gradient(
        self,
        u: Tensor,  # (N, 3) unit
    ) -> Tensor:  # (N, 3)
        """grad f."""

    @abstractmethod
    def hessian(
        self,
        u: Tensor,  # (N, 3) unit
    ) -> Tensor:  # (N, 3, 3)
        """The second derivatives of f."""

    def candidates(self, m: int, generator: torch.Generator) -> Spots:
        u = directions(generator, m)
        reach = (-self.log_gauge(u)).exp().unsqueeze(-1)  # (m, 1)
        gradient = self.gradient(u)
        steep = gradient.norm(dim=-1, keepdim=True)

        def bend(rows: Tensor) -> Tensor:
            scale: Tensor = (reach * steep)[rows]
            return self.hessian(u[rows]) / scale.unsqueeze(-1)

        return Spots(reach * u, gradient / steep, (reach.square() * steep).squeeze(-1), bend)

    def level(self, x: Tensor) -> Tensor:
        return self.log_gauge(x)


@dataclass(frozen=True, eq=False)
class Superellipsoid(Star):
    r"""Between a ball (p = q = 2), a cylinder (q large), a box (both large) and spikes (below 2).

    .. math:: (|x|^p + |y|^p)^{q/p} + |z|^q = 1

    Below 2 the curvature has no bound near the planes x = 0, y = 0 (p) and z = 0 (q).

    Args:
        p: roundness seen from above, above 1.
        q: roundness seen from the side, above 1.
    """

    p: float = 2.0
    q: float = 2.0

    def __post_init__(self) -> None:
        if not (1 < self.p <= 50 and 1 < self.q <= 50):
            raise ValueError(f"p and q must be above 1 and at most 50, got {self.p} and {self.q}")

    def log_gauge(self, x: Tensor) -> Tensor:
        a = x[:, :2].abs().pow(self.p).sum(-1)
        return (a.pow(self.q / self.p) + x[:, 2].abs().pow(self.q)).log() / self.q

    def gradient(self, u: Tensor) -> Tensor:
        p, q = self.p, self.q
        power = u.sign() * u.abs().pow(u.new_tensor([p - 1, p - 1, q - 1]))
        a = u[:, :2].abs().pow(p).sum(-1, keepdim=True)  # (N, 1)
        size = a.pow(q / p) + u[:, 2:].abs().pow(q)  # G^q
        return torch.cat((a.pow(q / p - 1) * power[:, :2], power[:, 2:]), dim=-1) / size

    def hessian(self, u: Tensor) -> Tensor:
        p, q, g = self.p, self.q, self.gradient(u)
        power = u.abs().pow(u.new_tensor([p - 2, p - 2, q - 2]))
        a = u[:, :2].abs().pow(p).sum(-1, keepdim=True)  # (N, 1)
        size = a.pow(q / p) + u[:, 2:].abs().pow(q)
        own = torch.cat(((p - 1) * a.pow(q / p - 1) * power[:, :2], (q - 1) * power[:, 2:]), dim=-1)
        result = torch.diag_embed(own / size) - q * g.unsqueeze(-1) * g.unsqueeze(-2)
        # a = |x|^p + |y|^p is itself raised to q / p.
        flat, rise = g[:, :2], (q - p) * size * a.pow(-q / p)
        result[:, :2, :2] += rise.unsqueeze(-1) * flat.unsqueeze(-1) * flat.unsqueeze(-2)
        return result


@dataclass(frozen=True, eq=False)
class Bumpy(Star):
    r"""A ball displaced by smooth waves of its direction u = x / |x|.

    .. math:: f = \log |x| - w(u), \qquad w(u) = \sum_k a_k \sin(\kappa_k \cdot u + \phi_k)

    .. math:: \nabla f = (u - s) / |x|, \qquad |x|^2\, \nabla^2 f = I - 2 u u^T
              - P \nabla^2 w P + (u \cdot \nabla w) P + u s^T + s u^T

    with P = I - u u^T and s = P grad w.

    Shapes:
        - kappa: (W, 3)
        - phase, amplitude: (W,)
    """

    kappa: Tensor
    phase: Tensor
    amplitude: Tensor

    @cached_property
    def _pull(self) -> Tensor:  # (W, 3)
        """The amplitude of every wave times its kappa."""
        return self.amplitude.unsqueeze(-1) * self.kappa

    def log_gauge(self, x: Tensor) -> Tensor:
        size: Tensor = torch.linalg.vector_norm(x, dim=-1)
        angle = x / size.unsqueeze(-1) @ self.kappa.T + self.phase  # (N, W)
        return size.log() - angle.sin() @ self.amplitude

    def gradient(self, u: Tensor) -> Tensor:
        first = (u @ self.kappa.T + self.phase).cos() @ self._pull  # grad w
        return u - first + (u * first).sum(-1, keepdim=True) * u

    def hessian(self, u: Tensor) -> Tensor:
        turn = u @ self.kappa.T  # (N, W)
        angle = turn + self.phase
        sin, first = angle.sin(), angle.cos() @ self._pull
        pairs = (self._pull.unsqueeze(-1) * self.kappa.unsqueeze(-2)).flatten(1)  # (W, 9)
        second = -(sin @ pairs).view(-1, 3, 3)  # H, the Hessian of w
        across = -(sin * turn) @ self._pull  # H u
        along = (u * first).sum(-1, keepdim=True)  # u . grad w
        # P H P = H - u (H u)^T - (H u) u^T + (u . H u) u u^T: all that has a u, in one product.
        level = 2 + along + (u * across).sum(-1, keepdim=True)
        mixed = across + first - (along + level / 2) * u
        product = u.unsqueeze(-1) * mixed.unsqueeze(-2)
        eye = torch.eye(3, dtype=u.dtype)
        return (1 + along).unsqueeze(-1) * eye - second + product + product.mT


@dataclass(frozen=True, eq=False)
class Torus(Solid):
    r"""A ring about the z axis, of major radius 1 and minor radius r.

    .. math:: f = \sqrt{(\sqrt{x^2 + y^2} - 1)^2 + z^2} - r
    """

    minor: float = 0.4

    def __post_init__(self) -> None:
        if not 0 < self.minor < 1:
            raise ValueError(f"minor must be between 0 and 1, got {self.minor}")

    @property
    def measure(self) -> float:
        return 4 * math.pi**2 * self.minor * (1 + self.minor)

    def draw(self, m: int, generator: torch.Generator) -> Spots:
        theta, phi = 2 * torch.pi * uniform(generator, 2, m)
        ring = torch.stack((theta.cos(), theta.sin(), torch.zeros_like(theta)), dim=-1)
        turn = torch.stack((-theta.sin(), theta.cos(), torch.zeros_like(theta)), dim=-1)
        normal = phi.cos().unsqueeze(-1) * ring
        normal[:, 2] = phi.sin()
        tube = torch.linalg.cross(normal, turn)
        far = 1 + self.minor * phi.cos()  # from the axis: the area is r far dtheta dphi

        def bend(rows: Tensor) -> Tensor:
            ring_bend = _outer(turn[rows], (phi.cos() / far)[rows])
            return ring_bend + _outer(tube[rows], torch.full_like(far[rows], 1 / self.minor))

        return Spots(ring + self.minor * normal, normal, far / (1 + self.minor), bend)

    def level(self, x: Tensor) -> Tensor:
        return torch.hypot(x[:, :2].norm(dim=-1) - 1, x[:, 2]) - self.minor


@dataclass(frozen=True, eq=False)
class Frustum(Solid):
    """A cylinder about the z axis that narrows from radius 1 at z = -1 to ``top`` at z = 1.

    With 1 it is a plain cylinder and with 0 a cone.
    """

    top: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.top <= 1:
            raise ValueError(f"top must be from 0 to 1, got {self.top}")

    @cached_property
    def _areas(self) -> Tensor:  # (3,), of the bottom, the top and the side
        slant = math.hypot(2, 1 - self.top)
        areas = [1.0, self.top**2, (1 + self.top) * slant]
        return math.pi * torch.tensor(areas, dtype=torch.float64)

    @property
    def measure(self) -> float:
        return float(self._areas.sum())

    def draw(self, m: int, generator: torch.Generator) -> Spots:
        part = pick(self._areas, uniform(generator, m)).double().unsqueeze(-1)  # (m, 1)
        phi, v = 2 * torch.pi * uniform(generator, m), uniform(generator, m, 1)
        zero = torch.zeros_like(phi)
        out = torch.stack((phi.cos(), phi.sin(), zero), dim=-1)
        up = out.new_tensor([0.0, 0.0, 1.0])
        # On the side the radius is drawn in proportion to itself, between top and 1.
        rim = torch.where(part == 1, self.top, 1.0).to(v)
        slope = (self.top**2 + (1 - self.top**2) * v).sqrt()
        radius = torch.where(part == 2, slope, rim * v.sqrt())
        lean = 1 - self.top  # the radius lost over a height of 2
        high = 1 - 2 * (radius - self.top) / lean if lean > 0 else 2 * v - 1
        z = torch.where(part == 2, high, 2 * part - 1)
        side = (2 * out + lean * up) / math.hypot(2, lean)
        normal = torch.where(part == 2, side, (2 * part - 1) * up)
        turn = torch.stack((-phi.sin(), phi.cos(), zero), dim=-1)
        curl = (part == 2).to(v) * (2 / math.hypot(2, lean)) / radius  # how fast the normal turns

        def bend(rows: Tensor) -> Tensor:
            return _outer(turn[rows], curl[rows].squeeze(-1))

        return Spots(radius * out + z * up, normal, zero + 1, bend)

    def level(self, x: Tensor) -> Tensor:
        radius = (1 + self.top) / 2 - (1 - self.top) / 2 * x[:, 2]
        return torch.maximum(x[:, :2].norm(dim=-1) - radius, x[:, 2].abs() - 1)


@dataclass(frozen=True, eq=False)
class Hull(Solid):
    """The convex hull of some points: boxes, wedges, prisms, pyramids and stones.

    Shapes:
        - points: (V, 3) float64, at least four that are not in a plane
    """

    points: Tensor

    @cached_property
    def _faces(self) -> tuple[Tensor, Tensor, Tensor]:  # (F, 3, 3), (F, 3), (F,)
        """Corners, outward normals and offsets of the triangles."""
        try:
            hull = ConvexHull(self.points.numpy())
        except (QhullError, ValueError) as error:
            raise ValueError("a hull needs four points or more that are not in a plane") from error
        planes = torch.from_numpy(hull.equations)
        return self.points[torch.from_numpy(hull.simplices).long()], planes[:, :3], planes[:, 3]

    @cached_property
    def _areas(self) -> Tensor:  # (F,)
        corners = self._faces[0]
        edges = corners[:, 1:] - corners[:, :1]
        area: Tensor = torch.linalg.cross(edges[:, 0], edges[:, 1]).norm(dim=-1) / 2
        return area

    @property
    def measure(self) -> float:
        return float(self._areas.sum())

    def draw(self, m: int, generator: torch.Generator) -> Spots:
        corners, normal, _ = self._faces
        face = pick(self._areas, uniform(generator, m))
        ab = uniform(generator, m, 2)
        ab = torch.where(ab.sum(-1, keepdim=True) > 1, 1 - ab, ab)
        share = torch.cat((1 - ab.sum(-1, keepdim=True), ab), dim=-1)
        pos = (share.unsqueeze(-1) * corners[face]).sum(1)
        return Spots(
            pos, normal[face], pos.new_ones(m), lambda rows: pos.new_zeros(len(rows), 3, 3)
        )

    def level(self, x: Tensor) -> Tensor:
        _, normal, offset = self._faces
        return (x @ normal.T + offset).amax(-1)


def _outer(
    v: Tensor,  # (N, 3)
    factor: Tensor,  # (N,)
) -> Tensor:  # (N, 3, 3)
    return factor[:, None, None] * v.unsqueeze(-1) * v.unsqueeze(-2)


def _on_cpu(seed: Seed) -> torch.Generator:
    """A generator on the CPU, where the solids are; one of another device starts a new one."""
    generator = make_generator(seed)
    if generator.device.type == "cpu":
        return generator
    return torch.Generator().manual_seed(int(2**52 * float(uniform(generator, 1))))


def prism(sides: int, top: float = 1.0) -> Hull:
    """A regular prism about the z axis that narrows from radius 1 at z = -1 to ``top`` at z = 1."""
    if sides < 3 or not 0 <= top <= 1:
        raise ValueError(f"a prism has 3 sides or more and a top of 0 to 1, got {sides} and {top}")
    turn = 2 * torch.pi * torch.arange(sides, dtype=torch.float64) / sides
    ring = torch.stack((turn.cos(), turn.sin(), -torch.ones_like(turn)), dim=-1)
    above = ring * ring.new_tensor([top, top, -1.0])
    return Hull(torch.cat((ring, above if top > 0 else above[:1])))


def random_shape(n: int, seed: Seed = 0) -> Shape:
    """n points of a random solid in the unit ball, with exact normals and curvatures.

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    generator, n = _on_cpu(seed), check_count(n)
    return random_surface(generator).sample(n, generator)


def random_surface(seed: Seed = 0) -> Solid:
    """A random solid in the unit ball, turned and stretched at random.

    About half are machine parts, made of several solids that join and cut each other with sharp
    edges; the others are single smooth, wavy or faceted ones.
    """
    g = _on_cpu(seed)
    makers = (_machine, _machine, _machine, _bumpy, _bumpy, _single)
    solid = makers[_choice(g, len(makers))](g)
    matrix = rotation(g) @ torch.diag((0.8 * uniform(g, 3) - 0.4).exp())
    pos = solid.sample(4096, g).pos.double() @ matrix.T
    middle = (pos.amax(0) + pos.amin(0)) / 2
    size = float((pos - middle).norm(dim=-1).max()) * 1.01  # the farthest point may be missing
    return solid.moved(matrix / size, -middle / size)


def _choice(g: torch.Generator, count: int) -> int:
    return int(count * float(uniform(g, 1)))


def _between(g: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(uniform(g, 1))


def _single(g: torch.Generator) -> Solid:
    """One plain solid of about the unit ball's size."""
    match _choice(g, 9):
        case 0 | 1:
            return prism(4)
        case 2:
            return prism(3 + _choice(g, 5), _between(g, 0.0, 1.0) if _choice(g, 2) else 1.0)
        case 3:
            return Frustum(1.0)
        case 4:
            return Frustum(_between(g, 0.0, 0.8))
        case 5:
            return Torus(_between(g, 0.15, 0.6))
        case 6:
            return Superellipsoid()
        case 7:
            return Superellipsoid(*(2 ** _between(g, 0.5, 3.3) for _ in range(2)))
        case _:
            count = 6 + _choice(g, 20)
            return Hull((0.7 + 0.3 * uniform(g, count, 1)) * directions(g, count))


def _bumpy(g: torch.Generator) -> Bumpy:
    """A ball with waves from about half its size down to a detail of random fineness."""
    count, finest, slope = 8 + _choice(g, 25), _between(g, 0.7, 1.9), _between(g, 0.2, 1.1)
    size = torch.logspace(0.2, finest, count, dtype=torch.float64)  # |kappa|
    # A wave of amplitude a has the slope a |kappa| / sqrt(2), root mean square.
    amplitude = slope * (2 / count) ** 0.5 / size * (1 + 0.3 * gaussian(g, count))
    kappa = size.unsqueeze(-1) * directions(g, count)
    return Bumpy(kappa, 2 * torch.pi * uniform(g, count), amplitude)


def _machine(g: torch.Generator) -> Solid:
    """A solid with others joined to it and cut out of it, each centred on what was there before."""
    square = _choice(g, 3) > 0  # all along the same axes, as most machine parts are
    solid = _place(_single(g), g, 0.3, 1.0, square)
    for _ in range(1 + _choice(g, 7)):
        spots = solid.draw(256, g)
        at = spots.pos[spots.weight > 0][0]
        part = _bumpy(g) if _choice(g, 10) == 0 else _single(g)
        part = _place(part, g, 0.1, 0.6, square, at)
        ways: tuple[Way, ...] = ("or", "or", "minus", "minus", "and")
        wish = Joined(solid, part, ways[_choice(g, 5)])
        # Not where next to nothing is left, or a sliver too thin for any cloud to show.
        if float((wish.draw(512, g).weight > 0).double().mean()) > 0.3:
            solid = wish
    return solid


def _place(
    solid: Solid,
    g: torch.Generator,
    least: float,
    most: float,
    square: bool,
    at: Tensor | None = None,  # (3,)
) -> Solid:
    """A solid stretched by random factors, turned, and put somewhere."""
    stretch = torch.diag(least + (most - least) * uniform(g, 3))
    quarter = torch.eye(3, dtype=torch.float64)[torch.randperm(3, generator=g)]
    return solid.moved((quarter if square else rotation(g)) @ stretch, at)
