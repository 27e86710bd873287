"""veckm info: what a cloud file holds, how dense it is, and what the other verbs would cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from timeit import timeit
from typing import Any

import numpy as np
import torch

from veckm import VecKM, suggest_radius
from veckm.cli import text
from veckm.cli.survey import Survey, as_written
from veckm.cli.text import labeled, number
from veckm.cli.tiles import LARGE
from veckm.cli.verb import Columns, Flag, InputFile, Verb, note, read_all
from veckm.cloud import PACKED, PointCloud
from veckm.io import FileError, Source, source_if_by_range
from veckm.io.crs import describe_crs
from veckm.io.formats import find
from veckm.progress import bar
from veckm.scan.run import TILE
from veckm.scan.spool import chunks_of
from veckm.sizes import DEFAULT_DETAIL
from veckm.tasks.normals import estimate

_NEIGHBORS = 64
_DIM = 256
#: Points of the trial run.
_TRIAL = 20_000
#: Where a large cloud's density is measured: the number of places, and points at each, about.
_PLACES, _AT_PLACE = 16, 5_000
#: Memory in bytes: of Python and torch, per point in memory, and per number of an encoding. For
#: 300,000 points normals took 0.79 GB, encodings 0.85 GB (D = 64) and 2.36 GB (D = 256).
_BASE, _NORMALS, _ENCODE = 0.35e9, 1300, 8 * 3.3
#: Points in memory per point of a tile, with its halo, for normals and for encodings.
_NORMALS_HALO, _ENCODE_HALO = 3.0, 1.5


@dataclass(frozen=True)
class Info(Verb):
    """Show what a cloud file holds, how dense it is, and what normals and encodings would cost.

    veckm info scan.laz
    """

    cloud: InputFile
    columns: Columns = ()
    """Names of all columns of a file that names none: x y z intensity ring for a .bin."""
    quick: Flag = False
    """Only the contents of the file, without a trial run."""

    def run(self) -> None:
        """Read, try, print."""
        source = source_if_by_range(self.cloud, self.columns)
        if source is None:
            header = read_all(self.cloud, self.columns)
            count, xyz = len(header), header.xyz
            low, high = np.fmin.reduce(xyz), np.fmax.reduce(xyz)
        elif source.count:
            header, count, (low, high) = source.like(), source.count, source.bounds()
        else:
            raise FileError(self.cloud, "has no points")
        if not np.isfinite([low, high]).all():
            raise FileError(self.cloud, f"has no coordinates: all {count:,} points are NaN")
        survey = Survey(low, high, count)
        survey.add([header] if source is None else _chunks(source, self.silent))
        if survey.missing:
            note(f"{survey.missing:,} of {count:,} points have no coordinates (NaN)")
        crs = describe_crs(header)
        kind = np.float64 if header.origin.any() else header.pos.dtype
        trial: dict[str, Any] = {"spacing": None, "radius": None, "tried": 0, "costs": []}
        if not self.quick:
            extent = float(max(high - low))
            xyz = header.xyz if source is None else _part(source, extent, self.silent)
            trial |= _trial(xyz, (low + high) / 2, count)
        about: dict[str, Any] = {
            "path": str(self.cloud),
            "format": find(self.cloud).name,
            "bytes": self.cloud.stat().st_size,
            "points": count,
            "low": [as_written(value) for value in low.astype(kind)],
            "high": [as_written(value) for value in high.astype(kind)],
            "fields": {
                k: " x ".join(map(str, (v.dtype, *v.shape[1:]))) for k, v in header.fields.items()
            },
            "ranges": survey.ranges,
            "classes": survey.classes,
            "missing": survey.missing,
            "density": survey.density,
            "crs": header.crs,
            "crs_name": crs.name,
            "meters": crs.meters,
            **trial,
        }
        self.show(*_lines(about))
        self.report(**about)


def _lines(about: dict[str, Any]) -> list[str]:
    box = text.box(b - a for a, b in zip(about["low"], about["high"], strict=True))
    corner = ", ".join(f"{value:.10g}" for value in about["low"])
    out = [
        labeled("file", f"{about['path']}: {about['format']}, {text.bytes_of(about['bytes'])}"),
        labeled("points", f"{about['points']:,}{_density(about)}"),
        labeled("box", f"{box} from ({corner}), in the file's own units"),
        labeled("crs", about["crs_name"] or "none"),
        labeled("fields", f"{len(about['fields'])}" if about["fields"] else "coordinates only"),
    ]
    for name, dtype in about["fields"].items():
        low, high = about["ranges"].get(name, ("", ""))
        span = "" if high == "" else f", {low:.10g} to {high:.10g}"
        span = ", packed red, green and blue" if name in PACKED else span
        out.append(labeled("", f"  {name} {dtype}{span}"))
    if about["classes"]:
        parts = [f"{n} {count:,}" for n, count in about["classes"].items()]
        out.append(labeled("classes", ", ".join(parts)))
    if about["radius"] is None:
        return out
    why = f"half of the points have {_NEIGHBORS} others or more within it"
    out.append(labeled("spacing", f"{number(about['spacing'])} to the nearest point, median"))
    out.append(labeled("radius", f"{number(about['radius'])} suggested: {why}"))
    for cost in about["costs"]:
        duration = text.seconds(max(1, round(cost["seconds"])))
        memory = f"{text.bytes_of(cost['memory'])} of memory"
        tiles = " in tiles" if cost["tiles"] else ""
        out.append(labeled(cost["verb"], f"about {duration} and {memory}{tiles}"))
    threads = text.counted(torch.get_num_threads(), "thread")
    tried = text.counted(about["tried"], "point")
    return [*out, labeled("", f"estimated from {tried} with {threads}")]


def _density(about: dict[str, Any]) -> str:
    """Points per square meter where the unit is known."""
    density, meters = about["density"], about["meters"]
    if density is None:
        return ""
    if meters is None:
        return f", {number(density)} per square unit of the ground that has any"
    return f", {number(density / meters**2)} per square meter of the ground that has any"


def _chunks(source: Source, silent: bool) -> Iterator[PointCloud]:
    """All points, some at a time."""
    with bar(source.count, None if silent else "fields", unit="points") as advance:
        for part in chunks_of(source.count):
            yield source.read(part.start, part.stop)
            advance(part.stop - part.start)


def _part(source: Source, extent: float, silent: bool) -> np.ndarray:  # (n, 3)
    """All points, or all points in boxes around a few: subsampling would change the density."""
    if source.count <= LARGE:
        return source.read_xyz(0, source.count)
    rows = np.random.default_rng(0).integers(source.count, size=_PLACES)
    places = np.concatenate([source.read_xyz(int(row), int(row) + 1) for row in rows])
    # Scans are surfaces: the number of points in a box grows with its area.
    half, kept = 0.5 * extent * (_AT_PLACE / source.count) ** 0.5, []
    with bar(source.count, None if silent else "density", unit="points") as advance:
        for part in chunks_of(source.count):
            xyz = source.read_xyz(part.start, part.stop)
            inside = [(np.abs(xyz - place) <= half).all(1) for place in places]
            kept.append(xyz[np.any(inside, axis=0)])
            advance(len(xyz))
    return np.concatenate(kept)


def _trial(xyz: np.ndarray, center: np.ndarray, count: int) -> dict[str, Any]:
    """Density, the suggested radius, and the cost of both verbs: they are linear."""
    unique = np.unique(xyz[np.isfinite(xyz).all(1)], axis=0)
    if len(unique) < 2:
        return {}
    if len(unique) < (looked := int(np.isfinite(xyz).all(1).sum())):
        note(
            f"{looked - len(unique):,} of {looked:,} points are copies of others; spacing and "
            "radius are those without them"
        )
    pos = torch.from_numpy(unique - center)
    radius = suggest_radius(pos, neighbors=_NEIGHBORS)
    nearest = pos[(pos - pos[0]).square().sum(1).argsort()[:_TRIAL]]  # as dense as the cloud
    encoder = VecKM(_DIM, radius=radius, detail=DEFAULT_DETAIL)
    x = (nearest - nearest.mean(0)).float()
    trials: dict[str, tuple[Callable[[], object], float, float]] = {
        "normals": (lambda: estimate(nearest, curvature=True), _NORMALS, _NORMALS_HALO),
        "encode": (lambda: encoder(x, progress=False), _ENCODE * _DIM, _ENCODE_HALO),
    }
    tiles, costs = count > LARGE, []
    for verb, (work, point_bytes, halo) in trials.items():
        work()  # the first call includes what is set up once
        seconds = timeit(work, number=1) / len(nearest) * count
        memory = _BASE + point_bytes * (min(count, int(halo * TILE)) if tiles else count)
        costs.append({"verb": verb, "seconds": seconds, "memory": memory, "tiles": tiles})
    spacing = suggest_radius(pos, neighbors=1)
    return {"spacing": spacing, "radius": radius, "tried": len(nearest), "costs": costs}
