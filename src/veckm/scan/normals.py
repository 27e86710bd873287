"""Normals, their expected error and curvature of a cloud larger than memory.

What is global about normals is found once: the middle and the spacing of the cloud (`facts.py`).
All else is local, but how local depends on the density: the twelfth neighbor of a lonely point is
far away. So a halo of fixed width would be too much here and too little there. Instead cells around
a tile are loaded as far as their density suggests, and then every point whose answer is asked for
has to be proven: that none of the points it depends on, through all stages of the network, could
change if the cells that are not in memory were. Those that cannot be proven are done again, with
the cells that were missing.

    answer of the last stage at p   <- answers of the stage before at the neighbors of p
    answer of the first stage at q  <- planes at the neighbors of q
    plane at s                      <- the K nearest of s in each subset, the points that these
                                       stand for, and the moments of the windows
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from veckm.io.errors import FileError
from veckm.io.formats import find, streams
from veckm.io.ranges import create_sink
from veckm.io.source import Source
from veckm.scan.cone import Cone, capped, first_guess
from veckm.scan.facts import boxes_in, find_facts, frame_from
from veckm.scan.layout import CHUNK
from veckm.scan.operation import Facts, Operation, Phase, gather, with_columns
from veckm.scan.region import Region, near, near_rows, open_rows
from veckm.scan.spool import Field, Spool
from veckm.tasks.normals.curvature import NEIGHBORS, Sets, part_curvatures
from veckm.tasks.normals.estimate import GUESS, Orientation, shipped
from veckm.tasks.normals.levels import Hierarchy, make_tables
from veckm.tasks.normals.orient import orient as turn

_NORMAL, _ERROR = Field("normal", "f4", 3), Field("normal_error", "f4")
_CURVATURE = Field("curvature", "f4", 2)
#: Points in memory, as a multiple of those asked for and a few, beyond which open rows are taken in
#: smaller parts.
_MOST, _FEW = 3, 100_000


@dataclass(frozen=True)
class Normals(Operation):
    """Normals by the network that comes with the package, for every point.

    They are those of ``estimate(pos)`` of the whole cloud in float64, up to rounding: neighbors,
    subsets and windows are the same, sums are made in another order. A choice that hangs on a
    rounding, as the side of a plane that neighbors lie on evenly, may go the other way, as it may
    in memory when the cloud is moved: of a statue of 200,000 points 6 normals differed by more than
    0.01 degrees, the most by 0.065. With ``orient="none"`` the sign is open, as it is there.

    ``"consistent"`` directions depend on the whole cloud and are not offered in tiles.

    A worker holds, by the sizes of its arrays, about 350 bytes for each point of the tile and its
    halo, and 250 more for each whose neighbors are looked up: those of the tile, and a rim as wide
    as two neighborhoods of the coarsest level.

    Attributes:
        orient: ``"none"``, ``"up"`` or ``"viewpoint"``.
        viewpoint: where the scanner was, for ``"viewpoint"``.
        curvature: principal curvatures as well, in a second pass over the tiles.
    """

    orient: Orientation = "up"
    viewpoint: tuple[float, float, float] | None = None
    curvature: bool = False

    def __post_init__(self) -> None:
        if self.orient == "consistent":
            raise ValueError(
                "orient='consistent' needs the whole cloud at once and is not offered for clouds "
                "in tiles; use 'up', 'viewpoint' or 'none'"
            )
        if self.orient not in ("none", "up", "viewpoint"):
            raise ValueError(f"orient must be 'none', 'up' or 'viewpoint', got {self.orient!r}")
        if (self.viewpoint is None) == (self.orient == "viewpoint"):
            raise ValueError("orient='viewpoint' and viewpoint=(x, y, z) go together")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Normals first; curvature looks at those of the neighbors."""
        first = Phase("normals", (_NORMAL, _ERROR))
        return (first, Phase("curvature", (_CURVATURE,))) if self.curvature else (first,)

    def check(self, source: Source, output: Path) -> None:
        """The output must be a cloud in a format that is written piece by piece."""
        del source
        if find(output, write=True).writer is None:
            raise FileError(output, f"cannot be written by range; {streams()} can")

    def prepare(self, spool: Spool) -> dict[str, Any]:
        """Middle, spacing, box, and whether there is a plane at all."""
        return find_facts(spool)

    def tile(self, phase: Phase, spool: Spool, tile: int, facts: Facts) -> dict[str, np.ndarray]:
        """One tile of one phase."""
        if phase.name == "curvature":
            return {_CURVATURE.name: _bend(spool, tile, facts)}
        normal, error = _estimate(spool, tile, facts)
        if facts["line"]:
            error = np.full_like(error, GUESS)
        if self.orient != "none":
            xyz = torch.from_numpy(spool.points([spool.range(tile)]))
            turned = turn(xyz, torch.from_numpy(normal), self.orient, viewpoint=self.viewpoint)
            normal = turned.numpy()
        return {_NORMAL.name: normal, _ERROR.name: error}

    def write(self, source: Source, spool: Spool, path: Path, advance: Any) -> None:
        """The input with the new fields, in the format of the name of the output."""
        empty = with_columns(source.like(), self._columns(spool, np.zeros(0, np.int64)))
        had = source.like().fields
        extra = {n: v.dtype for n, v in empty.fields.items() if n not in had}
        sink = create_sink(path, source, extra)
        try:
            for start in range(0, source.count, CHUNK):
                stop = min(start + CHUNK, source.count)
                columns = self._columns(spool, spool.places(start, stop))
                sink.append(with_columns(source.read(start, stop), columns))
                advance(stop - start)
        except BaseException:
            sink.abort()
            raise
        sink.commit()

    def _columns(self, spool: Spool, places: np.ndarray) -> dict[str, np.ndarray]:
        """What is written of some points."""
        fields = [field for phase in self.phases for field in phase.fields]
        found = {field.name: gather(spool, field, places) for field in fields}
        bend = found.pop(_CURVATURE.name, None)
        if bend is not None:
            found["curvature_1"], found["curvature_2"] = bend[:, 0], bend[:, 1]
        return found


