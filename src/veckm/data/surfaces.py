"""Solids with exact normals and curvatures: superellipsoids, bumpy stars, tori, frusta, hulls.

>>> from veckm.data.surfaces import Torus
>>> Torus(0.4).stretched((1.0, 1.0, 2.0)).sample(1000).curvature.shape
torch.Size([1000, 2])
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from scipy.spatial import ConvexHull, QhullError
from torch import Tensor

from veckm.data.cells import pick
from veckm.data.csg import Solid, Spots, Uneven
from veckm.data.sampling import directions, uniform


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


def prism(sides: int, top: float = 1.0) -> Hull:
    """A regular prism about the z axis that narrows from radius 1 at z = -1 to ``top`` at z = 1."""
    if sides < 3 or not 0 <= top <= 1:
        raise ValueError(f"a prism has 3 sides or more and a top of 0 to 1, got {sides} and {top}")
    turn = 2 * torch.pi * torch.arange(sides, dtype=torch.float64) / sides
    ring = torch.stack((turn.cos(), turn.sin(), -torch.ones_like(turn)), dim=-1)
    above = ring * ring.new_tensor([top, top, -1.0])
    return Hull(torch.cat((ring, above if top > 0 else above[:1])))
