"""Training clouds of the normal network, with true normals.

They are sampled from meshes if given, from procedural surfaces, and by simulated scans of statues,
streets and rooms, and streets from the air. Number of points, noise, outliers and density of every
cloud depend on the seed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from veckm.data.lidar import airborne, lidar
from veckm.data.meshes import Mesh
from veckm.data.protocol import NOISE, SETS, add_noise, make_cloud
from veckm.data.random_solids import random_surface
from veckm.data.sampling import Surface, uniform
from veckm.data.statue import scan

T = TypeVar("T")

#: A third of the clouds have no noise, about half a level of the benchmark, the others any between;
#: small clouds, which the benchmark does not have, any.
_LEVELS = tuple(NOISE[name] for name in ("low", "med", "high"))
_CLEAN, _LEVEL = 0.35, 0.8
_LEAST, _MOST, _LARGE = 0.0004, 0.015, 50_000
#: So many clouds have outliers, up to this share of their points.
_DIRTY, _MOST_OUTLIERS = 0.15, 0.03
#: Share of the returns of a scanner that are from two surfaces at once.
_MIXED = 0.01
#: Beams of a spinning scanner, rings dense along and thin across, and their elevations.
_BEAMS = (16, 32, 64, 64, 128)
_ELEVATIONS = ((-25.0, 10.0), (-25.0, 2.0), (-16.0, 16.0), (-22.0, 22.0))
#: How far off its beams are at most, in parts of their noise.
_BIAS = 4.0


@dataclass(frozen=True)
class CloudCounts:
    """How many clouds of each kind."""

    per_mesh: int = 3  #: clouds of each mesh
    procedural: int = 50  #: clouds of procedural surfaces
    scans: int = 120  #: clouds of statues, streets and rooms as scanners see them
    seed: int = 0  #: of everything that is random
    #: Points of a cloud, one of these.
    sizes: tuple[int, ...] = (100_000, 100_000, 100_000, 50_000, 20_000, 8_000, 3_000)


def clouds(
    meshes: Mapping[str, Mesh], counts: CloudCounts
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:  # name, (N, 3), (N, 3), (N, 3)
    """All clouds of these counts: points, their normals, and those of the nearest clean points.

    The normals of points that have none, such as outliers, are zero.
    """
    for k, (name, source) in enumerate(_sources(meshes, counts)):
        yield name, *_cloud(source, *_drawn(counts, k))
    for k in range(counts.scans):
        pos, normal = _scan(k, *_drawn(counts, 500_000 + k))
        yield f"scan {k}", pos, normal, normal


def learned_from(meshes: Mapping[str, T]) -> dict[str, T]:
    """All meshes but every sixth, which only the expected error is calibrated on."""
    return {name: m for k, (name, m) in enumerate(meshes.items()) if k % 6 or len(meshes) == 1}


def fresh_clouds(
    meshes: Mapping[str, Mesh], counts: CloudCounts
) -> Iterator[tuple[Tensor, Tensor]]:  # (N, 3), (N, 3)
    """Clouds to calibrate on: each mesh in two of the six sets, procedural surfaces if there are
    none, and other scans. Shapes differ by more than what was trained on differs from the rest."""
    found: dict[str, Surface] = dict(meshes)
    if not meshes:
        found = {str(k): random_surface(1000 * counts.seed + 500 + k) for k in range(15)}
    for k, source in enumerate(found.values()):
        for name in tuple(SETS)[k % 3 :: 3]:
            made = make_cloud(source, name, 900_000 + k, counts.sizes[0], 1)
            yield made.pos, made.normal
    for k in range(counts.scans, counts.scans + counts.scans // 4):
        yield _scan(k, *_drawn(counts, 500_000 + k))


def _drawn(counts: CloudCounts, k: int) -> tuple[int, torch.Generator]:
    """The number of points of a cloud, and the generator of the rest of it."""
    generator = torch.Generator().manual_seed(1_000_003 * counts.seed + k)
    return counts.sizes[int(torch.randint(len(counts.sizes), (), generator=generator))], generator


def _sources(meshes: Mapping[str, Mesh], counts: CloudCounts) -> Iterator[tuple[str, Surface]]:
    for name, mesh in meshes.items():
        yield from [(name, mesh)] * counts.per_mesh
    for k in range(counts.procedural):
        yield f"procedural {k}", random_surface(1000 * counts.seed + k)


def _cloud(source: Surface, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    kind, level, which, between, dirty = uniform(generator, 5).tolist()
    uneven = kind > 0.75
    density = ("stripe" if kind > 0.875 else "gradient") if uneven else "none"
    made = make_cloud(source, density, generator, n, 1)
    if level < (_LEVEL if uneven else _CLEAN):
        noise = 0.0
    elif n >= _LARGE and (level < _LEVEL or uneven):
        noise = _LEVELS[int(3 * which)]
    else:
        noise = _LEAST * (_MOST / _LEAST) ** between
    pos, nearest = made.pos, made.normal
    if noise:
        pos = add_noise(made.pos, noise, generator)
        near = cKDTree(made.pos.double().numpy()).query(pos.double().numpy())[1]
        nearest = made.normal[torch.from_numpy(near)]
    if dirty > _DIRTY:
        return pos, made.normal, nearest
    count = 1 + int(_MOST_OUTLIERS * n * float(uniform(generator)))
    low, high = pos.amin(0), pos.amax(0)
    stray = low + uniform(generator, count, 3).float() * (high - low)
    none = torch.zeros(count, 3)
    return tuple(torch.cat(pair) for pair in ((pos, stray), (made.normal, none), (nearest, none)))  # type: ignore[return-value]


def _scan(k: int, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Of every six one statue from a few places, three streets and a room from inside, and a street
    from the air; number 0 of statues and streets is for demonstrations."""
    noise = 4.0 ** (2 * float(uniform(generator)) - 1)  # a quarter to four times the usual
    beams, which, off, plain = uniform(generator, 4).tolist()
    number, kind = k // 6 + 1, k % 6
    if kind == 0:
        shape = scan(n, generator, form=number, noise=0.002 * noise)
    elif kind == 5:
        shape = airborne(n, generator, number, 0.02 * noise, varied=plain > 0.3)
    else:
        sigma = 0.02 * noise
        shape = lidar(
            n,
            generator,
            4 * number + kind,
            _BEAMS[int(len(_BEAMS) * beams)],
            sigma,
            bias=_BIAS * sigma * off**2,
            mixed=_MIXED,
            room=kind == 4,
            elevation=_ELEVATIONS[int(len(_ELEVATIONS) * which)],
            varied=plain > 0.2,
        )
    return shape.pos, shape.normal
