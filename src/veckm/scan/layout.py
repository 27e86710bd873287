"""Cells and tiles of a cloud that was never in memory as a whole.

The cloud is streamed and its points are counted in the cells of an octree. Cells with too many
points are looked at again, finer, until each has few enough or cannot be cut: copies in one place
stay together. Cells are then joined to tiles by cutting the cloud in two, at the half of its points
across its longest side, again and again. So tiles are balanced however uneven the cloud is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from veckm.io.source import Source

#: Bits of a cell's number along each axis, and how many of them each look at the file adds.
DEPTH = 20
_LOOKS = (8, 14, DEPTH)
#: Points read at a time.
CHUNK = 1 << 19
#: A tile has about so many cells: the halo is made of whole cells.
_CELLS_A_TILE, _FEWEST, _MOST = 64, 64, 4096


@dataclass(frozen=True)
class Layout:
    """Cells in the order in which their points are stored; a tile is a run of them."""

    low: np.ndarray  # (3,) corner of the cube that the octree divides
    size: float  # its side
    starts: np.ndarray  # (C,) int64 ascending: the first place on the curve of each octree cell
    slots: np.ndarray  # (C,) int64: where that cell is in the order of storage
    counts: np.ndarray  # (C,) int64: points of each cell, as stored
    tiles: np.ndarray  # (T + 1,) int64: the first cell of each tile, and the number of cells

    @cached_property
    def offsets(self) -> np.ndarray:
        """(C + 1,): the first point of each cell, and the number of points."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    def cells_of(self, xyz: np.ndarray) -> np.ndarray:  # (n, 3) -> (n,)
        """The cell that each point is stored in."""
        curve = along_curve(xyz, self.low, self.size)
        return self.slots[np.searchsorted(self.starts, curve, side="right") - 1]

    def save(self, path: Path) -> None:
        """As .npz."""
        names = ("low", "starts", "slots", "counts", "tiles")
        np.savez(path, size=np.float64(self.size), **{n: getattr(self, n) for n in names})

    @classmethod
    def load(cls, path: Path) -> Layout:
        """As it was saved."""
        with path.open("rb") as file, np.load(file) as found:
            arrays = {name: found[name] for name in found.files if name != "size"}
            return cls(size=float(found["size"]), **arrays)


