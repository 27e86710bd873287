"""The points of a cloud on disk, cell after cell, so that a tile and its halo are a few ranges.

A work folder holds

    layout.npz    cells and tiles (`layout.py`)
    points        (N, 3) float64, cell after cell
    rows          (N,) int64, the row of each of these points in the input
    slots         (N,) int64, the inverse: where each row of the input is stored
    NAME          (N, width) of some dtype: results, in the order of `points`

All are read and written by range with plain system calls: nothing is mapped into memory.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np

from veckm.io.source import Source
from veckm.scan.layout import Layout, make_layout, sampled_share

#: Points that are read at a time.
CHUNK = 1 << 19
#: A gap of fewer rows than this is read along: a call costs more.
_GAP = 16


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


POINTS, ROWS, SLOTS = Field("points", "f8", 3), Field("rows", "i8"), Field("slots", "i8")
#: The points in the order of the input and the cell of each, while they are being sorted.
_UNSORTED, _CELL = Field("unsorted", "f8", 3), Field("cell", "i4")


class Spool:
    """The work folder of a scan, opened by path: also by other processes, at the same time."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def layout(self) -> Layout:
        """Cells and tiles."""
        return Layout.load(self.folder / "layout.npz")

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

    def size(self, tile: int) -> int:
        """Number of points of a tile."""
        start, stop = self.range(tile)
        return stop - start

    def chunks(self) -> Iterator[np.ndarray]:  # (n, 3) each
        """All points, some at a time."""
        for part in _ranges(0, self.count):
            yield self.read(POINTS, [part])

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
        """(n,) or (n, width): some ranges of a field, one after the other."""
        out = np.empty((sum(stop - start for start, stop in ranges), field.width), field.dtype)
        if len(out):
            view, filled = memoryview(out.data).cast("B"), 0
            with (self.folder / field.name).open("rb", buffering=0) as file:
                for start, stop in ranges:
                    file.seek(start * field.row)
                    end = filled + (stop - start) * field.row
                    while filled < end:
                        got = file.readinto(view[filled:end])
                        if not got:
                            raise OSError(f"{file.name}: ends too early; remove {self.folder}")
                        filled += got
        return out[:, 0] if field.width == 1 else out

    def allocate(self, field: Field) -> None:
        """Reserve space for a field, keeping what is there."""
        with (self.folder / field.name).open("ab") as file:
            file.truncate(self.count * field.row)

    def write(self, field: Field, start: int, values: np.ndarray) -> None:
        """Write rows of a field; they are on disk when this returns."""
        with (self.folder / field.name).open("r+b", buffering=0) as file:
            _write_at(file, field, start, values)
            os.fsync(file.fileno())

    def checksum(self, fields: Sequence[Field], start: int, stop: int) -> int:
        """CRC of some fields in a range, as they are on disk."""
        found = 0
        for field in fields:
            for part in _ranges(start, stop):
                found = zlib.crc32(self.read(field, [part]).data, found)
        return found

    def checksum_of_points(self) -> int:
        """CRC of the sorted points and their layout; -1 if they are damaged."""
        try:
            found = zlib.crc32((self.folder / "layout.npz").read_bytes())
            return found ^ self.checksum((POINTS, ROWS, SLOTS), 0, self.count)
        except (OSError, ValueError, KeyError, BadZipFile):
            return -1


def fill(folder: Path, source: Source, tile: int, advance: Callable[[int], object]) -> Spool:
    """Read a cloud once into a new spool, find its tiles, and sort the points into its cells."""
    share, rng, sample = sampled_share(source.count), np.random.default_rng(0), []
    with (folder / _UNSORTED.name).open("wb") as file:
        for start, stop in _ranges(0, source.count):
            xyz = _read_finite(source, start, stop)
            sample.append(xyz[rng.random(len(xyz)) < share])
            file.write(np.ascontiguousarray(xyz, _UNSORTED.dtype).data)
            advance(stop - start)
    layout = make_layout(np.concatenate(sample), share, tile)
    spool = Spool(folder)
    with (folder / _CELL.name).open("wb") as file:
        for part in _ranges(0, source.count):
            cell = layout.cells_of(spool.read(_UNSORTED, [part]))
            file.write(cell.astype(_CELL.dtype).data)
            layout.counts[:] += np.bincount(cell, minlength=len(layout.counts))
    _sort(spool, layout, source.count, advance)
    layout.save(folder / "layout.npz")
    for name in ("layout.npz", POINTS.name, ROWS.name, SLOTS.name):
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
    for field in (_UNSORTED, _CELL):
        (folder / field.name).unlink()
    return spool


def _sort(spool: Spool, layout: Layout, count: int, advance: Callable[[int], object]) -> None:
    """Write the points cell after cell, and find the box of each cell."""
    low, high = layout.boxes
    following = layout.offsets[:-1].copy()  # (C,) where the next point of each cell goes
    with (
        (spool.folder / POINTS.name).open("wb", buffering=0) as points,
        (spool.folder / ROWS.name).open("wb", buffering=0) as rows,
        (spool.folder / SLOTS.name).open("wb", buffering=0) as slots,
    ):
        for part in _ranges(0, count):
            xyz, cell = spool.read(_UNSORTED, [part]), spool.read(_CELL, [part])
            order = np.argsort(cell, kind="stable")
            present, first = np.unique(cell[order], return_index=True)
            ordered = xyz[order]
            low[present] = np.minimum(low[present], np.minimum.reduceat(ordered, first))
            high[present] = np.maximum(high[present], np.maximum.reduceat(ordered, first))
            slot = np.empty(len(order), np.int64)
            for c, i, j in zip(present, first, np.append(first[1:], len(order)), strict=True):
                at = int(following[c])
                _write_at(points, POINTS, at, ordered[i:j])
                _write_at(rows, ROWS, at, order[i:j] + part[0])
                slot[order[i:j]] = at + np.arange(j - i)
                following[c] += j - i
            _write_at(slots, SLOTS, part[0], slot)
            advance(len(xyz))


def _read_finite(source: Source, start: int, stop: int) -> np.ndarray:  # (n, 3) float64
    xyz = source.read_xyz(start, stop)
    bad = np.flatnonzero(~np.isfinite(xyz).all(1))
    if len(bad):
        raise ValueError(
            f"{source.path}: point {start + bad[0]} has NaN or infinite coordinates, as have "
            f"{len(bad) - 1} more of points {start} to {stop}; drop such points first"
        )
    return xyz


def _ranges(start: int, stop: int) -> list[tuple[int, int]]:
    return [(i, min(i + CHUNK, stop)) for i in range(start, stop, CHUNK)]


def _write_at(file: BinaryIO, field: Field, start: int, values: np.ndarray) -> None:
    view = memoryview(np.ascontiguousarray(values, field.dtype).data).cast("B")
    file.seek(start * field.row)
    while len(view):  # an unbuffered file may write less than it was given
        view = view[file.write(view) :]
