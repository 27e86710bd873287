"""A spinning multi-beam LiDAR in a street."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from veckm.data.sampling import (
    Seed,
    Shape,
    check_count,
    check_positive,
    finish,
    gaussian,
    make_generator,
    uniform,
)
from veckm.data.street import Street, make_street

RANGE = 50.0  # meters, beyond which nothing comes back; the unit of the result without meters
HEIGHT = 1.9  # meters, of the sensor above the ground
ELEVATION = (-25.0, 10.0)  # degrees, of the lowest and the highest beam

_TURN = 2048  # directions in one turn of a real sensor: more points take more turns
_LEAST = 360  # directions cast even for a few points, so that they come from all around
_SECTOR = 128  # directions at a time: few objects are ahead of so narrow a sector


def lidar(
    n: int,
    seed: Seed = 0,
    scene: int = 0,
    beams: int = 64,
    noise: float = 0.02,
    meters: bool = False,
) -> Shape:
    r"""n points of a street as a spinning sensor sees it: rings, shadows, fewer points far away.

    .. math:: x = o + (t + \sigma \xi) d, \qquad
              t = \min \{t : o + t d \in \text{ground, box or pole}\}

    One turn holds about 100,000 points; more are taken from several turns while the sensor moves
    down the street, about a meter a turn and 20 meters at most. The ground is z = 0 and the
    middle of the drive the origin.

    Args:
        n: number of points.
        seed: an int or a torch.Generator; decides the turns and the noise, not the street.
        scene: which street.
        beams: number of beams, at even elevations from -25 to 10 degrees.
        noise: sigma, the standard deviation of the range in meters.
        meters: keep meters; otherwise the range of the sensor, 50 m, becomes 1.

    Shapes:
        - pos, normal: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n)
    check_positive("beams", beams)
    street = make_street(scene)
    hits = _hit_rate(street, beams)
    while True:
        pos, normal = _drive(street, beams, math.ceil(1.02 * n / (hits * beams)), noise, generator)
        if len(pos) >= n:
            break
        hits *= 0.9  # the turns met more sky than the trial did
    # Lost returns are scattered over a real scan too; the rest stay in the order of time.
    keep = torch.randperm(len(pos), generator=generator, device=generator.device)[:n].sort().values
    return finish(pos[keep] / (1.0 if meters else RANGE), normal[keep])


def _hit_rate(street: Street, beams: int) -> float:
    """Share of the beams that come back, from a coarse turn without noise."""
    origin, ray = _rays(0.0, 2 * torch.pi / 90 * torch.arange(90), beams)
    distance, _ = street.cast(origin, ray)
    return max(float((distance < RANGE).float().mean()), 1e-3)


def _drive(
    street: Street, beams: int, steps: int, noise: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:  # (H, 3), (H, 3)
    """The returns of ``steps`` directions, in as many turns as they take."""
    turns = math.ceil(steps / _TURN)
    steps = max(math.ceil(steps / turns), _LEAST)
    length = min(turns - 1.0, 20.0)
    found: list[tuple[Tensor, Tensor]] = []
    for turn in range(turns):
        x = length * (turn / max(turns - 1, 1) - 0.5)
        azimuth = (torch.arange(steps) + uniform(generator, 1).cpu()) * (2 * torch.pi / steps)
        for sector in azimuth.split(_SECTOR):
            origin, ray = _rays(x, sector, beams)
            found.append(_returns(street, origin, ray, sector, noise, generator))
    pos, normal = (torch.cat(parts).to(generator.device) for parts in zip(*found, strict=True))
    return pos, normal


def _returns(
    street: Street,
    origin: Tensor,  # (N, 3), all the same
    ray: Tensor,  # (N, 3)
    sector: Tensor,  # (S,), the azimuths of the rays, ascending
    noise: float,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:  # (H, 3), (H, 3)
    """Noisy points and exact normals of the rays that meet something within range."""
    first, last = float(sector[0]), float(sector[-1])
    ahead = street.within(origin[0], (first + last) / 2, (last - first) / 2)
    distance, normal = ahead.cast(origin, ray)
    hit = distance < RANGE
    error = noise * gaussian(generator, int(hit.sum())).cpu()
    reach = (distance[hit] + error).unsqueeze(-1)
    return origin[hit] + reach * ray[hit], normal[hit]


def _rays(
    x: float,
    azimuth: Tensor,  # (S,)
    beams: int,
) -> tuple[Tensor, Tensor]:  # (S * beams, 3) each
    """Origins and unit directions with the sensor at ``x``, all beams of an azimuth together."""
    low, high = (math.radians(e) for e in ELEVATION)
    elevation = torch.linspace(low, high, beams, dtype=torch.float64)
    a, e = torch.cartesian_prod(azimuth.double(), elevation).unbind(-1)
    ray = torch.stack((a.cos() * e.cos(), a.sin() * e.cos(), e.sin()), dim=-1)
    return ray.new_tensor([x, 0.0, HEIGHT]).expand_as(ray), ray