def make_layout(source: Source, tile: int, advance: Callable[[int], object]) -> Layout:
    """Look at the file as often as needed: once for all but very uneven clouds.

    Args:
        source: the cloud.
        tile: points a tile may have; more only where so many are copies in one place.
        advance: told of the points that were read.
    """
    said = source.bounds(exact=False)
    cell = int(np.clip(tile // _CELLS_A_TILE, _FEWEST, _MOST))
    low, size = _cube(said)
    counted, seen = _count(source, low, size, cell, advance)
    if (seen[0] < said[0]).any() or (seen[1] > said[1]).any():  # what a header says may be wrong
        low, size = _cube(seen)
        counted, _ = _count(source, low, size, cell, advance)
    starts, counts = _leaves(*counted, cell)
    order, tiles = _tiles(_centers(starts), counts, tile)
    slots = np.empty_like(order)
    slots[order] = np.arange(len(order))
    return Layout(low, size, starts, slots, counts[order], tiles)


def _cube(bounds: np.ndarray) -> tuple[np.ndarray, float]:
    size = float((bounds[1] - bounds[0]).max())
    return bounds[0].astype(np.float64), size * (1 + 1e-9) or 1.0


def along_curve(xyz: np.ndarray, low: np.ndarray, size: float) -> np.ndarray:  # (n, 3) -> (n,)
    """Places on a Morton curve of 2^DEPTH cells an axis."""
    cell = np.floor((xyz - low) * (2.0**DEPTH / size))
    x, y, z = np.clip(cell, 0, 2**DEPTH - 1).astype(np.int64).T
    place: np.ndarray = _spread(x) | _spread(y) << 1 | _spread(z) << 2
    return place


_MASKS = (
    (32, 0x1F00000000FFFF),
    (16, 0x1F0000FF0000FF),
    (8, 0x100F00F00F00F00F),
    (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)


def _spread(v: np.ndarray) -> np.ndarray:
    """Two free bits after each bit."""
    for shift, mask in _MASKS:
        v = (v | (v << shift)) & mask
    return v


def _gather(v: np.ndarray) -> np.ndarray:
    """The inverse of :func:`_spread`."""
    v = v & _MASKS[-1][1]
    masks = [mask for _, mask in _MASKS[-2::-1]] + [(1 << 21) - 1]
    for (shift, _), mask in zip(reversed(_MASKS), masks, strict=True):
        v = (v | (v >> shift)) & mask
    return v


Counted = tuple[np.ndarray, np.ndarray]  # cells as places on the curve, ascending, and their points


def _count(
    source: Source, low: np.ndarray, size: float, most: int, advance: Callable[[int], object]
) -> tuple[Counted, np.ndarray]:
    """Points in octree cells, so fine that each has at most `most` of them where that can be.

    Also the exact bounds (2, 3) of the cloud.
    """
    least, largest = np.full(3, np.inf), np.full(3, -np.inf)
    kept: list[Counted] = []
    crowded: np.ndarray | None = None  # cells to look into, at the depth of the look before
    for number, depth in enumerate(_LOOKS):
        keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for start in range(0, source.count, CHUNK):
            xyz = read(source, start, min(start + CHUNK, source.count))
            if not number:
                least, largest = np.minimum(least, xyz.min(0)), np.maximum(largest, xyz.max(0))
            curve = along_curve(xyz, low, size)
            if crowded is not None:
                curve = curve[_among(curve >> (3 * (DEPTH - _LOOKS[number - 1])), crowded)]
            keys, counts = _merged(keys, counts, curve >> (3 * (DEPTH - depth)))
            advance(len(xyz))
        last = depth == DEPTH
        fine = (counts <= most) | last
        kept.append((keys[fine] << (3 * (DEPTH - depth)), counts[fine]))
        crowded = keys[~fine]
        if not len(crowded):
            break
    places, totals = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    order = np.argsort(places)
    return (places[order], totals[order]), np.stack([least, largest])


def read(source: Source, start: int, stop: int) -> np.ndarray:  # (n, 3) float64
    """Coordinates, all of them numbers."""
    xyz = source.read_xyz(start, stop)
    bad = np.flatnonzero(~np.isfinite(xyz).all(1))
    if len(bad):
        raise ValueError(
            f"{source.path}: point {start + bad[0]} has NaN or infinite coordinates, as have "
            f"{len(bad) - 1} more of points {start} to {stop}; drop such points first"
        )
    return xyz


def _among(values: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    same: np.ndarray = ascending[at] == values
    return same


def _merged(keys: np.ndarray, counts: np.ndarray, new: np.ndarray) -> Counted:
    more, number = np.unique(new, return_counts=True)
    every = np.concatenate([keys, more])
    union, slot = np.unique(every, return_inverse=True)
    totals = np.bincount(slot, np.concatenate([counts, number]), len(union))
    return union, totals.astype(np.int64)


def _leaves(places: np.ndarray, totals: np.ndarray, most: int) -> Counted:
    """The largest octree cells with at most `most` points."""
    begin = np.full(len(places), -1, np.int64)
    for depth in range(DEPTH + 1):
        shift = 3 * (DEPTH - depth)
        open_ = np.flatnonzero(begin < 0)
        if not len(open_):
            break
        node, slot = np.unique(places[open_] >> shift, return_inverse=True)
        count = np.bincount(slot, totals[open_], len(node))
        done = (count <= most)[slot] | (depth == DEPTH)
        begin[open_[done]] = (node << shift)[slot[done]]
    starts, slot = np.unique(begin, return_inverse=True)
    return starts, np.bincount(slot, totals, len(starts)).astype(np.int64)


def _centers(starts: np.ndarray) -> np.ndarray:  # (C,) -> (C, 3)
    """The corners of the cells, which tell them apart well enough."""
    return np.stack([_gather(starts >> axis) for axis in range(3)], 1)


def _tiles(
    place: np.ndarray, counts: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:  # (C,), (T + 1,)
    """Cells in the order of their tiles, and the first cell of each tile."""
    order: list[np.ndarray] = []
    first = [0]
    waiting = [np.arange(len(counts))]
    while waiting:
        cells = waiting.pop()
        parts = -(-int(counts[cells].sum()) // most)
        if len(cells) > 1 and parts > 1:
            axis = int(np.ptp(place[cells], axis=0).argmax())
            cells = cells[np.argsort(place[cells, axis], kind="stable")]
            half = np.cumsum(counts[cells])
            share = half[-1] * (parts // 2) / parts  # so that all tiles are about as large
            cut = int(np.clip(np.searchsorted(half, share), 1, len(cells) - 1))
            waiting += [cells[cut:], cells[:cut]]
        elif len(cells):
            order.append(np.sort(cells))
            first.append(first[-1] + len(cells))
    joined = np.concatenate(order) if order else np.zeros(0, np.int64)
    return joined, np.array(first)
