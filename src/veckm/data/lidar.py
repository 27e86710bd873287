"""Simulated LiDAR: a spinning sensor in a street or a room, and one that flies over the street."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from veckm.data.sampling import Seed, Shape, finish, gaussian, make_generator, uniform
from veckm.inputs import check_count

RANGE = 50.0  # meters, beyond which nothing comes back; the unit of the result without meters
HEIGHT = 1.9  # meters, of the sensor above the ground
FLIGHT = 150.0  # meters, of the airborne sensor
ELEVATION = (-25.0, 10.0)  # degrees, of the lowest and the highest beam

_REVOLUTION = 2048  # azimuths of one revolution of a real sensor: more points take more of them
_LEAST = 360  # azimuths cast even for a few points, so that they come from all around
_SECTOR = 16  # azimuths at a time, so that intermediate results stay in the cache


def lidar(
    n: int,
    seed: Seed = 0,
    scene: int = 0,
    beams: int = 64,
    noise: float = 0.02,
    meters: bool = False,
    bias: float = 0.0,
    mixed: float = 0.0,
    room: bool = False,
) -> Shape:
    r"""n points of a street as a spinning sensor sees it: rings, shadows, fewer points far away.

    .. math:: x = o + (t + \sigma \xi) d, \qquad
              t = \min \{t : o + t d \in \text{ground, box or pole}\}

    One revolution holds about 100,000 points; more are taken from several while the sensor moves
    down the street, about a meter each and 20 meters at most. The ground is z = 0 and the
    middle of the drive the origin.

    Args:
        n: number of points.
        seed: an int or a torch.Generator; decides the azimuths and the noise, not the street.
        scene: which street.
        beams: number of beams, at even elevations from -25 to 10 degrees.
        noise: sigma, the standard deviation of the range in meters.
        meters: keep meters; otherwise the range of the sensor, 50 m, becomes 1.
        bias: the standard deviation of the range from beam to beam, in meters: rings of real
            sensors are off by as much as their points are noisy.
        mixed: share of returns that are between two neighboring ones; their normal is zero.
        room: inside of a room with furniture instead of the street.

    Shapes:
        - pos, normal: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n, "n")
    check_count(beams, "beams")
    street = make_room(scene) if room else make_street(scene)
    offset = bias * gaussian(generator, beams) if bias else None
    distance, _ = street.cast(*_rays(0.0, 2 * torch.pi / 90 * torch.arange(90), beams))
    hits = max(float((distance < RANGE).float().mean()), 1e-3)  # share of the beams that return
    while True:
        steps = math.ceil(1.02 * n / (hits * beams))
        pos, normal = _drive(street, beams, steps, noise, generator, offset, mixed)
        if len(pos) >= n:
            break
        hits *= 0.9  # the drive met more sky than the trial did
    # Lost returns are scattered over a real scan too; the rest stay in the order of time.
    keep = torch.randperm(len(pos), generator=generator)[:n].sort().values
    return finish(pos[keep] / (1.0 if meters else RANGE), normal[keep])


def airborne(n: int, seed: Seed = 0, scene: int = 0, noise: float = 0.03) -> Shape:
    """n points of the street in meters, from above: lines across it, dense along them.

    Args:
        n: number of points.
        seed: an int or a torch.Generator; decides the lines and the noise, not the street.
        scene: which street.
        noise: the standard deviation of the range in meters.
    """
    generator, n = make_generator(seed), check_count(n, "n")
    lines = max(2, round(math.sqrt(n / 2 / (1 + 3 * float(uniform(generator))))))
    x = torch.linspace(-45, 45, lines, dtype=torch.float64)
    y = torch.linspace(-25, 25, math.ceil(n / lines), dtype=torch.float64)
    to = torch.nn.functional.pad(torch.cartesian_prod(x, y)[:n], (0, 1))
    to[:, 0] += to[:, 1] * float(uniform(generator) - 0.5) / 10  # the flight goes on meanwhile
    origin = to.new_tensor([0.0, 0.0, FLIGHT])
    rays = torch.nn.functional.normalize(to - origin, dim=1)
    parts = [make_street(scene).cast(origin, some) for some in rays.split(1024)]
    distance, normal = (torch.cat(p) for p in zip(*parts, strict=True))
    measured = distance + noise * gaussian(generator, n)
    return finish(origin + measured[:, None] * rays, normal)


