"""Cells and tiles of a cloud that is never in memory as a whole.

A random sample of the points is cut in two at the median across its longest side, recursively:
first into tiles, then into cells. So tiles are balanced however uneven the cloud is. Copies at one
position cannot be cut and stay together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Points that the cuts are found from; a smaller cloud is taken whole, and its counts are exact.
_SAMPLE = 1 << 20
#: A tile has about so many cells: the halo is made of whole cells.
_CELLS_PER_TILE, _FEWEST, _MOST = 64, 64, 4096
#: A sampled tile is planned this much smaller, so that few exceed the limit.
_MARGIN = 0.95


@dataclass(frozen=True)
class Cuts:
    """A binary tree of cuts. Its leaves are the cells, in the order of storage; a tile is a run."""

    axis: np.ndarray  # (K,) int64 of each cut
    at: np.ndarray  # (K,) float64: points below go left
    child: np.ndarray  # (K, 2) int64: the next cut, or ~c for cell c
    tiles: np.ndarray  # (T + 1,) int64: the first cell of each tile, and the number of cells

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


def sampled_share(count: int) -> float:
    """The share of `count` points that :func:`find_cuts` needs."""
    return min(1.0, _SAMPLE / count)


def find_cuts(sample: np.ndarray, share: float, tile: int) -> Cuts:  # (n, 3)
    """Tiles of at most `tile` points and their cells, from a random `share` of the points.

    Of a sampled cloud some tiles may have a few percent more, and copies at one position are in
    one tile, however many.
    """
    scale = share if share == 1 else share * _MARGIN
    cell = float(np.clip(tile // _CELLS_PER_TILE, _FEWEST, _MOST))
    cuts: list[tuple[int, float]] = []
    children: list[tuple[int, int]] = []
    tiles, cells = [0], 0

    def split(rows: np.ndarray, limit: float) -> int:
        """The number of the first cut of some rows, or ~c if they are cell c."""
        nonlocal cells
        cut = _median_cut(sample[rows], limit)
        if cut is None and limit == scale * tile:
            number = split(rows, scale * cell)
            tiles.append(cells)
            return number
        if cut is None:
            cells += 1
            return ~(cells - 1)
        number, (axis, at) = len(cuts), cut
        right = sample[rows, axis] >= at
        cuts.append(cut)
        children.append((0, 0))
        children[number] = split(rows[~right], limit), split(rows[right], limit)
        return number

    split(np.arange(len(sample)), scale * tile)
    axis, at = np.array([a for a, _ in cuts], np.int64), np.array([x for _, x in cuts])
    return Cuts(axis, at, np.array(children, np.int64).reshape(-1, 2), np.array(tiles))


def _median_cut(x: np.ndarray, limit: float) -> tuple[int, float] | None:  # (n, 3)
    """The axis and the position of the next cut, or None for few enough points or one position."""
    parts = int(np.ceil(len(x) / limit))
    if parts < 2:
        return None
    axis = int(np.ptp(x, axis=0).argmax())
    values = np.sort(x[:, axis])
    at = values[len(x) * (parts // 2) // parts]  # so that all parts are about as large
    if at == values[0]:  # many copies: the next larger value
        at = values[min(np.searchsorted(values, at, side="right"), len(values) - 1)]
    return None if at == values[0] else (axis, float(at))
