"""The solids that others are made of: superellipsoids, wavy balls, tori, frusta, convex hulls.

>>> from veckm.data.primitives import Torus
>>> Torus(0.4).stretched((1.0, 1.0, 2.0)).sample(1000).curvature.shape
torch.Size([1000, 2])
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from scipy.spatial import ConvexHull, QhullError
from torch import Tensor

from veckm.data.meshes import Mesh
from veckm.data.sampling import directions, pick, uniform
from veckm.data.solids import Solid


class StarShaped(Solid):
    r"""A solid that every ray from the origin leaves once.

    .. math:: x = u / G(u), \qquad f = \log G, \qquad
              dA = |x|^2\, |\nabla f(u)|\, d\omega

    where the level f is the log of a gauge G, with G(s x) = s G(x).
    """

    def draw(self, m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        u, spread = self.rays(directions(generator, m))
        pos, _, area = self.at(u)
        return pos, 4 * math.pi * area * spread / m

    def at(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # (N, 3) -> (N, 3), (N, 3), (N,)
        """The points along unit rays, their normals, and the area per solid angle."""
        radius, gradient = (-self.level(u)).exp(), self.gradient(u)
        slope = gradient.norm(dim=-1)
        return radius.unsqueeze(-1) * u, gradient / slope.unsqueeze(-1), radius.square() * slope

    def rays(self, v: Tensor) -> tuple[Tensor, Tensor]:  # (N, 3) -> (N, 3), (N,)
        """Directions of rays from uniform ones, and the solid angle of each relative to theirs."""
        return v, torch.ones_like(v[:, 0])


@dataclass(frozen=True, eq=False)
class Superellipsoid(StarShaped):
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

    def level(self, x: Tensor) -> Tensor:
        a = x[:, :2].abs().pow(self.p).sum(-1)
        return (a.pow(self.q / self.p) + x[:, 2].abs().pow(self.q)).log() / self.q


@dataclass(frozen=True, eq=False)
class Wavy(StarShaped):
    r"""An ellipsoid displaced by smooth waves of the direction u = x / |x|.

    .. math:: f = \tfrac12 \log x^T M x - \sum_k a_k \sin(\kappa_k \cdot u + \phi_k) - c
    """

    kappa: Tensor  #: (W, 3)
    phase: Tensor  #: (W,)
    amplitude: Tensor  #: (W,)
    #: (3,) the diagonal of M; ones, for a ball, unless given
    axes: Tensor = field(default_factory=lambda: torch.ones(3, dtype=torch.float64))
    log_scale: float = 0.0  #: c

    def level(self, x: Tensor) -> Tensor:
        u = x / x.norm(dim=-1, keepdim=True)
        waves = torch.addmm(self.phase, u, self.kappa.T).sin() @ self.amplitude
        return (x.square() @ self.axes).log() / 2 - waves - self.log_scale

    def rays(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """More of them where the ellipsoid is far from the origin: fewer are rejected."""
        x = v * self.axes.rsqrt()
        norm = x.norm(dim=-1, keepdim=True)
        return x / norm, self.axes.prod().rsqrt() / norm.squeeze(-1) ** 3


@dataclass(frozen=True, eq=False)
class Torus(Solid):
    r"""A ring about the z axis, of major radius 1 and minor radius r.

    .. math:: f = \sqrt{(\sqrt{x^2 + y^2} - 1)^2 + z^2} - r
    """

    minor: float = 0.4

    def __post_init__(self) -> None:
        if not 0 < self.minor <= 1:
            raise ValueError(f"minor must be above 0 and at most 1, got {self.minor}")

    def draw(self, m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        theta, phi = 2 * torch.pi * uniform(generator, 2, m)
        radius = 1 + self.minor * phi.cos()  # from the axis: the area is r radius dtheta dphi
        pos = (radius * theta.cos(), radius * theta.sin(), self.minor * phi.sin())
        return torch.stack(pos, dim=-1), 4 * math.pi**2 * self.minor * radius / m

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

    def draw(self, m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        part = pick(self._areas, uniform(generator, m))
        phi, v = 2 * torch.pi * uniform(generator, m), uniform(generator, m)
        # On the side the radius is drawn in proportion to itself, between top and 1.
        cap = torch.where(part == 1, self.top, 1.0).to(v) * v.sqrt()
        radius = torch.where(part == 2, (self.top**2 + (1 - self.top**2) * v).sqrt(), cap)
        side = 1 - 2 * (radius - self.top) / (1 - self.top) if self.top < 1 else 2 * v - 1
        z = torch.where(part == 2, side, 2.0 * part - 1)
        pos = torch.stack((radius * phi.cos(), radius * phi.sin(), z), dim=-1)
        return pos, (self._areas.sum() / m).expand(m)

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
    def _hull(self) -> tuple[Mesh, Tensor]:  # its triangles, (F, 4) their normals and offsets
        try:
            hull = ConvexHull(self.points.numpy())
        except (QhullError, ValueError) as error:
            raise ValueError("a hull needs four points or more that are not in a plane") from error
        mesh = Mesh(self.points, torch.from_numpy(hull.simplices).long())
        return mesh, torch.from_numpy(hull.equations)

    def draw(self, m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        mesh = self._hull[0]
        return mesh.draw(m, generator)[0], (mesh.areas.sum() / m).expand(m)

    def level(self, x: Tensor) -> Tensor:
        return self._heights(x).amax(-1)

    def gradient(self, x: Tensor) -> Tensor:
        return self._hull[1][self._heights(x).argmax(-1), :3]

    def derivatives(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.gradient(x), x.new_zeros(len(x), 3, 3)

    def _heights(self, x: Tensor) -> Tensor:  # (N, F)
        planes = self._hull[1]
        return torch.addmm(planes[:, 3], x, planes[:, :3].T)


def prism(sides: int, top: float = 1.0) -> Hull:
    """A regular prism about the z axis that narrows from radius 1 at z = -1 to ``top`` at z = 1."""
    if sides < 3 or not 0 <= top <= 1:
        raise ValueError(f"a prism has 3 sides or more and a top of 0 to 1, got {sides} and {top}")
    angle = 2 * torch.pi * torch.arange(sides, dtype=torch.float64) / sides
    ring = torch.stack((angle.cos(), angle.sin(), -torch.ones_like(angle)), dim=-1)
    above = ring * ring.new_tensor([top, top, -1.0])
    return Hull(torch.cat((ring, above if top > 0 else above[:1])))
