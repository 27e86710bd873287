"""A street of boxes and poles on flat ground, and the rays that meet it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from veckm.data.sampling import uniform


@dataclass(frozen=True, eq=False)
class Street:
    """Upright boxes, upright poles and the ground z = 0, in meters; the road runs along x.

    Shapes (float64):
        - center, half: (Q, 3), the middle and half the lengths of every box
        - yaw: (Q,), its turn about the vertical, in radians
        - foot: (P, 2), where a pole stands
        - radius, height: (P,)
    """

    center: Tensor
    half: Tensor
    yaw: Tensor
    foot: Tensor
    radius: Tensor
    height: Tensor

    def cast(
        self,
        origin: Tensor,  # (N, 3)
        ray: Tensor,  # (N, 3) unit
    ) -> tuple[Tensor, Tensor]:  # (N,), (N, 3)
        """Distance to the first surface along each ray, inf for none, and its outward normal.

        Shapes:
            - origin, ray: (N, 3)
            - output: (N,) and (N, 3)
        """
        ground = -origin[:, 2] / ray[:, 2]
        ground = torch.where(ground > 0, ground, torch.inf)
        box, box_normal = self._cast_boxes(origin, ray)
        pole, pole_normal = self._cast_poles(origin, ray)
        distance, which = torch.stack((ground, box, pole), dim=-1).min(dim=-1)
        up = ray.new_tensor([0.0, 0.0, 1.0]).expand_as(ray)
        normals = torch.stack((up, box_normal, pole_normal), dim=1)  # (N, 3, 3)
        return distance, normals[torch.arange(len(ray)), which]

    def within(
        self,
        eye: Tensor,  # (3,)
        middle: float,
        width: float,
    ) -> Street:
        """What rays from ``eye`` can meet that are within ``width`` radians of azimuth ``middle``.

        Most of a street is not ahead of a small sector, and to leave it out saves most of the work.
        """
        box = _ahead(self.center[:, :2] - eye[:2], self.half[:, :2].norm(dim=-1), middle, width)
        pole = _ahead(self.foot - eye[:2], self.radius, middle, width)
        return Street(
            *(t[box] for t in (self.center, self.half, self.yaw)),
            *(t[pole] for t in (self.foot, self.radius, self.height)),
        )

    def _cast_boxes(self, origin: Tensor, ray: Tensor) -> tuple[Tensor, Tensor]:
        """The slab test: a ray is in the box from its last entry to its first exit."""
        o, d = self._to_boxes(origin, self.center), self._to_boxes(ray)  # three of (N, Q) each
        entry, leave = [], []
        for k in range(3):
            middle, reach = -o[k] / d[k], self.half[:, k] / d[k].abs()
            entry.append(middle - reach)
            leave.append(middle + reach)
        first = torch.maximum(torch.maximum(entry[0], entry[1]), entry[2])
        last = torch.minimum(torch.minimum(leave[0], leave[1]), leave[2])
        distance, q = torch.where((first < last) & (first > 0), first, torch.inf).min(dim=1)
        # Only the box that is hit needs its face: the axis entered last, on the side of the ray.
        at = q.unsqueeze(1)
        axis = torch.cat([e.gather(1, at) for e in entry], dim=1).argmax(dim=1)  # (N,)
        side = -torch.cat([c.gather(1, at) for c in d], dim=1).sign()
        normal = torch.nn.functional.one_hot(axis, 3) * side
        return distance, _turn(normal, self.yaw[q])

    def _to_boxes(self, v: Tensor, center: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Components of ``v`` (N, 3) in the frame of every box, (N, Q) each."""
        x, y, z = (c.unsqueeze(1) for c in v.unbind(-1))
        if center is not None:
            x, y, z = x - center[:, 0], y - center[:, 1], z - center[:, 2]
        cos, sin = self.yaw.cos(), self.yaw.sin()
        return cos * x + sin * y, cos * y - sin * x, z.expand(-1, len(cos))

    def _cast_poles(self, origin: Tensor, ray: Tensor) -> tuple[Tensor, Tensor]:
        """The nearer root of |o + t d - foot| = radius in plan, if it is below the top."""
        d = ray[:, None, :2]  # (N, 1, 2)
        o = origin[:, None, :2] - self.foot  # (N, P, 2)
        a, b = d.square().sum(-1), (o * d).sum(-1)
        # b^2 - a |o|^2 is -(o x d)^2, which does not cancel for a thin pole far away.
        cross = o[..., 0] * d[..., 1] - o[..., 1] * d[..., 0]
        root = a * self.radius.square() - cross.square()  # (N, P)
        t = (-b - root.clamp_min(0).sqrt()) / a
        z = origin[:, 2:] + t * ray[:, 2:]
        hit = (root > 0) & (t > 0) & (z > 0) & (z < self.height)
        distance, p = torch.where(hit, t, torch.inf).min(dim=1)
        near = torch.where(distance.isfinite(), distance, 0.0).unsqueeze(1)
        normal = (origin + near * ray)[:, :2] - self.foot[p]
        return distance, torch.nn.functional.pad(normal / self.radius[p].unsqueeze(1), (0, 1))


