"""What simulated LiDAR sees, a street or a room: boxes, poles, trees and the ground."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from veckm.data.sampling import uniform


@dataclass(frozen=True, eq=False)
class Street:
    """Boxes, upright poles, trees and the ground z = 0, in meters; the road runs along x.

    Shapes (float64):
        - boxes: (Q, 8), the center, half the lengths, and in radians the rotation about z and the
          tilt about the long axis that it turned
        - poles: (P, 4), x and y of the foot, radius and height
        - trees: (T, 7), the center of a crown, half its axes, and how far light goes in it
    """

    boxes: Tensor
    poles: Tensor
    trees: Tensor | None = None

    def cast(
        self, origin: Tensor, ray: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:  # (N,), (N, 3)
        """Distance to the first surface along each unit ray, inf for none, and its normal.

        The generator decides which leaves light meets; they have no normal.
        """
        distance = -origin[2] / ray[:, 2]
        distance = torch.where(distance > 0, distance, torch.inf)
        normal = ray.new_tensor([0.0, 0.0, 1.0]).expand_as(ray)
        for found, its_normal in (self._cast_boxes(origin, ray), self._cast_poles(origin, ray)):
            normal = torch.where((found < distance).unsqueeze(-1), its_normal, normal)
            distance = torch.minimum(found, distance)
        if self.trees is None:
            return distance, normal
        if generator is None:
            raise ValueError("a street with trees needs a generator: it decides the leaves")
        found = self._cast_leaves(origin, ray, generator)
        return torch.minimum(found, distance), normal * (found >= distance).unsqueeze(-1)

    def _cast_leaves(
        self, origin: Tensor, ray: Tensor, generator: torch.Generator
    ) -> Tensor:  # (N,)
        """Light goes an exponentially distributed way into a crown, an ellipsoid, or through it."""
        assert self.trees is not None
        center, half, path = self.trees.split((3, 3, 1), dim=1)
        o = (origin - center) / half  # (T, 3)
        d = ray.unsqueeze(1) / half  # (N, T, 3)
        a, b = d.square().sum(-1), (d * o).sum(-1)
        root = (b.square() - a * (o.square().sum(-1) - 1)).clamp_min(0).sqrt()
        way = path.T * -torch.log1p(-torch.rand(b.shape, dtype=b.dtype, generator=generator))
        t = ((-b - root) / a).clamp_min(0) + way
        return torch.where(t < (root - b) / a, t, torch.inf).amin(1)

    def _cast_boxes(self, origin: Tensor, ray: Tensor) -> tuple[Tensor, Tensor]:
        """The slab test: a ray is in the box from its last entry to its first exit."""
        center, half, yaw, tilt = self.boxes.split((3, 3, 1, 1), dim=1)
        cos, sin, up, out = (t[:, 0] for t in (yaw.cos(), yaw.sin(), tilt.cos(), tilt.sin()))
        axes = [(cos, sin, 0 * up), (-sin * up, cos * up, out), (sin * out, -cos * out, up)]
        frame = torch.stack([torch.stack(axis, -1) for axis in axes])  # (3, Q, 3), to the box
        o = (frame * (origin - center)).sum(-1)  # (3, Q)
        slowness = torch.stack([(ray @ axis.T).reciprocal_() for axis in frame])  # (3, N, Q)
        middle = slowness * -o.unsqueeze(1)
        reach = slowness.abs().mul_(half.T.unsqueeze(1))
        leave = (middle + reach).amin(0)
        entry = middle.sub_(reach)
        first = entry.amax(0)  # (N, Q)
        distance, q = torch.where((first < leave) & (first > 0), first, torch.inf).min(dim=1)
        # The face of the box that is hit: the axis entered last, on the side of the ray.
        at = q.expand(3, 1, -1).mT  # (3, N, 1)
        axis = entry.gather(2, at).argmax(0).squeeze(-1)  # (N,)
        side = -slowness[axis, torch.arange(len(ray)), q].sign()
        return distance, side.unsqueeze(-1) * frame[axis, q]

    def _cast_poles(self, origin: Tensor, ray: Tensor) -> tuple[Tensor, Tensor]:
        """The nearer root of |o + t d - foot| = radius in plan, if it is below the top."""
        foot, (radius, height) = self.poles[:, :2], self.poles[:, 2:].T
        d, o = ray[:, :2], origin[:2] - foot  # (N, 2), (P, 2)
        a, b = d.square().sum(-1, keepdim=True), d @ o.T  # (N, 1), (N, P)
        # b^2 - a |o|^2 is -(o x d)^2, which does not cancel for a thin pole far away.
        cross = d @ o.flip(1).mul(o.new_tensor([-1.0, 1.0])).T
        root = a * radius.square() - cross.square()  # (N, P)
        t = (-b - root.clamp_min(0).sqrt()) / a
        z = origin[2] + t * ray[:, 2:]
        hit = (root > 0) & (t > 0) & (z > 0) & (z < height)
        distance, p = torch.where(hit, t, torch.inf).min(dim=1)
        near = torch.where(distance.isfinite(), distance, 0.0).unsqueeze(1)
        normal = (origin + near * ray)[:, :2] - foot[p]
        return distance, torch.nn.functional.pad(normal / radius[p].unsqueeze(1), (0, 1))


@lru_cache(maxsize=8)
def make_street(scene: int, varied: bool = False) -> Street:
    """The street number ``scene``.

    A varied one has trees and hedges, curbs, bays in its facades, and houses up to three times as
    far from the road.
    """
    g = torch.Generator().manual_seed(scene)
    walls = [(x, y, 1.25, 0.15, 4.5, 1.25, 0.0) for x in (-46.0, 46.0) for y in (-9.0, 9.0)]
    far = 1 + 2 * float(uniform(g)) if varied else 1.0
    houses = _houses(g, 1, far), _houses(g, -1, far)
    parts = [*houses, _cars(g, 1), _cars(g, -1), torch.tensor(walls, dtype=torch.float64)]
    poles = _poles(g)
    if varied:
        curbs = [(0.0, side * (6 + 5 * far), 0.0, 60.0, 5 * far, 0.12, 0.0) for side in (-1, 1)]
        parts += [_bays(g, some) for some in houses]
        parts += [torch.tensor(curbs, dtype=torch.float64)]
    upright = torch.nn.functional.pad(torch.cat(parts), (0, 1))
    return Street(upright, poles, _trees(g, far) if varied else None)


@lru_cache(maxsize=8)
def make_room(scene: int) -> Street:
    """Four walls, a column, and boxes on the floor and along the walls."""
    g = torch.Generator().manual_seed(scene)
    half, u = 3 + 6 * uniform(g, 2), uniform(g, 12, 6)
    a, b = half.tolist()
    walls = [(s * a, 0, 2, 0.1, b, 2, 0) for s in (-1, 1)]
    walls += [(0, s * b, 2, a, 0.1, 2, 0) for s in (-1, 1)]
    size = 0.1 + u[:, :3] * u.new_tensor([0.8, 0.8, 0.9])
    x, y = ((2 * u[:, 3 + k] - 1) * (half[k] - 0.5) for k in (0, 1))
    boxes = _rows(x, y, size[:, 2], *size.T, 3 * u[:, 5])
    boxes = boxes[torch.linalg.vector_norm(boxes[:, :2], dim=1) > 1.5]  # not around the sensor
    every = torch.cat((torch.tensor(walls, dtype=torch.float64), boxes))
    return Street(torch.nn.functional.pad(every, (0, 1)), _rows(a / 2, b / 2, 0.25, 4.0)[None])


def _rows(*columns: Tensor | float) -> Tensor:
    """Columns side by side; a number is repeated in all rows."""
    tensors = [torch.as_tensor(column, dtype=torch.float64) for column in columns]
    return torch.stack(torch.broadcast_tensors(*tensors), dim=-1)


def _houses(g: torch.Generator, side: int, far: float) -> Tensor:  # (8, 7): center, half, yaw
    """A row of houses, each with its own width, depth, height and distance from the road."""
    u = uniform(g, 8, 4)
    x = torch.linspace(-42, 42, 8, dtype=torch.float64)
    width, depth, height = 4 + 1.7 * u[:, 0], 4 + 2 * u[:, 1], 2.5 + 4 * u[:, 2]
    return _rows(x, side * (13 * far + 2 * u[:, 3] + depth), height, width, depth, height, 0.0)


def _bays(g: torch.Generator, houses: Tensor) -> Tensor:  # (8, 7) -> (40, 7)
    """Five boxes on the front of each house: bays, balconies, sills."""
    x, y, z, width, depth, *_ = houses.repeat(5, 1).T
    u = uniform(g, len(x), 6).T
    front, out = y - y.sign() * depth, 0.03 + 0.4 * u[2].square()
    size = 0.2 + 0.8 * u[3], out, 0.2 + u[4]
    return _rows(x + width * (2 * u[0] - 1) * 0.9, front, 2 * z * u[1], *size, 0.0)


def _trees(g: torch.Generator, far: float) -> Tensor:  # (20, 7): center, half, path
    """Crowns above head height and hedges on the ground, on both sides of the road."""
    x, y, z, wide, tall, path, side, low = uniform(g, 20, 8).T
    hedge = low < 0.4
    half = torch.where(hedge, 0.4 + wide, 1 + 2 * wide)
    up = torch.where(hedge, 0.3 + 0.7 * tall, 1 + 2 * tall)
    above = torch.where(hedge, up, up + 1.5 + z)
    across = (7.5 + (13 * far - 8) * y) * (2 * (side > 0.5) - 1)
    return _rows(90 * x - 45, across, above, half, half, up, 0.1 + 0.9 * path)


def _cars(g: torch.Generator, side: int) -> Tensor:  # (10, 7): center, half, yaw
    """Parked cars, a body and a cabin each, in five of eight places along the curb."""
    place = torch.randperm(8, generator=g)[:5]
    u = uniform(g, 5, 3)
    x, y = (place - 3.5) * 10 + 2 * u[:, 0] - 1, side * (4.6 + 0.4 * u[:, 1])
    yaw = 0.12 * (u[:, 2] - 0.5)
    body, cabin = (x, y, 0.65, 2.2, 0.9, 0.4, yaw), (x - 0.2, y, 1.25, 1.1, 0.8, 0.22, yaw)
    return torch.cat((_rows(*body), _rows(*cabin)))


def _poles(g: torch.Generator) -> Tensor:  # (20, 4): foot, radius, height
    """Lamp posts at even distances on both sides, and a few trunks behind them."""
    lamps = [(12 * k + 5 * (s > 0) - 24, 7 * s, 0.1, 6.0) for k in range(6) for s in (-1, 1)]
    x, y, side = uniform(g, 8, 3).T
    trunks = _rows(90 * x - 45, (9 + 2 * y) * (2 * (side > 0.5) - 1), 0.3, 4.0)
    return torch.cat((torch.tensor(lamps, dtype=torch.float64), trunks))
