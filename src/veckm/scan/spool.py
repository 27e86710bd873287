"""The points of a cloud on disk, cell after cell, so that a tile and its halo are a few ranges.

A work folder holds

    layout.npz    cells and tiles (`layout.py`)
    boxes.npy     (2, C, 3) the tight box of each cell
    points        (N, 3) float64, cell after cell
    rows          (N,) int64, the number of each of these points in the file
    slots         (N,) int64, the inverse: where each point of the file is stored
    NAME          (N, width) of some dtype: results, in the order of `points`

All are read and written by range with plain system calls: nothing is mapped into memory.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from pathlib import Path

import numpy as np

from veckm.io.source import Source
from veckm.scan.layout import CHUNK, Layout, Sampler, read


@dataclass(frozen=True)
class Field:
    """A result of an operation: `width` numbers per point."""

    name: str
    dtype: str
    width: int = 1

    @property
    def row(self) -> int:
        """Bytes per point."""
        return np.dtype(self.dtype).itemsize * self.width


_POINTS, _ROWS, _SLOTS = Field("points", "f8", 3), Field("rows", "i8"), Field("slots", "i8")
#: What every spool has.
FIELDS = (_POINTS, _ROWS, _SLOTS)
#: The points in the order of the file and the cell of each, while they are being sorted.
_UNSORTED, _CELL = Field("unsorted", "f8", 3), Field("cell", "i4")
#: A gap of fewer rows than this is read along: a call costs more.
_GAP = 16


class Spool:
    """The work folder of a scan, opened by path: also by other processes, at the same time."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def layout(self) -> Layout:
        """Cells and tiles."""
        return Layout.load(self.folder / "layout.npz")

    @cached_property
    def boxes(self) -> np.ndarray:
        """(2, C, 3): least and largest coordinates of each cell."""
        return np.asarray(np.load(self.folder / "boxes.npy"))

    @property
    def count(self) -> int:
        """Points of the cloud."""
        return int(self.layout.offsets[-1])

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return len(self.layout.tiles) - 1

    def cells(self, tile: int) -> slice:
        """The cells of a tile."""
        return slice(int(self.layout.tiles[tile]), int(self.layout.tiles[tile + 1]))

    def range(self, tile: int) -> tuple[int, int]:
        """The points of a tile, as they are stored."""
        cells = self.cells(tile)
        return int(self.layout.offsets[cells.start]), int(self.layout.offsets[cells.stop])

    def chunks(self) -> Iterator[np.ndarray]:  # (n, 3) each
        """All points, some at a time."""
        for start in range(0, self.count, CHUNK):
            yield self.read(_POINTS, [(start, min(start + CHUNK, self.count))])

    def points(self, ranges: Sequence[tuple[int, int]]) -> np.ndarray:  # (n, 3)
        """Coordinates of some ranges of points, one after the other."""
        return self.read(_POINTS, ranges)

    def rows(self, ranges: Sequence[tuple[int, int]]) -> np.ndarray:  # (n,)
        """Their numbers in the file."""
        return self.read(_ROWS, ranges)

    def slots(self, start: int, stop: int) -> np.ndarray:
        """Where the points of the file from `start` to `stop` are stored."""
        return self.read(_SLOTS, [(start, stop)])

    def gather(self, field: Field, slots: np.ndarray) -> np.ndarray:
        """Rows of a field in any order, read in as few runs as they form."""
        if not len(slots):
            return self.read(field, [])
        order = np.argsort(slots, kind="stable")
        at = slots[order]
        cut = np.flatnonzero(np.diff(at) > _GAP) + 1
        first, last = at[np.append(0, cut)], at[np.append(cut - 1, len(at) - 1)]
        ranges = [(int(i), int(j) + 1) for i, j in zip(first, last, strict=True)]
        stored = np.cumsum([0] + [j - i for i, j in ranges])[:-1]
        group = np.searchsorted(cut, np.arange(len(at)), side="right")
        found = self.read(field, ranges)[stored[group] + at - first[group]]
        out: np.ndarray = np.empty_like(found)
        out[order] = found
        return out

    def read(self, field: Field, ranges: Sequence[tuple[int, int]]) -> np.ndarray:
        """(n,) or (n, width): what is stored of a field in some ranges."""
        total = sum(stop - start for start, stop in ranges)
        out = np.empty((total, field.width), field.dtype)
        if not total:
            return out[:, 0] if field.width == 1 else out
        view, filled = memoryview(out.data).cast("B"), 0
        with (self.folder / field.name).open("rb", buffering=0) as file:
            for start, stop in ranges:
                file.seek(start * field.row)
                want = filled + (stop - start) * field.row
                while filled < want:
                    got = file.readinto(view[filled:want])
                    if not got:
                        raise OSError(f"{file.name}: ends too early; remove {self.folder}")
                    filled += got
        return out[:, 0] if field.width == 1 else out

    def make(self, field: Field) -> None:
        """Reserve space for a field, unless it is there."""
        with (self.folder / field.name).open("ab") as file:
            if file.tell() != self.count * field.row:
                file.truncate(self.count * field.row)

    def write(self, field: Field, start: int, values: np.ndarray) -> None:
        """Write rows of a field; they are on the disk when this returns."""
        values = np.ascontiguousarray(values, field.dtype)
        with (self.folder / field.name).open("r+b", buffering=0) as file:
            _write_at(file, values, start * field.row)
            os.fsync(file.fileno())

    def checksum(self, fields: Sequence[Field], start: int, stop: int) -> int:
        """CRC of some fields in a range, as the disk holds them."""
        found = 0
        for field in fields:
            for first in range(start, stop, CHUNK):
                part = self.read(field, [(first, min(first + CHUNK, stop))])
                found = zlib.crc32(part.data, found)
        return found