def _ahead(to: Tensor, radius: Tensor, middle: float, width: float) -> Tensor:
    """Which circles, ``to`` (N, 2) away and of ``radius`` (N,), reach into a sector.

    Always at least one, for a minimum over none is an error.
    """
    distance: Tensor = torch.linalg.vector_norm(to, dim=-1)
    spread = (radius / distance).clamp_max(1).asin()  # half the angle that a circle fills
    off = (torch.atan2(to[:, 1], to[:, 0]) - middle + torch.pi) % (2 * torch.pi) - torch.pi
    keep = (off.abs() <= width + spread) | (distance <= radius)
    keep[0] |= ~keep.any()
    return keep


def _turn(v: Tensor, yaw: Tensor) -> Tensor:
    """``v`` (N, 3) turned about the vertical by ``yaw`` (N,)."""
    x, y, z = v.unbind(-1)
    cos, sin = yaw.cos(), yaw.sin()
    return torch.stack((cos * x - sin * y, sin * x + cos * y, z), dim=-1)


@lru_cache(maxsize=8)
def make_street(scene: int) -> Street:
    """The street number ``scene``: every number is another one, and always the same."""
    g = torch.Generator().manual_seed(scene)
    boxes = torch.cat((_houses(g, 1), _houses(g, -1), _cars(g, 1), _cars(g, -1), _walls()))
    foot, radius, height = _poles(g)
    x, y, z, hx, hy, hz, yaw = boxes.unbind(-1)
    center, half = torch.stack((x, y, z), -1), torch.stack((hx, hy, hz), -1)
    return Street(center, half, yaw, foot, radius, height)


def _houses(g: torch.Generator, side: int) -> Tensor:  # (8, 7): center, half, yaw
    """A row of houses, each with its own width, depth, height and distance from the road."""
    u = uniform(g, 8, 4)
    x = torch.linspace(-42, 42, 8, dtype=torch.float64)
    width, depth, height = 4 + 1.7 * u[:, 0], 4 + 2 * u[:, 1], 2.5 + 4 * u[:, 2]
    y = side * (13 + 2 * u[:, 3] + depth)
    return torch.stack((x, y, height, width, depth, height, torch.zeros_like(x)), dim=-1)


def _cars(g: torch.Generator, side: int) -> Tensor:  # (10, 7): center, half, yaw
    """Parked cars, a body and a cabin each, in five of eight places along the kerb."""
    place = torch.randperm(8, generator=g)[:5]
    u = uniform(g, 5, 3)
    x, y = (place - 3.5) * 10 + 2 * u[:, 0] - 1, side * (4.6 + 0.4 * u[:, 1])
    yaw = 0.12 * (u[:, 2] - 0.5)
    one = torch.ones_like(x)
    body = torch.stack((x, y, 0.65 * one, 2.2 * one, 0.9 * one, 0.4 * one, yaw), dim=-1)
    cabin = torch.stack((x - 0.2, y, 1.25 * one, 1.1 * one, 0.8 * one, 0.22 * one, yaw), dim=-1)
    return torch.cat((body, cabin))


def _walls() -> Tensor:  # (4, 7): center, half, yaw
    """Low walls across both ends of the street, open where the road is."""
    ends = [(x, y) for x in (-46.0, 46.0) for y in (-9.0, 9.0)]
    return torch.tensor([[x, y, 1.25, 0.15, 4.5, 1.25, 0.0] for x, y in ends], dtype=torch.float64)


def _poles(g: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:  # (20, 2), (20,), (20,)
    """Lamp posts at even distances on both sides, and a few trunks behind them."""
    lamps = [(12.0 * k + 5 * (side > 0) - 24, 7.0 * side) for k in range(6) for side in (-1, 1)]
    u = uniform(g, 8, 3)
    trunks = torch.stack((90 * u[:, 0] - 45, (9 + 2 * u[:, 1]) * (2 * (u[:, 2] > 0.5) - 1)), -1)
    foot = torch.cat((torch.tensor(lamps, dtype=torch.float64), trunks))
    radius = torch.tensor([0.1] * 12 + [0.3] * 8, dtype=torch.float64)
    return foot, radius, torch.tensor([6.0] * 12 + [4.0] * 8, dtype=torch.float64)
