"""Partial views of shapes as a depth camera sees them, for pairs that are not in the test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.register_parts.pairs import Pair
from veckm.data.meshes import load_meshes
from veckm.data.random_solids import random_surface
from veckm.data.sampling import Shape, diagonal, rotation
from veckm.data.solids import Solid

Source = Callable[[int, torch.Generator], Shape]
#: Points that are drawn for the points of a view, and its pixels on the diagonal.
_DRAWN, _PIXELS = 8, 90
#: Points of a view, degrees between two views, noise as a share of the diagonal.
POINTS, APART, NOISE = 15_000, (20.0, 70.0), (0.0, 0.0025, 0.005)


def meshes(folder: Path) -> dict[str, Source]:
    """What draws points of each mesh of a folder."""
    return {name: mesh.sample for name, mesh in load_meshes(folder).items()}


def solids(count: int, seed: int = 0) -> dict[str, Source]:
    """The same of random solids of the package."""
    return {f"solid {k}": _solid(random_surface(seed + k)) for k in range(count)}


def _solid(solid: Solid) -> Source:
    return lambda n, generator: solid.sample(n, generator)


def view(
    shape: Shape,
    towards: np.ndarray,  # (3,) unit, to the camera
    noise: float,
    generator: np.random.Generator,
    points: int = POINTS,
) -> np.ndarray:  # (N, 3)
    """The points that a camera far away sees, noise added."""
    x, normal = shape.pos.double().numpy(), shape.normal.double().numpy()
    size = diagonal(shape.pos)
    side = np.linalg.svd(towards[None])[2][1:]
    cells = np.floor(x @ side.T * (_PIXELS / size)).astype(np.int64)
    pixel = (cells - cells.min(0)) @ [1, 10 * _PIXELS]
    depth = x @ towards
    front = np.full(int(pixel.max()) + 1, -np.inf)
    np.maximum.at(front, pixel, depth)
    seen = (depth > front[pixel] - 3 * size / _PIXELS) & (normal @ towards > 0.1)
    kept = generator.permutation(np.flatnonzero(seen))[:points]
    return x[kept] + noise * size * generator.standard_normal((len(kept), 3))


def pairs(sources: dict[str, Source], seed: int = 0, points: int = POINTS) -> Iterator[Pair]:
    """Two views of each shape at each noise, the first one turned at random."""
    for k, (name, source) in enumerate(sources.items()):
        generator = np.random.default_rng([seed, k])
        turn = torch.Generator().manual_seed(seed * 1000 + k)
        for level, noise in enumerate(NOISE):
            first, second = (source(_DRAWN * points, turn) for _ in range(2))
            a, b = _directions(generator)
            R = np.eye(4)
            R[:3, :3] = rotation(turn).numpy()
            source_view = view(first, a, noise, generator, points) @ R[:3, :3].T
            target_view = view(second, b, noise, generator, points)
            label = f"noise {level}"
            yield Pair(f"{name}, {label}", label, source_view, target_view, np.linalg.inv(R))


def _directions(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two unit vectors, as far apart as two views."""
    a = generator.standard_normal(3)
    b = np.cross(a, generator.standard_normal(3))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    angle = np.radians(generator.uniform(*APART))
    return a, np.cos(angle) * a + np.sin(angle) * b


def different(sources: dict[str, Source], seed: int = 0) -> Iterator[Pair]:
    """One view of each of two shapes, all pairs of shapes, scaled to one size."""
    made = {}
    for pair in pairs(sources, seed):
        name, _, level = pair.name.rpartition(", ")
        if level == "noise 1":
            x = pair.target
            made[name] = x / np.linalg.norm(np.ptp(x, 0))
    for a, b in itertools.combinations(made, 2):
        yield Pair(f"{a} / {b}", "different", made[a], made[b], np.eye(4))
