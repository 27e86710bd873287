"""The points of a cloud on disk, cell after cell, and the results of its tiles.

A work folder holds

    points          (N, 3) float64, cell after cell
    rows            (N,) int64, the row of each of these points in the input
    layout.npz      which points are in which cell and tile; written when the points are sorted
    PHASE-TILE.npz  the results of a tile, for its points in the order of `points`

Files of results are moved to their names when they are complete, so that the work that is done is
the files that exist. A tile and its halo are a few ranges of the points. Nothing is mapped into
memory: pages of mapped files would count as memory of the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from veckm.io.atomic import writing
from veckm.io.source import Source
from veckm.scan.layout import find_cuts, sampled_share

#: Points that are read at a time.
CHUNK = 1 << 19

_POINT, _ROW, _CELL = np.dtype(("f8", 3)), np.dtype("i8"), np.dtype("i4")

Arrays = dict[str, np.ndarray]


class Spool:
    """The work folder of a scan, opened by path: also by other processes, at the same time."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with np.load(self.folder / "layout.npz") as found:
            self.tile_cells = found["tile_cells"]  # (T + 1,) first cell of each tile
            self.offsets = found["offsets"]  # (C + 1,) first point of each cell
            self.boxes = found["boxes"]  # (2, C, 3) least and largest coordinates of each cell
            self.total = int(found["total"])  # points of the input, also those without coordinates
        self.counts = np.diff(self.offsets)  # (C,) points of each cell
        self.starts = self.offsets[self.tile_cells]  # (T + 1,) first point of each tile
        self.count, self.tiles = int(self.offsets[-1]), len(self.tile_cells) - 1

    def cells(self, tile: int) -> slice:
        """The cells of a tile."""
        return slice(int(self.tile_cells[tile]), int(self.tile_cells[tile + 1]))

    def range(self, tile: int) -> slice:
        """The points of a tile, as they are stored."""
        return slice(int(self.starts[tile]), int(self.starts[tile + 1]))

    def size(self, tile: int) -> int:
        """Number of points of a tile."""
        return int(self.starts[tile + 1] - self.starts[tile])

    def points(self, part: slice) -> np.ndarray:  # (n, 3) float64
        """A range of the points."""
        return _read(self.folder / "points", _POINT, part)

    def rows(self, part: slice) -> np.ndarray:  # (n,) int64
        """The rows of a range of the points in the input."""
        return _read(self.folder / "rows", _ROW, part)

    def chunks(self) -> Iterator[np.ndarray]:  # (n, 3) each
        """All points, some at a time."""
        return map(self.points, chunks_of(self.count))

    def path(self, phase: str, tile: int) -> Path:
        """The file of the results of a tile; it exists if they are complete."""
        return self.folder / f"{phase}-{tile}.npz"

    def save(self, phase: str, tile: int, results: Arrays) -> None:
        """Write the results of a tile in one step."""
        with writing(self.path(phase, tile)) as file:
            np.savez(file, **results)  # type: ignore[arg-type]

    def load(self, phase: str, tile: int, name: str) -> np.ndarray:
        """A result of a tile."""
        path = self.path(phase, tile)
        try:
            with np.load(path) as found:
                out: np.ndarray = found[name]
        except (BadZipFile, EOFError, ValueError) as error:
            raise OSError(f"{path}: is damaged ({error}); remove it and run again") from error
        return out

    def gather(self, phase: str, name: str, slots: np.ndarray) -> np.ndarray:
        """A result at some points, given in ascending order of storage."""
        tile = np.searchsorted(self.starts[1:], slots, side="right")
        return np.concatenate(
            [
                self.load(phase, int(t), name)[slots[tile == t] - self.starts[t]]
                for t in np.unique(tile)
            ]
        )

    def in_input_order(
        self, results: Callable[[int], Arrays], folder: Path, step: int | None = None
    ) -> Iterator[Arrays]:
        """The `results` of all tiles, by ranges of `step` points of the input.

        Points without coordinates have NaN. The results are first distributed to a file per range,
        in an empty `folder`, so that nothing is read or written at random, and a tile or a range is
        in memory at a time.
        """
        parts = chunks_of(self.total, step)
        stops = [part.stop for part in parts]
        files = [folder / f"up-to-{stop}" for stop in stops]
        for path in files:
            path.touch()
        dtype: np.dtype = np.dtype([])
        for tile in range(self.tiles):  # no name keeps the results of a tile
            dtype = _distribute(results(tile), self.rows(self.range(tile)), files, stops)
        for path, part in zip(files, parts, strict=True):
            records = np.fromfile(path, dtype)
            path.unlink()
            here, count = records["row"] - part.start, part.stop - part.start
            yield {n: scatter(records[n], here, count) for n in (dtype.names or ())[1:]}


