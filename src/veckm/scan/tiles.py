"""A tile with its halo: which cells are loaded, and what to do where they do not suffice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from veckm.scan.spool import Arrays, Spool

#: Points that are loaded at once, as a multiple of a tile and a few.
_MOST, _FEW = 3, 100_000
#: The halo of points that need more is widened by at most this factor, at most so often.
_WIDER, _ROUNDS = 4.0, 6
#: The reach of a point is an upper bound: a halo less than this factor narrower will do.
_BOUND = 1.5
#: The reach of a sparse cell is at most so many times that of half of the points.
_SPARSE = 2.0


class Region:
    """The points of some cells, in the order of storage."""

    def __init__(self, spool: Spool, cells: np.ndarray) -> None:  # (C,) bool
        chosen = np.flatnonzero(cells)
        runs = np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1)
        ranges = [slice(spool.offsets[run[0]], spool.offsets[run[-1] + 1]) for run in runs]
        self.xyz = np.concatenate([spool.points(part) for part in ranges])  # (M, 3)
        self.ids = np.concatenate([spool.rows(part) for part in ranges])  # (M,) rows of the input
        self.slot = np.concatenate([np.arange(r.start, r.stop) for r in ranges])  # (M,) ascending

    def __len__(self) -> int:
        return len(self.xyz)

    def rows_at(self, slots: np.ndarray) -> np.ndarray:
        """Rows of the region that hold the points stored at `slots`."""
        return np.searchsorted(self.slot, slots)


def neighborhood(spool: Spool, tile: int, reach: float) -> np.ndarray:  # (n, 3)
    """The points within `reach` of the box of a tile, its own among them."""
    cells, part = spool.cells(tile), spool.range(tile)
    halo = np.full(cells.stop - cells.start, reach)
    xyz = Region(spool, halo_cells(spool, tile, halo, limited=False)[0]).xyz
    own = spool.points(part)
    low, high = own.min(0) - reach, own.max(0) + reach
    near: np.ndarray = xyz[((xyz >= low) & (xyz <= high)).all(1)]  # cells are whole, halos not
    return near


class Part(Protocol):
    """An operation on a region."""

    def reach(self, rows: np.ndarray) -> np.ndarray:
        """(n,): how far from each row its result depends on other points; infinite if unknown."""

    def compute(self, rows: np.ndarray) -> Arrays:
        """The results at some rows."""


def compute_tile(
    spool: Spool,
    tile: int,
    reach: np.ndarray,  # (c,)
    load: Callable[[Region], Part],
) -> Arrays:
    """The results of a tile, given the width of the halo around each of its cells.

    Points that need more than the halo are done again with a wider one.
    """
    cells, start, count = spool.cells(tile), spool.range(tile).start, spool.size(tile)
    slots, halo = np.arange(start, start + count), reach.copy()
    cell = np.repeat(np.arange(len(reach)), spool.counts[cells])  # (n,) of each point
    box = spool.boxes[1, cells].max(0) - spool.boxes[0, cells].min(0)
    least = float(box.max() or 1.0) / 8
    out: Arrays = {}
    for number in range(_ROUNDS):
        some = np.unique(cell[slots - start])
        chosen, everything = halo_cells(spool, tile, halo[some], some)
        region = Region(spool, chosen)
        part, rows = load(region), region.rows_at(slots)
        needed = part.reach(rows)
        done = needed <= _BOUND * halo[cell[slots - start]]
        if everything or number == _ROUNDS - 1:
            done[:] = True
        if done.any():
            for name, values in part.compute(rows[done]).items():
                full = out.setdefault(name, np.empty((count, *values.shape[1:]), values.dtype))
                full[slots[done] - start] = values
        slots, needed = slots[~done], needed[~done]
        if not len(slots):
            break
        wider = np.minimum(needed, _WIDER * np.maximum(halo[cell[slots - start]], least))
        halo[:] = 0.0
        np.maximum.at(halo, cell[slots - start], wider)
    return out


def halo_cells(
    spool: Spool,
    tile: int,
    reach: np.ndarray,  # (c,)
    some: np.ndarray | slice = slice(None),  # (c,)
    limited: bool = True,
) -> tuple[np.ndarray, bool]:  # (C,) bool
    """Some cells of a tile and those within their reach, if there are not too many points in them;
    and whether no wider halo would have more: that is all cells, or the limit."""
    own, full = np.zeros(len(spool.counts), bool), False
    own[spool.cells(tile)][some] = True
    cells = np.flatnonzero(own)
    limit = _MOST * spool.size(tile) + _FEW if limited else spool.count
    while True:
        chosen = own | near(spool.boxes, spool.boxes[:, cells], reach)
        if spool.counts[chosen].sum() <= max(limit, spool.counts[own].sum()):
            return chosen, full or bool(chosen.all())
        reach, full = 0.8 * reach, True


def near(boxes: np.ndarray, some: np.ndarray, reach: np.ndarray) -> np.ndarray:  # (C,) bool
    """The boxes (2, C, 3) that come as near as `reach` (c,) to one of some boxes (2, c, 3)."""
    around = np.flatnonzero(_gap(boxes, some[0].min(0), some[1].max(0)) <= float(reach.max()) ** 2)
    part, found = boxes[:, around], np.zeros(len(around), bool)
    for low, high, far in zip(*some, reach, strict=True):
        found |= _gap(part, low, high) <= far**2
    out = np.zeros(boxes.shape[1], bool)
    out[around] = found
    return out


def _gap(boxes: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:  # (C,)
    """Squared distances of boxes to one box."""
    off = np.maximum(np.maximum(boxes[0] - high, low - boxes[1]), 0)
    square: np.ndarray = np.einsum("cd,cd->c", off, off)
    return square


def neighborhood_radius(spool: Spool, tile: int, points: float) -> np.ndarray:  # (c,)
    """About how far the nearest `points` points reach from the cells of a tile, as on a surface.

    A sparse cell among dense ones would need very many of these; its points, which are few, are
    better done again with the halo that they need.
    """
    cells = spool.cells(tile)
    counts = spool.counts[cells]
    sides = np.sort(spool.boxes[1, cells] - spool.boxes[0, cells], 1)
    area = sides[:, 1] * sides[:, 2] / counts
    radius = 1.2 * np.sqrt(points / np.pi * area)
    order = np.argsort(radius)
    total = np.cumsum(counts[order])
    typical = radius[order][np.searchsorted(total, total[-1] / 2)]
    out: np.ndarray = np.minimum(radius, _SPARSE * typical)
    return out
