"""The points of a cloud on disk, cell after cell, and the results of its tiles.

A work folder holds

    points.npy      (N, 3) float64, cell after cell
    rows.npy        (N,) int64, the row of each of these points in the input
    layout.npz      which points are in which cell and tile; written when the points are sorted
    PHASE-TILE.npz  the results of a tile, for its points in the order of `points`

Files of results are moved to their names when they are complete, so that the work that is done is
the files that exist. A tile and its halo are a few ranges of the points.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from veckm.io.atomic import writing
from veckm.io.source import Source
from veckm.scan.layout import find_cuts, sampled_share

#: Points that are read at a time.
CHUNK = 1 << 19

Arrays = dict[str, np.ndarray]


class Spool:
    """The work folder of a scan, opened by path: also by other processes, at the same time."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with np.load(self.folder / "layout.npz") as found:
            self.tile_cells = found["tile_cells"]  # (T + 1,) first cell of each tile
            self.offsets = found["offsets"]  # (C + 1,) first point of each cell
            self.boxes = found["boxes"]  # (2, C, 3) least and largest coordinates of each cell
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

    @property
    def points(self) -> np.ndarray:
        """(N, 3) float64, on disk."""
        return mapped(self.folder / "points.npy")

    @property
    def rows(self) -> np.ndarray:
        """(N,) int64, on disk: the row of each point in the input."""
        return mapped(self.folder / "rows.npy")

    def chunks(self) -> Iterator[np.ndarray]:  # (n, 3) each
        """All points, some at a time."""
        for part in chunks_of(self.count):
            yield np.array(self.points[part])

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


def create(path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    """An array of zeros on disk, for which there is room."""
    size = np.lib.format.open_memmap(path, "w+", dtype, shape).nbytes
    if hasattr(os, "posix_fallocate") and size:  # a mapped write to a full disk would be a crash
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def mapped(path: Path, write: bool = False) -> np.ndarray:
    """An array on disk. What was touched counts as memory of the process until it is released."""
    out: np.ndarray = np.load(path, mmap_mode="r+" if write else "r")
    return out


def chunks_of(count: int, size: int | None = None) -> list[slice]:
    """Ranges of `size` points; by default as many as are read at a time."""
    step = size or CHUNK
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]


def fill(folder: Path, source: Source, tile: int, advance: Callable[[int], object]) -> Spool:
    """Read a cloud once into a new spool, find its tiles, and sort the points into its cells."""
    share, rng, sample = sampled_share(source.count), np.random.default_rng(0), []
    names = ("unsorted", "cell", "points", "rows")
    unsorted, cells, points, rows = (folder / f"{name}.npy" for name in names)
    for path, dtype, shape in (
        (unsorted, "f8", (source.count, 3)),
        (cells, "i4", (source.count,)),
        (points, "f8", (source.count, 3)),
        (rows, "i8", (source.count,)),
    ):
        create(path, dtype, shape)
    for part in chunks_of(source.count):
        xyz = _read_finite(source, part.start, part.stop)
        sample.append(xyz[rng.random(len(xyz)) < share])
        mapped(unsorted, write=True)[part] = xyz
        advance(len(xyz))
    cuts = find_cuts(np.concatenate(sample), share, tile)
    counts = np.zeros(int(cuts.tiles[-1]), np.int64)
    for part in chunks_of(source.count):
        cell = cuts.cells_of(np.array(mapped(unsorted)[part]))
        mapped(cells, write=True)[part] = cell
        counts += np.bincount(cell, minlength=len(counts))
    offsets = np.append(0, np.cumsum(counts))
    low, high = np.full((len(counts), 3), np.inf), np.full((len(counts), 3), -np.inf)
    following = offsets[:-1].copy()  # (C,) where the next point of each cell goes
    for part in chunks_of(source.count):
        cell = np.array(mapped(cells)[part])
        order = np.argsort(cell, kind="stable")
        present, first, number = np.unique(cell[order], return_index=True, return_counts=True)
        xyz = mapped(unsorted)[part][order]
        low[present] = np.minimum(low[present], np.minimum.reduceat(xyz, first))
        high[present] = np.maximum(high[present], np.maximum.reduceat(xyz, first))
        slot = np.repeat(following[present] - first, number) + np.arange(len(order))
        mapped(points, write=True)[slot] = xyz
        mapped(rows, write=True)[slot] = order + part.start
        following[present] += number
        advance(len(xyz))
    for path in (points, rows):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    with writing(folder / "layout.npz") as file:
        np.savez(file, tile_cells=cuts.tiles, offsets=offsets, boxes=np.stack([low, high]))
    for path in (unsorted, cells):
        path.unlink()
    return Spool(folder)


def _read_finite(source: Source, start: int, stop: int) -> np.ndarray:  # (n, 3) float64
    xyz = source.read_xyz(start, stop)
    bad = np.flatnonzero(~np.isfinite(xyz).all(1))
    if len(bad):
        raise ValueError(
            f"{source.path}: point {start + bad[0]} has NaN or infinite coordinates, as have "
            f"{len(bad) - 1} more of points {start} to {stop}; drop such points first"
        )
    return xyz
