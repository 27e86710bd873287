"""Some cells of a cloud in memory, and what about them does not depend on the others."""

from __future__ import annotations

import numpy as np

from veckm.scan.spool import Spool


class Region:
    """The points of some cells, in the order in which they are stored."""

    def __init__(self, spool: Spool, cells: np.ndarray) -> None:  # (C,) bool
        layout = spool.layout
        self.loaded = cells
        chosen = np.flatnonzero(cells)
        cut = np.flatnonzero(np.diff(chosen) > 1) + 1
        runs = [(part[0], part[-1] + 1) for part in np.split(chosen, cut) if len(part)]
        ranges = [(int(layout.offsets[a]), int(layout.offsets[b])) for a, b in runs]
        self.ranges = ranges
        self.xyz = spool.points(ranges)  # (M, 3)
        self.ids = spool.numbers(ranges)  # (M,) rows of the file
        self.cell = np.repeat(chosen, layout.counts[chosen])  # (M,)
        self.place = np.concatenate([np.arange(i, j) for i, j in ranges])  # (M,) ascending

    def __len__(self) -> int:
        return len(self.xyz)

    @property
    def everything(self) -> bool:
        """Whether this is the whole cloud."""
        return bool(self.loaded.all())

    def rows(self, places: np.ndarray) -> np.ndarray:
        """Rows of the region that hold the points stored at `places`."""
        return np.searchsorted(self.place, places)


def near(
    boxes: np.ndarray,  # (2, C, 3)
    low: np.ndarray,  # (n, 3)
    high: np.ndarray,  # (n, 3)
    reach: np.ndarray,  # (n,)
) -> np.ndarray:  # (C,) bool
    """The cells whose boxes come as near as `reach` to one of some boxes."""
    out = np.zeros(boxes.shape[1], bool)
    if not len(low):
        return out
    far = float(reach.max())
    around = _apart(boxes, low.min(0), high.max(0)) <= far**2
    some = np.flatnonzero(around)
    part = boxes[:, some]
    found = np.zeros(len(some), bool)
    for i in range(len(low)):
        found |= _apart(part, low[i], high[i]) <= reach[i] ** 2
    out[some] = found
    return out


def near_rows(
    boxes: np.ndarray,  # (2, C, 3)
    cell: np.ndarray,  # (n,) the cell of each row
    low: np.ndarray,  # (n, 3)
    high: np.ndarray,  # (n, 3)
    need: np.ndarray,  # (n,)
) -> np.ndarray:  # (C,) bool
    """The cells that come as near as `need` to a row, as a box; a few more, as rows of a cell are
    taken together."""
    if not len(cell):
        return np.zeros(boxes.shape[1], bool)
    order = np.argsort(cell, kind="stable")
    first = np.flatnonzero(np.diff(cell[order], prepend=-1))
    return near(
        boxes,
        np.minimum.reduceat(low[order], first),
        np.maximum.reduceat(high[order], first),
        np.maximum.reduceat(need[order], first),
    )


def open_rows(
    boxes: np.ndarray,  # (2, C, 3)
    loaded: np.ndarray,  # (C,) bool
    cell: np.ndarray,  # (n,) the cell of each row
    low: np.ndarray,  # (n, 3)
    high: np.ndarray,  # (n, 3)
    need: np.ndarray,  # (n,)
) -> np.ndarray:  # (n,) bool
    """Rows, as boxes, that are nearer than `need` to a cell that is not in memory."""
    open_ = np.zeros(len(cell), bool)
    if not len(cell) or loaded.all():
        return open_
    outside = np.flatnonzero(
        ~loaded & (_apart(boxes, low.min(0), high.max(0)) <= float(need.max()) ** 2)
    )
    part = boxes[:, outside]
    order = np.argsort(cell, kind="stable")
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    for rows in np.split(order, starts[1:]):  # those of a cell are seldom near more than a few
        at, to, reach = low[rows], high[rows], need[rows] ** 2
        close = _apart(part, at.min(0), to.max(0)) <= reach.max()
        for c in np.flatnonzero(close):
            off = np.maximum(np.maximum(part[0, c] - to, at - part[1, c]), 0)
            open_[rows] |= np.einsum("nc,nc->n", off, off) <= reach
    return open_


def _apart(boxes: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:  # (C,)
    """Squared distances of boxes to one box."""
    off = np.maximum(np.maximum(boxes[0] - high, low - boxes[1]), 0)
    square: np.ndarray = np.einsum("cd,cd->c", off, off)
    return square
