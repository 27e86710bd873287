"""Simulated LiDAR: a spinning sensor in a street or a room, and one that flies over the street."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from veckm.data.sampling import Seed, Shape, finish, gaussian, make_generator, uniform
from veckm.data.street import Street, make_room, make_street
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
    elevation: tuple[float, float] = ELEVATION,
    varied: bool = False,
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
        beams: number of beams, at even elevations.
        noise: sigma, the standard deviation of the range in meters.
        meters: keep meters; otherwise the range of the sensor, 50 m, becomes 1.
        bias: the standard deviation of the range from beam to beam, in meters: rings of real
            sensors are off by as much as their points are noisy.
        mixed: share of returns that are between two neighboring ones; their normal is zero.
        room: inside of a room with furniture instead of the street.
        elevation: of the lowest and the highest beam, in degrees.
        varied: a street with trees and hedges, bays, curbs, and houses farther away; points on
            leaves have the normal zero.

    Shapes:
        - pos, normal: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n, "n")
    check_count(beams, "beams")
    street = make_room(scene) if room else make_street(scene, varied)
    fan = torch.linspace(*elevation, beams, dtype=torch.float64).deg2rad()
    offset = bias * gaussian(generator, beams) if bias else None
    trial = 2 * torch.pi / 90 * torch.arange(90)
    distance, _ = street.cast(*_rays(0.0, trial, fan), make_generator(0))
    hits = max(float((distance < RANGE).float().mean()), 1e-3)  # share of the beams that return
    while True:
        steps = math.ceil(1.02 * n / (hits * beams))
        pos, normal = _drive(street, fan, steps, noise, generator, offset, mixed)
        if len(pos) >= n:
            break
        hits *= 0.9  # the drive met more sky than the trial did
    # Lost returns are scattered over a real scan too; the rest stay in the order of time.
    keep = torch.randperm(len(pos), generator=generator)[:n].sort().values
    return finish(pos[keep] / (1.0 if meters else RANGE), normal[keep])


def airborne(
    n: int, seed: Seed = 0, scene: int = 0, noise: float = 0.03, varied: bool = False
) -> Shape:
    """n points of the street in meters, from above: lines across it, dense along them.

    Args:
        n: number of points.
        seed: an int or a torch.Generator; decides the lines and the noise, not the street.
        scene: which street.
        noise: the standard deviation of the range in meters.
        varied: as in :func:`lidar`.
    """
    generator, n = make_generator(seed), check_count(n, "n")
    lines = max(2, round(math.sqrt(n / 2 / (1 + 3 * float(uniform(generator))))))
    x = torch.linspace(-45, 45, lines, dtype=torch.float64)
    y = torch.linspace(-25, 25, math.ceil(n / lines), dtype=torch.float64)
    to = torch.nn.functional.pad(torch.cartesian_prod(x, y)[:n], (0, 1))
    to[:, 0] += to[:, 1] * float(uniform(generator) - 0.5) / 10  # the flight goes on meanwhile
    origin = to.new_tensor([0.0, 0.0, FLIGHT])
    rays = torch.nn.functional.normalize(to - origin, dim=1)
    street = make_street(scene, varied)
    parts = [street.cast(origin, some, generator) for some in rays.split(1024)]
    distance, normal = (torch.cat(p) for p in zip(*parts, strict=True))
    measured = distance + noise * gaussian(generator, n)
    return finish(origin + measured[:, None] * rays, normal)


def _drive(
    street: Street,
    fan: Tensor,  # (beams,)
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
            origin, ray = _rays(x, sector, fan)
            distance, normal = street.cast(origin, ray, generator)
            if mixed:
                share, other = uniform(generator, len(ray)), distance.roll(-len(fan))
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


def _rays(x: float, azimuth: Tensor, fan: Tensor) -> tuple[Tensor, Tensor]:  # (3,), (N, 3)
    """Origin and unit directions with the sensor at ``x``, all beams of an azimuth together.

    ``fan`` are the elevations of the beams in radians.
    """
    a, e = torch.cartesian_prod(azimuth.double(), fan).unbind(-1)
    ray = torch.stack((a.cos() * e.cos(), a.sin() * e.cos(), e.sin()), dim=-1)
    return ray.new_tensor([x, 0.0, HEIGHT]), ray
