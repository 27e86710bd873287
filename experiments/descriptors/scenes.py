"""Simulated scans of rooms and streets in pairs, for training: nothing of them is real."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from benchmarks.register_parts.pairs import Pair
from torch import Tensor

from veckm.data.lidar import HEIGHT
from veckm.data.sampling import gaussian, rotation, uniform
from veckm.data.street import Street, make_street

#: Half of a room in meters, pieces of furniture, and things on poles.
_ROOM, _BOXES, _POLES = (1.8, 3.5), (10, 28), 8
#: Cameras of a fragment, rays of each, field of view in radians, noise per squared meter.
_CAMERAS, _RAYS, _VIEW, _NOISE = 5, 12_000, (1.0, 0.8), 0.003
#: Revolutions of a spinning scanner: azimuths, beams, noise and reach in meters.
_AZIMUTHS, _BEAMS, _RANGE_NOISE, _REACH = 1200, 64, 0.02, 50.0
#: Rays that are cast at a time.
_CHUNK = 2048


def rooms(count: int, seed: int) -> Iterator[Pair]:
    """Two fragments of each room: what a depth camera sees from several places of a short walk."""
    for k in range(count):
        g = torch.Generator().manual_seed(seed * 10_000 + k)
        room, half = _room(g)
        where, yaw = _outlook(room, half, g)
        clouds = []
        for turn in (-0.2, 0.2 + 0.5 * float(uniform(g, 1))):
            place = where + 0.4 * (2 * uniform(g, 2) - 1)
            clouds.append(_fragment(room, place, yaw + turn, g))
        yield _pair(f"room {seed}.{k}", clouds, g)


def streets(count: int, seed: int) -> Iterator[Pair]:
    """Two revolutions of a scanner that drove on between them."""
    for k in range(count):
        g = torch.Generator().manual_seed(seed * 10_000 + k)
        street = make_street(seed * 1000 + k)
        start, step = -10 + 15 * float(uniform(g, 1)), 2 + 8 * float(uniform(g, 1))
        clouds = [_revolution(street, x, g) for x in (start, start + step)]
        yield _pair(f"street {seed}.{k}", clouds, g)


def _pair(name: str, clouds: list[Tensor], g: torch.Generator) -> Pair:
    """The first cloud turned at random."""
    T = np.eye(4)
    T[:3, :3] = rotation(g).numpy()
    source, target = (cloud.numpy() for cloud in clouds)
    return Pair(name, name.split()[0], source @ T[:3, :3].T, target, np.linalg.inv(T))


def _room(g: torch.Generator) -> tuple[Street, Tensor]:
    """Walls, a ceiling, boxes of furniture on the floor, on top of each other and on the walls."""
    low, high = _ROOM
    half = low + (high - low) * uniform(g, 2)
    tall = 2.4 + 0.6 * float(uniform(g, 1))
    x, y = half.tolist()
    walls = [(0, s * (y + 0.1), tall / 2, x + 0.2, 0.1, tall / 2, 0, 0) for s in (-1, 1)] + [
        (s * (x + 0.1), 0, tall / 2, 0.1, y + 0.2, tall / 2, 0, 0) for s in (-1, 1)
    ]
    walls.append((0, 0, tall + 0.1, x + 0.2, y + 0.2, 0.1, 0, 0))
    boxes = [torch.tensor(walls, dtype=torch.float64)]
    least, most = _BOXES
    tops: list[Tensor] = []
    for _ in range(least + int((most - least) * float(uniform(g, 1)))):
        boxes.append(_furniture(g, half, tops)[None])
    poles = []
    for _ in range(_POLES):
        at = (2 * uniform(g, 2) - 1) * half * 0.95
        poles.append(
            [*at.tolist(), 0.02 + 0.2 * float(uniform(g, 1)) ** 2, 0.3 + 1.2 * float(uniform(g, 1))]
        )
    return Street(torch.cat(boxes), torch.tensor(poles, dtype=torch.float64)), half


def _furniture(g: torch.Generator, half: Tensor, tops: list[Tensor]) -> Tensor:  # (8,)
    """A box on the floor at a wall or free, on another box, or hanging on a wall."""
    kind = float(uniform(g, 1))
    size = 0.08 + 0.5 * uniform(g, 3) ** 1.5
    yaw = float(uniform(g, 1)) * 3.14 if float(uniform(g, 1)) < 0.4 else 0.0
    at = (2 * uniform(g, 2) - 1) * (half - 0.3)
    if kind < 0.35 or (kind >= 0.75 and not tops):  # at a wall
        side = int(2 * float(uniform(g, 1)))
        at[side] = (half[side] - size[side]) * (1 if float(uniform(g, 1)) < 0.5 else -1)
        yaw, z = 0.0, float(size[2])
    elif kind < 0.6:
        z = float(size[2])
    elif kind < 0.75:
        side = int(2 * float(uniform(g, 1)))
        size[side] = 0.05 + 0.1 * float(uniform(g, 1))
        at[side] = (half[side] - size[side]) * (1 if float(uniform(g, 1)) < 0.5 else -1)
        yaw, z = 0.0, 1.0 + float(uniform(g, 1))
    else:
        below = tops[int(len(tops) * float(uniform(g, 1)))]
        size = 0.3 * size + 0.03
        at = below[:2] + (2 * uniform(g, 2) - 1) * (below[3:5] - 0.02)
        z = float(below[2] + below[5] + size[2])
    box = torch.tensor([*at.tolist(), z, *size.tolist(), yaw, 0.0], dtype=torch.float64)
    if kind < 0.6:
        tops.append(box)
    return box


def _outlook(room: Street, half: Tensor, g: torch.Generator) -> tuple[Tensor, float]:
    """Of some places and directions the one that sees farthest."""
    best, far = (torch.zeros(2, dtype=torch.float64), 0.0), 0.0
    for _ in range(8):
        where = (2 * uniform(g, 2) - 1) * half * 0.8
        yaw = float(2 * torch.pi * uniform(g, 1))
        a = yaw + torch.linspace(-0.5, 0.5, 9, dtype=torch.float64)
        ray = torch.stack([a.cos(), a.sin(), -0.3 + 0 * a], 1)
        ray = ray / ray.norm(dim=1, keepdim=True)
        at = torch.cat([where, torch.full((1,), 1.4, dtype=torch.float64)])
        depth = float(_cast(room, at, ray).clamp_max(4).min())
        if depth > far:
            best, far = (where, yaw), depth
    return best


def _fragment(room: Street, place: Tensor, yaw: float, g: torch.Generator) -> Tensor:  # (N, 3)
    parts = []
    for _ in range(_CAMERAS):
        at = torch.cat([place + 0.2 * gaussian(g, 2), 1.2 + 0.5 * uniform(g, 1)])
        look = yaw + 0.4 * float(gaussian(g, 1))
        dip = -0.35 + 0.2 * float(gaussian(g, 1))
        a, e = (w * (uniform(g, _RAYS) - 0.5) for w in _VIEW)
        ray = torch.stack([torch.ones_like(a), a.tan(), e.tan()], 1)
        ray = ray / ray.norm(dim=1, keepdim=True)
        c, s, cd, sd = np.cos(look), np.sin(look), np.cos(dip), np.sin(dip)
        turn = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)
        tilt = torch.tensor([[cd, 0, -sd], [0, 1, 0], [sd, 0, cd]], dtype=torch.float64)
        ray = ray @ (turn @ tilt).T
        distance = _cast(room, at, ray)
        hit = distance < 4
        d = distance[hit]
        d = d + _NOISE * d**2 * gaussian(g, len(d))
        parts.append(at + d[:, None] * ray[hit])
    return torch.cat(parts)


def _revolution(street: Street, x: float, g: torch.Generator) -> Tensor:  # (N, 3)
    azimuth = (torch.arange(_AZIMUTHS) + uniform(g, 1)) * (2 * torch.pi / _AZIMUTHS)
    elevation = torch.linspace(-0.43, 0.1, _BEAMS, dtype=torch.float64)
    a, e = torch.cartesian_prod(azimuth.double(), elevation).unbind(-1)
    ray = torch.stack((a.cos() * e.cos(), a.sin() * e.cos(), e.sin()), -1)
    origin = torch.tensor([x, float(gaussian(g, 1)), HEIGHT], dtype=torch.float64)
    distance = _cast(street, origin, ray)
    hit = distance < _REACH
    measured = distance[hit] + _RANGE_NOISE * gaussian(g, int(hit.sum()))
    return origin + measured[:, None] * ray[hit]


def _cast(street: Street, origin: Tensor, ray: Tensor) -> Tensor:  # (N,)
    return torch.cat([street.cast(origin, part)[0] for part in ray.split(_CHUNK)])