def _distribute(
    results: Arrays, rows: np.ndarray, files: Sequence[Path], stops: Sequence[int]
) -> np.dtype:
    """Append each point to the file of the range that its row is in; returns their dtype."""
    columns = [(name, values.dtype, values.shape[1:]) for name, values in results.items()]
    dtype, order = np.dtype([("row", _ROW), *columns]), np.argsort(rows, kind="stable")
    cuts = np.searchsorted(rows[order], [0, *stops])
    for path, (i, j) in zip(files, pairwise(cuts), strict=True):
        if i < j:
            records = np.empty(j - i, dtype)
            for name, values in {"row": rows, **results}.items():
                records[name] = values[order[i:j]]
            with path.open("ab") as file:
                file.write(records.view(np.uint8).data)
    return dtype


def scatter(values: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:  # (count, ...)
    """An array with `values` at some rows, and NaN (zero among integers) at the others."""
    fill = np.nan if values.dtype.kind in "fc" else 0
    out: np.ndarray = np.full((count, *values.shape[1:]), fill, values.dtype)
    out[rows] = values
    return out


def chunks_of(count: int, size: int | None = None) -> list[slice]:
    """Ranges of `size` points; by default as many as are read at a time."""
    step = size or CHUNK
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]


def fill(folder: Path, source: Source, tile: int, advance: Callable[[int], object]) -> Spool:
    """Read a cloud once into a new spool, find its tiles, and sort the points into its cells."""
    share, rng, sample = sampled_share(source.count), np.random.default_rng(0), []
    unsorted, cells, parts = folder / "unsorted", folder / "cells", chunks_of(source.count)
    with unsorted.open("wb") as file:
        for part in parts:
            xyz = source.read_xyz(part.start, part.stop)
            sample.append(xyz[(rng.random(len(xyz)) < share) & np.isfinite(xyz).all(1)])
            file.write(np.ascontiguousarray(xyz, np.float64).data)
            advance(len(xyz))
    if not any(map(len, sample)):
        raise ValueError(f"{source.path}: none of its points has finite coordinates")
    cuts = find_cuts(np.concatenate(sample), share, tile)
    counts = np.zeros(int(cuts.tiles[-1]), np.int64)
    with cells.open("wb") as file:
        for part in parts:
            xyz = _read(unsorted, _POINT, part)
            cell = np.where(np.isfinite(xyz).all(1), cuts.cells_of(xyz), -1)  # -1: in no cell
            file.write(cell.astype(_CELL).data)
            counts += np.bincount(cell + 1, minlength=len(counts) + 1)[1:]
    offsets = np.append(0, np.cumsum(counts))
    boxes = np.full((2, len(counts), 3), [[[np.inf]], [[-np.inf]]])
    following = offsets[:-1].copy()  # (C,) where the next point of each cell goes
    with (folder / "points").open("wb") as points, (folder / "rows").open("wb") as rows:
        for part in parts:
            cell = _read(cells, _CELL, part)
            order = np.argsort(cell, kind="stable")[np.count_nonzero(cell < 0) :]
            present, first = np.unique(cell[order], return_index=True)
            xyz, row = _read(unsorted, _POINT, part)[order], order + part.start
            for side, reduce in zip(boxes, (np.minimum, np.maximum), strict=True):
                side[present] = reduce(side[present], reduce.reduceat(xyz, first))
            for c, (i, j) in zip(present, pairwise([*first, len(order)]), strict=True):
                points.seek(following[c] * _POINT.itemsize)
                points.write(xyz[i:j].data)
                rows.seek(following[c] * _ROW.itemsize)
                rows.write(row[i:j].data)
                following[c] += j - i
            advance(len(cell))
        for file in (points, rows):
            file.flush()
            os.fsync(file.fileno())
    with writing(folder / "layout.npz") as layout:
        np.savez(layout, tile_cells=cuts.tiles, offsets=offsets, boxes=boxes, total=source.count)
    unsorted.unlink()
    cells.unlink()
    return Spool(folder)


def _read(path: Path, dtype: np.dtype, part: slice) -> np.ndarray:
    """A range of an array on disk."""
    count = int(part.stop - part.start)
    found = np.fromfile(path, dtype, count, offset=int(part.start) * dtype.itemsize)
    if len(found) < count:
        raise OSError(f"{path}: ends too early; remove {path.parent} and run again")
    return found