@dataclass(frozen=True)
class _Part:
    """Points to answer for, and the cells to load for them."""

    places: np.ndarray  # (n,) as stored, ascending
    cells: np.ndarray  # (C,) bool
    times: int = 0  # that they were not enough


def _estimate(spool: Spool, tile: int, facts: Facts) -> tuple[np.ndarray, np.ndarray]:
    """Normals (n, 3) and expected errors (n,) of a tile, every row of them proven."""
    frame = frame_from(facts)
    net, boxes = shipped(), boxes_in(frame, spool.boxes)
    cells, (start, stop) = spool.cells(tile), spool.range(tile)
    guess = first_guess(boxes[:, cells], spool.layout.counts[cells], len(net.stages))
    begin = near(boxes, boxes[0, cells], boxes[1, cells], guess)
    begin[cells] = True
    normal, error = np.empty((stop - start, 3), np.float32), np.empty(stop - start, np.float32)
    waiting = [_Part(np.arange(start, stop), begin)]
    while waiting:
        part = waiting.pop()
        region = Region(spool, part.cells)
        x = frame.place(torch.from_numpy(region.xyz)).numpy()
        points = Hierarchy(x, region.ids)
        if not points.enough and not region.everything:
            waiting.append(replace(part, cells=_wider(boxes, part.cells)))
            continue
        own = region.rows(part.places)
        cone = Cone(points, own, len(net.stages))
        proven = cone.proven(boxes, region.loaded, region.cell)
        good = own[proven]
        if len(good):
            done = cone if proven.all() else Cone(points, good, len(net.stages))
            origin = x[good].mean(0)
            levels = make_tables(points, torch.from_numpy(done.planes), frame, origin)
            answer = net(levels, [torch.from_numpy(rows) for rows in done.stages])
            at = part.places[proven] - start
            normal[at], error[at] = answer.normal[good].numpy(), answer.error[good].numpy()
        rest = part.places[~proven]
        if len(rest):
            left = replace(part, places=rest)
            waiting += _further(spool, region, points, boxes, left, len(net.stages))
    return normal, error


def _further(
    spool: Spool,
    region: Region,
    points: Hierarchy,
    boxes: np.ndarray,
    part: _Part,
    stages: int,
) -> list[_Part]:
    """What is left to be proven, with the cells that it needs; in parts if these are many.

    Nearer neighbors in new cells may need others still. From the third time on no cell is let go
    again: so there is an end.
    """
    cells = Cone(points, region.rows(part.places), stages).needed(boxes, region.cell)
    if part.times > 1:
        cells |= region.loaded
    limit = _MOST * (int(spool.layout.counts.max()) + len(part.places) + _FEW)
    if len(part.places) > 1 and spool.layout.counts[cells].sum() > limit:
        halves = [replace(part, places=half) for half in np.array_split(part.places, 2)]
        return [p for half in halves for p in _further(spool, region, points, boxes, half, stages)]
    return [_Part(part.places, cells, part.times + 1)]


def _wider(boxes: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Cells around those that are too few to know anything."""
    low, high = boxes[0, cells].min(0), boxes[1, cells].max(0)
    reach = np.array([float((high - low).max()) + 1.0])
    wider = cells | near(boxes, low[None], high[None], reach)
    return wider if wider.sum() > cells.sum() else np.ones_like(cells)


def _bend(spool: Spool, tile: int, facts: Facts) -> np.ndarray:  # (n, 2)
    """Principal curvatures of a tile, from the normals of all points around it."""
    boxes = spool.boxes
    cells, (start, stop) = spool.cells(tile), spool.range(tile)
    sides = boxes[1, cells] - boxes[0, cells]
    counts = spool.layout.counts[cells]
    size = np.sqrt(np.prod(np.sort(sides, 1)[:, 1:], 1) / counts)
    begin = near(boxes, boxes[0, cells], boxes[1, cells], capped(14.0 * size, counts))
    begin[cells] = True
    out = np.zeros((stop - start, 2), np.float32)
    if spool.count < 3:
        return out
    low, extent = np.array(facts["low"]), facts["extent"]
    waiting = [_Part(np.arange(start, stop), begin)]
    while waiting:
        part = waiting.pop()
        region = Region(spool, part.cells)
        sets = Sets(region.xyz, region.ids, low, extent, min(NEIGHBORS, spool.count))
        if not sets.complete and not region.everything:
            waiting.append(replace(part, cells=_wider(boxes, part.cells)))
            continue
        own = region.rows(part.places)
        normal = spool.read(_NORMAL, region.ranges)
        bent, need = part_curvatures(region.xyz, normal, own, sets)
        x, need = region.xyz[own], need * (1 + 1e-6)
        open_ = open_rows(boxes, region.loaded, region.cell[own], x, x, need)
        out[part.places[~open_] - start] = bent[~open_]
        if open_.any():
            around = near_rows(boxes, region.cell[own[open_]], x[open_], x[open_], need[open_])
            waiting.append(_Part(part.places[open_], around))
    return out