def _drive(
    street: Street,
    beams: int,
    steps: int,
    noise: float,
    generator: torch.Generator,
    offset: Tensor | None,  # (beams,)
    mixed: float,
) -> tuple[Tensor, Tensor]:  # (H, 3), (H, 3)
    """Noisy points and exact normals of ``steps`` azimuths, in as many revolutions as they take."""
    revolutions = math.ceil(steps / _REVOLUTION)
    steps = max(math.ceil(steps / revolutions), _LEAST)
    length = min(revolutions - 1.0, 20.0)
    found: list[tuple[Tensor, Tensor]] = []
    for k in range(revolutions):
        x = length * (k / max(revolutions - 1, 1) - 0.5)
        azimuth = (torch.arange(steps) + uniform(generator, 1)) * (2 * torch.pi / steps)
        for sector in azimuth.split(_SECTOR):
            origin, ray = _rays(x, sector, beams)
            distance, normal = street.cast(origin, ray)
            if mixed:
                share, other = uniform(generator, len(ray)), distance.roll(-beams)
                between = (share < mixed) & (other < RANGE)
                distance = torch.where(between, distance.lerp(other, share / mixed), distance)
                normal = normal * ~between[:, None]
            if offset is not None:
                distance = distance + offset.repeat(len(sector))
            hit = distance < RANGE
            measured = distance[hit] + noise * gaussian(generator, int(hit.sum()))
            found.append((origin + measured.unsqueeze(-1) * ray[hit], normal[hit]))
    pos, normal = (torch.cat(parts) for parts in zip(*found, strict=True))
    return pos, normal


def _rays(x: float, azimuth: Tensor, beams: int) -> tuple[Tensor, Tensor]:  # (3,), (N, 3)
    """Origin and unit directions with the sensor at ``x``, all beams of an azimuth together."""
    low, high = (math.radians(e) for e in ELEVATION)
    elevation = torch.linspace(low, high, beams, dtype=torch.float64)
    a, e = torch.cartesian_prod(azimuth.double(), elevation).unbind(-1)
    ray = torch.stack((a.cos() * e.cos(), a.sin() * e.cos(), e.sin()), dim=-1)
    return ray.new_tensor([x, 0.0, HEIGHT]), ray


@dataclass(frozen=True, eq=False)
class Street:
    """Boxes, upright poles and the ground z = 0, in meters; the road runs along x.

    Shapes (float64):
        - boxes: (Q, 8), the center, half the lengths, and in radians the rotation about z and the
          tilt about the long axis that it turned
        - poles: (P, 4), x and y of the foot, radius and height
    """

    boxes: Tensor
    poles: Tensor

    def cast(self, origin: Tensor, ray: Tensor) -> tuple[Tensor, Tensor]:  # (N,), (N, 3)
        """Distance to the first surface along each unit ray, inf for none, and its normal."""
        distance = -origin[2] / ray[:, 2]
        distance = torch.where(distance > 0, distance, torch.inf)
        normal = ray.new_tensor([0.0, 0.0, 1.0]).expand_as(ray)
        for found, its_normal in (self._cast_boxes(origin, ray), self._cast_poles(origin, ray)):
            normal = torch.where((found < distance).unsqueeze(-1), its_normal, normal)
            distance = torch.minimum(found, distance)
        return distance, normal

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
def make_street(scene: int) -> Street:
    """The street number ``scene``."""
    g = torch.Generator().manual_seed(scene)
    walls = [(x, y, 1.25, 0.15, 4.5, 1.25, 0.0) for x in (-46.0, 46.0) for y in (-9.0, 9.0)]
    parts = (
        _houses(g, 1),
        _houses(g, -1),
        _cars(g, 1),
        _cars(g, -1),
        torch.tensor(walls, dtype=torch.float64),
    )
    upright = torch.nn.functional.pad(torch.cat(parts), (0, 1))
    return Street(upright, _poles(g))


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


def _houses(g: torch.Generator, side: int) -> Tensor:  # (8, 7): center, half, yaw
    """A row of houses, each with its own width, depth, height and distance from the road."""
    u = uniform(g, 8, 4)
    x = torch.linspace(-42, 42, 8, dtype=torch.float64)
    width, depth, height = 4 + 1.7 * u[:, 0], 4 + 2 * u[:, 1], 2.5 + 4 * u[:, 2]
    return _rows(x, side * (13 + 2 * u[:, 3] + depth), height, width, depth, height, 0.0)


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
