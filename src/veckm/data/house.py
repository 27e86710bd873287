"""A house with a garden as a scanner on a tripod sees it from a few places."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from veckm.data.lidar import HEIGHT
from veckm.data.sampling import Seed, Shape, finish, gaussian, make_generator, uniform
from veckm.data.street import Street
from veckm.inputs import check_count

RANGE = 13.5  # meters from the middle of the house to the farthest point; the unit without meters

_LENGTH, _WIDTH, _EAVES = 4.5, 3.5, 3.0  # half, half and whole, meters
_WALL, _SLAB = 0.2, 0.15  # thickness
#: Places of the tripod in the order in which they are taken, at different distances.
_STATIONS = ((-6.0, -9.5), (10.5, -8.0), (3.0, 12.0), (-12.0, 4.5))
_KEPT = 9.5  # meters along x and y from the middle of the house
_FIELD = (-25.0, 48.0)  # degrees of elevation; 120 degrees of azimuth about the house
_CHUNK = 2048  # rays at a time, so that intermediate results stay in the cache


def house(
    n: int, seed: Seed = 0, views: int = 3, noise: float = 0.02, meters: bool = False
) -> Shape:
    r"""n points of a house, a car and a fence, as scanned from a few places and merged.

    .. math:: x = o_v + (t + \sigma \xi) d, \qquad
              t = \min \{t : o_v + t d \in \text{ground, box or pole}\}

    The rays d of a station v are even in angle, so that surfaces far away and surfaces seen at a
    slant are sparse. Walls have windows set back, the roof is tilted, everything has sharp edges.
    The normals are those of the surface without noise. The sample that the CLI starts with.

    Args:
        n: number of points, split evenly over the stations.
        seed: an int or a torch.Generator; decides the rays and the noise, not the house.
        views: number of stations, at most four.
        noise: sigma, the standard deviation of the range in meters.
        meters: keep meters; otherwise 13.5 m become 1.

    Shapes:
        - pos, normal: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n, "n")
    if check_count(views, "views") > len(_STATIONS):
        raise ValueError(f"views must be at most {len(_STATIONS)}, got {views}")
    parts = [
        _station(place, n // views + (k < n % views), noise, generator)
        for k, place in enumerate(_STATIONS[: min(views, n)])
    ]
    pos, normal = (torch.cat(part) for part in zip(*parts, strict=True))
    return finish(pos / (1.0 if meters else RANGE), normal)


def _station(
    place: tuple[float, float], count: int, noise: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:  # (count, 3), (count, 3)
    """What one station sees; rays that return are left out at random until they are ``count``."""
    origin = torch.tensor([*place, HEIGHT], dtype=torch.float64)
    step = 0.05  # radians; its rays show how many return
    while True:
        ray = _rays(origin, step, generator)
        found = [make_house().cast(origin, part) for part in ray.split(_CHUNK)]
        distance, normal = (torch.cat(part) for part in zip(*found, strict=True))
        pos = origin + distance.unsqueeze(-1) * ray
        hit = (pos[:, :2].abs() < _KEPT).all(-1).nonzero().squeeze(-1)
        if len(hit) >= count:
            break
        step *= min(0.98 * math.sqrt(max(len(hit), 1) / count), 0.98)
    keep = hit[torch.randperm(len(hit), generator=generator)[:count].sort().values]
    return pos[keep] + noise * gaussian(generator, count, 1) * ray[keep], normal[keep]


def _rays(origin: Tensor, step: float, generator: torch.Generator) -> Tensor:  # (N, 3) unit
    """Directions a step apart towards the house, all elevations of an azimuth together."""
    low, high = (math.radians(e) for e in _FIELD)
    middle = math.atan2(-float(origin[1]), -float(origin[0]))
    start = step * uniform(generator, 2)
    azimuth = middle + torch.arange(-math.pi / 3, math.pi / 3, step, dtype=torch.float64) + start[0]
    elevation = torch.arange(low, high, step, dtype=torch.float64) + start[1]
    a, e = torch.cartesian_prod(azimuth, elevation).unbind(-1)
    return torch.stack((a.cos() * e.cos(), a.sin() * e.cos(), e.sin()), dim=-1)


@lru_cache(maxsize=1)
def make_house() -> Street:
    """The house, in meters, its middle at the origin and the ridge along x."""
    panes = [(0.0, 0.0, _EAVES / 2, _LENGTH - _WALL, _WIDTH - _WALL, _EAVES / 2, 0.0, 0.0)]
    boxes = [*panes, *_roof(), *_walls(), *_porch(), *_garden()]
    posts = [(-9.2 + 1.5 * k, -6.5, 0.07, 1.1) for k in range(6)]
    columns = [(x, -_WIDTH - 1.5, 0.12, 2.75) for x in (-1.1, 1.1)]
    f64 = torch.float64
    return Street(torch.tensor(boxes, dtype=f64), torch.tensor([*posts, *columns], dtype=f64))


def _roof() -> list[tuple[float, ...]]:
    """The attic, a beam on its edge whose upper half is the gables; two slabs, and a chimney."""
    ridge, tilt, c = _EAVES + _WIDTH, math.pi / 4, math.sqrt(0.5)
    half = (_WIDTH / c + 0.5) / 2  # from the ridge down to beyond the wall
    y, z = half * c + _SLAB / 2 * c, ridge - half * c + _SLAB / 2 * c
    slabs = [(0.0, s * y, z, _LENGTH + 0.4, half, _SLAB / 2, 0.0, -s * tilt) for s in (-1, 1)]
    attic = (0.0, 0.0, _EAVES, _LENGTH, _WIDTH * c, _WIDTH * c, 0.0, tilt)
    return [attic, *slabs, (2.2, -1.2, ridge - 0.4, 0.4, 0.3, 1.2, 0.0, 0.0)]


def _walls() -> list[tuple[float, ...]]:
    """Four walls with openings, and a cross in every window."""
    windows = [(-2.9, 0.7, 0.9, 2.3), (2.9, 0.7, 0.9, 2.3)]  # middle, half the width, from, to
    front = [windows[0], (0.0, 0.55, 0.45, 2.5), windows[1]]
    back = [windows[0], (0.0, 0.7, 0.9, 2.3), windows[1]]
    sides = [(-1.6, 0.6, 0.9, 2.3), (1.6, 0.6, 0.9, 2.3)]
    out: list[tuple[float, ...]] = []
    for openings, half, away, yaw in (
        (front, _LENGTH, _WIDTH, 0.0),
        (back, _LENGTH, _WIDTH, math.pi),
        (sides, _WIDTH, _LENGTH, math.pi / 2),
        (sides, _WIDTH, _LENGTH, -math.pi / 2),
    ):
        for x, z, w, h, depth in _pieces(openings, half):
            y = -away + _WALL - depth / 2
            at = (x * math.cos(yaw) - y * math.sin(yaw), x * math.sin(yaw) + y * math.cos(yaw), z)
            out.append((*at, w, depth / 2, h, yaw, 0.0))
    return out


def _pieces(
    openings: list[tuple[float, float, float, float]], half: float
) -> list[tuple[float, ...]]:
    """Middle, half the size and depth of what is around the openings, and of the crosses."""
    out: list[tuple[float, ...]] = []
    ends = [-half, *(x + s * w for x, w, _, _ in openings for s in (-1, 1)), half]
    for left, right in zip(ends[::2], ends[1::2], strict=True):
        out.append(((left + right) / 2, _EAVES / 2, (right - left) / 2, _EAVES / 2, _WALL))
    for x, w, low, high in openings:
        out.append((x, low / 2, w, low / 2, _WALL))
        out.append((x, (high + _EAVES) / 2, w, (_EAVES - high) / 2, _WALL))
        if low > 0.5:
            middle, h = (low + high) / 2, (high - low) / 2
            out += [(x, middle, 0.06, h, _WALL / 2), (x, middle, w, 0.06, _WALL / 2)]
            out.append((x, low - 0.04, w + 0.1, 0.04, 2 * _WALL))  # the sill sticks out
    return out


def _porch() -> list[tuple[float, ...]]:
    """Three steps before the door, and a flat roof over them."""
    steps = [(0.0, -_WIDTH - 0.35 * (3 - k), 0.0, 1.3, 0.35 * (3 - k), 0.15 * (k + 1), 0.0, 0.0)
             for k in range(3)]  # fmt: skip
    return [*steps, (0.0, -_WIDTH - 0.85, 2.85, 1.4, 0.85, 0.1, 0.0, 0.0)]


def _garden() -> list[tuple[float, ...]]:
    """Rails between the posts of the fence, a hedge, and a car."""
    rails = [(-5.45, -6.5, z, 3.8, 0.03, 0.06, 0.0, 0.0) for z in (0.4, 0.9)]
    hedge = (8.2, 3.5, 0.6, 0.5, 5.0, 0.6, 0.0, 0.0)
    car = [
        (6.6, -5.2, 0.7, 2.2, 0.9, 0.42, 0.25, 0.0),
        (6.4, -5.25, 1.3, 1.1, 0.8, 0.25, 0.25, 0.0),
    ]
    return [*rails, hedge, *car]