def fill(folder: Path, source: Source, tile: int, advance: Callable[[int], object]) -> Spool:
    """Read a cloud once into a new spool, find its tiles, and sort the points into its cells."""
    ranges = [(i, min(i + CHUNK, source.count)) for i in range(0, source.count, CHUNK)]
    sampler = Sampler(source.count)
    with (folder / _UNSORTED.name).open("wb") as file:
        for start, stop in ranges:
            xyz = read(source, start, stop)
            sampler.add(xyz)
            file.write(np.ascontiguousarray(xyz, _UNSORTED.dtype).data)
            advance(stop - start)
    layout = sampler.layout(tile)
    spool = Spool(folder)
    with (folder / _CELL.name).open("wb") as file:
        for part in ranges:
            cell = layout.cells_of(spool.read(_UNSORTED, [part]))
            file.write(cell.astype(_CELL.dtype).data)
            layout.counts[:] += np.bincount(cell, minlength=len(layout.counts))
    layout.save(folder / "layout.npz")
    boxes = np.stack([np.full((len(layout.counts), 3), s * np.inf) for s in (1, -1)])
    for field in FIELDS:
        (folder / field.name).unlink(missing_ok=True)
        spool.make(field)
    with ExitStack() as stack:
        files = [
            stack.enter_context((folder / field.name).open("r+b", buffering=0)) for field in FIELDS
        ]
        following = layout.offsets[:-1].copy()
        for part in ranges:
            xyz, cell = spool.read(_UNSORTED, [part]), spool.read(_CELL, [part])
            _sort_in(files, xyz, cell, part[0], following, boxes)
            advance(len(xyz))
        for file_ in files:
            os.fsync(file_.fileno())
    np.save(folder / "boxes.npy", boxes)
    for field in (_UNSORTED, _CELL):
        (folder / field.name).unlink()
    return spool


def _sort_in(
    files: list[FileIO],
    xyz: np.ndarray,  # (n, 3)
    cell: np.ndarray,  # (n,)
    start: int,
    following: np.ndarray,  # (C,)
    boxes: np.ndarray,  # (2, C, 3)
) -> None:
    """Append points to their cells, and extend the boxes of these."""
    points, rows, slots = files
    order = np.argsort(cell, kind="stable")
    present, first = np.unique(cell[order], return_index=True)
    ordered = xyz[order]
    boxes[0, present] = np.minimum(boxes[0, present], np.minimum.reduceat(ordered, first))
    boxes[1, present] = np.maximum(boxes[1, present], np.maximum.reduceat(ordered, first))
    slot = np.empty(len(order), np.int64)
    for c, i, j in zip(present, first, np.append(first[1:], len(order)), strict=True):
        at = int(following[c])
        _write_at(points, ordered[i:j], at * _POINTS.row)
        _write_at(rows, order[i:j] + start, at * _ROWS.row)
        slot[order[i:j]] = at + np.arange(j - i)
        following[c] += j - i
    _write_at(slots, slot, start * _SLOTS.row)


def _write_at(file: FileIO, values: np.ndarray, offset: int) -> None:
    view = memoryview(np.ascontiguousarray(values).data).cast("B")
    file.seek(offset)
    while len(view):
        view = view[file.write(view) :]
