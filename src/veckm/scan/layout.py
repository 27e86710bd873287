"""Cells and tiles of a cloud that is never in memory as a whole.

A random sample of the points is cut in two at the median across its longest side, again and again:
first into tiles, then into cells. So tiles are balanced however uneven the cloud is. Copies at one
position cannot be cut and stay together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from veckm.io.source import Source

#: Points read at a time.
CHUNK = 1 << 19
#: Points that the cuts are found from; a smaller cloud is taken whole, and its counts are exact.
_SAMPLE = 1 << 20
#: A tile has about so many cells: the halo is made of whole cells.
_CELLS_PER_TILE, _FEWEST, _MOST = 64, 64, 4096
#: A sampled tile is planned this much smaller, so that few exceed the limit.
_MARGIN = 0.95


@dataclass(frozen=True)
class Layout:
    """A binary tree of cuts. Its leaves are the cells, in the order of storage; a tile is a run."""

    axis: np.ndarray  # (K,) int64 of each cut
    at: np.ndarray  # (K,) float64: points below go left
    child: np.ndarray  # (K, 2) int64: the next cut, or ~c for cell c
    counts: np.ndarray  # (C,) int64: points of each cell; zeros until they are counted
    tiles: np.ndarray  # (T + 1,) int64: the first cell of each tile, and the number of cells

    @cached_property
    def offsets(self) -> np.ndarray:
        """(C + 1,): the first point of each cell, and the number of points."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    def cells_of(self, xyz: np.ndarray) -> np.ndarray:  # (n, 3) -> (n,)
        """The cell of each point."""
        node = np.zeros(len(xyz), np.int64) if len(self.axis) else np.full(len(xyz), ~0)
        rows = np.flatnonzero(node >= 0)
        while len(rows):
            cut = node[rows]
            right = xyz[rows, self.axis[cut]] >= self.at[cut]
            node[rows] = self.child[cut, right.astype(np.int64)]
            rows = rows[node[rows] >= 0]
        return ~node

    def save(self, path: Path) -> None:
        """As .npz."""
        np.savez(path, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    @classmethod
    def load(cls, path: Path) -> Layout:
        """As it was saved."""
        with path.open("rb") as file, np.load(file) as found:
            return cls(**{name: found[name] for name in cls.__dataclass_fields__})


class Sampler:
    """A random sample of a cloud that is streamed, and the layout that follows from it."""

    def __init__(self, count: int) -> None:
        self._share = min(1.0, _SAMPLE / count)
        self._rng = np.random.default_rng(0)
        self._parts: list[np.ndarray] = []

    def add(self, xyz: np.ndarray) -> None:  # (n, 3)
        """The next points of the cloud."""
        drawn = slice(None) if self._share == 1 else self._rng.random(len(xyz)) < self._share
        self._parts.append(xyz[drawn])

    def layout(self, tile: int) -> Layout:
        """Cells, without their counts, and tiles of so many points.

        Of a large cloud some tiles may have a few percent more, and copies at one position are in
        one tile, however many.
        """
        scale = self._share * (1.0 if self._share == 1 else _MARGIN)
        cell = float(np.clip(tile // _CELLS_PER_TILE, _FEWEST, _MOST))
        return _cut(np.concatenate(self._parts), scale * tile, scale * cell)


def _cut(x: np.ndarray, tile: float, cell: float) -> Layout:
    """Cut a sample into tiles and cells of so many points at most."""
    axes: list[int] = []
    cuts: list[float] = []
    children: list[list[int]] = []
    tiles, cells = [0], 0
    waiting = [(np.arange(len(x)), -1, 0, False)]  # rows, parent, side of it, inside of a tile
    while waiting:
        rows, parent, side, inside = waiting.pop()
        most = cell if inside else tile
        cut = _median(x[rows], most)
        if cut is None and not inside:
            waiting += [(np.zeros(0, np.int64), -2, 0, True), (rows, parent, side, True)]
            continue
        if parent == -2:  # all cells of a tile are there
            tiles.append(cells)
            continue
        number = ~cells if cut is None else len(axes)
        if parent >= 0:
            children[parent][side] = number
        if cut is None:
            cells += 1
            continue
        axis, at = cut
        right = x[rows, axis] >= at
        axes.append(axis)
        cuts.append(at)
        children.append([0, 0])
        waiting += [(rows[right], number, 1, inside), (rows[~right], number, 0, inside)]
    table = np.array(children, np.int64).reshape(-1, 2)
    empty = np.zeros(cells, np.int64)
    return Layout(np.array(axes, np.int64), np.array(cuts), table, empty, np.array(tiles))


def _median(x: np.ndarray, most: float) -> tuple[int, float] | None:  # (n, 3)
    """The axis and the position of the next cut, or None for few enough points or one position."""
    parts = int(np.ceil(len(x) / most))
    if parts < 2:
        return None
    axis = int(np.ptp(x, axis=0).argmax())
    values = np.sort(x[:, axis])
    at = values[len(x) * (parts // 2) // parts]  # so that all parts are about as large
    if at == values[0]:  # many copies: the next larger value
        at = values[min(np.searchsorted(values, at, side="right"), len(values) - 1)]
    return None if at == values[0] else (axis, float(at))


def read(source: Source, start: int, stop: int) -> np.ndarray:  # (n, 3) float64
    """Finite coordinates; raises otherwise."""
    xyz = source.read_xyz(start, stop)
    bad = np.flatnonzero(~np.isfinite(xyz).all(1))
    if len(bad):
        raise ValueError(
            f"{source.path}: point {start + bad[0]} has NaN or infinite coordinates, as have "
            f"{len(bad) - 1} more of points {start} to {stop}; drop such points first"
        )
    return xyz
