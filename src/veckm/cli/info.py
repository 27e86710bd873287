"""veckm info: what a cloud file holds, how dense it is, and what the verbs would take."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor
from tyro.conf import FlagCreatePairsOff, Positional, arg

from veckm import VecKM, suggest_radius
from veckm.cli import files
from veckm.cli.text import bytes_of, counted, entry, number
from veckm.cli.tiles import LARGE
from veckm.cloud import PointCloud
from veckm.io import FileError, Source, source_if_by_range
from veckm.io.formats import find
from veckm.progress import bar
from veckm.scan.run import TILE
from veckm.tasks.normals import estimate

_File = Positional[Annotated[Path, arg(metavar="FILE")]]
_Flag = Annotated[bool, arg(help_behavior_hint=""), FlagCreatePairsOff]

_NEIGHBORS = 64
_DIM = 256
#: Points that the verbs are tried on.
_TRIED = 20_000
#: Places of a large cloud where density is looked at, and points there, about.
_PLACES, _AT_PLACE = 16, 5_000
_BLOCK = 1_000_000
#: Memory in bytes: of Python and torch, for each point that is in memory, and for each number of an
#: encoding. Of 300,000 points normals took 0.79 GB, encodings 0.85 (D = 64) and 2.36 (D = 256).
_BASE, _NORMALS, _ENCODE = 0.35e9, 1300, 8 * 3.3
#: Points in memory for each point of a tile: its halo is wide for normals.
_HALO, _RIM = 3.0, 1.5


@dataclass(frozen=True)
class Cost:
    """What a verb would take on this machine, from a trial on some of the points."""

    verb: str
    seconds: float
    memory: float  # bytes
    tiles: bool


@dataclass(frozen=True)
class About:
    """What is known of a file."""

    path: str
    format: str
    bytes: int
    points: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    fields: dict[str, str]  # names and dtypes
    crs: str | None
    spacing: float | None  # median distance to the nearest other point
    radius: float | None  # suggested
    tried: int
    costs: tuple[Cost, ...]

    def lines(self) -> list[str]:
        """As text."""
        sides = [b - a for a, b in zip(self.low, self.high, strict=True)]
        box = " x ".join(number(side) for side in sides)
        corner = ", ".join(f"{value:.10g}" for value in self.low)
        out = entry("file", f"{self.path}: {self.format}, {bytes_of(self.bytes)}")
        out += entry("points", f"{self.points:,}")
        out += entry("box", f"{box} from ({corner}), in the file's own units")
        names = ", ".join(f"{name} {kind}" for name, kind in self.fields.items())
        out += entry("fields", names or "coordinates only")
        out += entry("crs", " ".join(self.crs.split())[:100] if self.crs else "not said")
        if self.spacing is not None and self.radius is not None:
            out += entry("spacing", f"{number(self.spacing)} to the nearest other point, median")
            why = f"half of the points see {_NEIGHBORS} others or more within it"
            out += entry("radius", f"{number(self.radius)} suggested: {why}")
        for cost in self.costs:
            memory = f"{bytes_of(int(cost.memory))} of memory{' in tiles' if cost.tiles else ''}"
            out += entry(cost.verb, f"about {_span(cost.seconds)} and {memory}")
        if self.costs:
            threads = counted(torch.get_num_threads(), "thread")
            out += entry("", f"as tried on {counted(self.tried, 'point')} with {threads}")
        return out


@dataclass(frozen=True)
class Info:
    """Tell what a cloud file holds, how dense it is, and what normals and encodings would take.

    veckm info scan.laz
    """

    cloud: _File
    """LAS, LAZ, PLY, PCD, E57, XYZ, CSV, PTS, NPY, NPZ, KITTI .bin."""
    quick: _Flag = False
    """Only what the file says: try nothing."""
    json: _Flag = False
    """Print a report for programs instead of one for people."""
    debug: _Flag = False
    """Show the traceback of an error."""

    def run(self) -> None:
        """Look, try, tell."""
        about = self._about()
        print(json.dumps(asdict(about)) if self.json else "\n".join(about.lines()))

    def _about(self) -> About:
        kind = find(self.cloud)
        source = source_if_by_range(self.cloud)
        if source is None:
            cloud = files.read_cloud(self.cloud)
            return self._tell(kind.name, cloud, len(cloud), _bounds(cloud.xyz), cloud.xyz)
        if not source.count:
            raise FileError(self.cloud, "has no points")
        low, high = source.bounds()
        some = None if self.quick else _some(source, low, high, not self.json)
        return self._tell(kind.name, source.like(), source.count, (low, high), some)

    def _tell(
        self,
        kind: str,
        like: PointCloud,
        count: int,
        box: tuple[np.ndarray, np.ndarray],
        xyz: np.ndarray | None,
    ) -> About:
        tried, spacing, radius = 0, None, None
        costs: tuple[Cost, ...] = ()
        if xyz is not None and not self.quick and len(xyz) > 1:
            pos = torch.from_numpy(xyz - (box[0] + box[1]) / 2)
            spacing = suggest_radius(pos, neighbors=1)
            radius = suggest_radius(pos, neighbors=_NEIGHBORS)
            tried = min(_TRIED, len(pos))
            costs = _costs(_near(pos, tried), radius, count)
        return About(
            str(self.cloud),
            kind,
            self.cloud.stat().st_size,
            count,
            tuple(box[0].tolist()),
            tuple(box[1].tolist()),
            {name: _kind(values) for name, values in like.fields.items()},
            like.crs,
            spacing,
            radius,
            tried,
            costs,
        )


def _kind(values: np.ndarray) -> str:
    wide = f" x {values.shape[1]}" if values.ndim == 2 else ""
    return f"{values.dtype}{wide}"


def _bounds(xyz: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return xyz.min(0), xyz.max(0)


def _some(source: Source, low: np.ndarray, high: np.ndarray, shown: bool) -> np.ndarray:
    """All points, or those around some of them: thinned points would not tell the density."""
    if source.count <= LARGE:
        return source.read_xyz(0, source.count)
    rows = np.random.default_rng(0).integers(source.count, size=_PLACES)
    places = np.concatenate([source.read_xyz(int(row), int(row) + 1) for row in rows])
    # Scans are surfaces: the points of a box grow with its area.
    half = 0.5 * float((high - low).max()) * (_AT_PLACE / source.count) ** 0.5
    kept = []
    with bar(source.count, "density" if shown else None, unit="points") as advance:
        for start in range(0, source.count, _BLOCK):
            stop = min(start + _BLOCK, source.count)
            xyz = source.read_xyz(start, stop)
            inside = np.zeros(len(xyz), bool)
            for place in places:
                inside |= (np.abs(xyz - place) <= half).all(1)
            kept.append(xyz[inside])
            advance(stop - start)
    return np.concatenate(kept)


def _near(pos: Tensor, count: int) -> Tensor:
    """The points nearest to the first: as dense as the cloud."""
    return pos[(pos - pos[0]).square().sum(1).argsort()[:count]]


def _costs(pos: Tensor, radius: float, count: int) -> tuple[Cost, ...]:
    """Trials on a part of the cloud, scaled up: both verbs are linear."""
    tiles = count > LARGE
    wide, narrow = (min(count, int(f * TILE)) if tiles else count for f in (_HALO, _RIM))
    encoder = VecKM(_DIM, radius=radius, detail=6.0)
    x = (pos - pos.mean(0)).float()
    normals = _pace(lambda: estimate(pos, curvature=True), len(pos))
    encode = _pace(lambda: encoder(x, progress=False), len(pos))
    return (
        Cost("normals", normals * count, _BASE + _NORMALS * wide, tiles),
        Cost("encode", encode * count, _BASE + _ENCODE * _DIM * narrow, tiles),
    )


def _pace(work: Callable[[], object], points: int) -> float:
    """Seconds a point, of the second call: the first sets up what later ones find."""
    work()
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / points


def _span(value: float) -> str:
    """A time as people say it."""
    if value < 90:
        return f"{max(1, round(value))} s"
    if value < 5400:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"
