"""What the normal of a point depends on, through all stages of the network.

Lengths are in spacings, about the middle of the cloud, as in `veckm.tasks.normals.frame`.
"""

from __future__ import annotations

import numpy as np

from veckm.scan.region import near_rows, open_rows
from veckm.tasks.normals.levels import LEVELS, NEIGHBORS, SLACK, Hierarchy, window_domain

#: Rows whose neighbors are looked at together.
_ROWS = 1 << 17
#: Distances are float32 numbers of moved points: a little more is asked for than they say.
_MORE, _ABOUT = 1 + 1e-5, 1e-5
#: A first look reaches at most so many times as far as half of the points ask for.
_LONELY = 2.0


class Cone:
    """The points that the answers at some rows depend on, as far as they are in memory.

    Attributes:
        stages: for each stage of the network the rows that it must answer for.
        planes: the rows whose planes the first of them looks at.
        members: the rows that stand for others in these planes.
    """

    def __init__(self, points: Hierarchy, own: np.ndarray, stages: int) -> None:  # (n,)
        self.points, self.own = points, own
        inside = np.zeros(len(points.x), bool)
        inside[own] = True
        frontier, rows = own, [own]
        points.look_up(own)
        for _ in range(stages):
            reached = inside.copy()
            _mark(reached, points.index, frontier)
            frontier = np.flatnonzero(reached & ~inside)
            points.look_up(frontier)
            inside = reached
            rows.append(np.flatnonzero(inside))
        self.planes, self.stages = rows[-1], rows[-2::-1]
        standing = np.zeros(len(inside), bool)
        _mark(standing, points.index[:, 1:], self.planes)
        self.members = np.flatnonzero(standing)
        points.look_up(self.members)
        self.all = np.flatnonzero(standing | inside)

    def proven(self, boxes: np.ndarray, loaded: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """(n,) bool: the rows that no point of the cells that are not in memory could change.

        Shapes:
            - boxes: (2, C, 3) of all cells
            - loaded: (C,) bool
            - cell: (M,) the cell of each point in memory
        """
        if loaded.all():
            return np.ones(len(self.own), bool)
        holds, stands = np.ones(len(cell), bool), np.ones(len(cell), bool)
        for rows, low, high, need, around in self._needs(boxes):
            target = stands if rows is self.members else holds
            target[rows] &= ~open_rows(around, loaded, cell[rows], low, high, need)
        index = self.points.index
        now = holds.copy()
        now[self.planes] &= _all(stands, index[:, 1:], self.planes)
        for rows in self.stages:
            then = now.copy()
            then[rows] &= _all(now, index, rows)
            now = then
        return np.take(now, self.own)

    def needed(self, boxes: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """(C,) bool: the cells that come too near to what is here to be left out."""
        out = np.zeros(boxes.shape[1], bool)
        out[cell[self.all]] = True
        for rows, low, high, need, around in self._needs(boxes):
            out |= near_rows(around, cell[rows], low, high, need)
        return out

    def _needs(
        self, boxes: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Rows, each with a box, how far from it all must be known, and the boxes of all cells."""
        x, radius, rank = self.points.x, self.points.radius, self.points.rank
        at = x[self.planes]
        nearest = radius[self.planes, -1] * _MORE + _ABOUT
        # Windows depend on whole cells of their own grid.
        side, reach = window_domain()
        corner = np.floor(at / side) * side
        wide = np.stack([np.floor(boxes[0] / side) * side, (np.floor(boxes[1] / side) + 1) * side])
        window = np.full(len(at), reach * _MORE)
        # Points that a member stands for are within its radius, and it is nearest to them: nobody
        # within twice that radius may be missing.
        member = x[self.members]
        top = sum((rank[self.members] < np.uint64(2 ** (64 - 2 * k))) for k in range(1, LEVELS))
        around = 2 * SLACK * radius[self.members, np.asarray(top, np.int64)] * _MORE + _ABOUT
        return [
            (self.planes, at, at, nearest, boxes),
            (self.planes, corner, corner + side, window, wide),
            (self.members, member, member, around, boxes),
        ]


def first_guess(boxes: np.ndarray, counts: np.ndarray, stages: int) -> np.ndarray:
    """How far around cells to look at first, from their density as that of a surface.

    A lonely cell among crowded ones would ask for very many of these; its points, which are few,
    are better looked at again by what they need.

    Shapes:
        - boxes: (2, c, 3)
        - counts: (c,)
        - output: (c,)
    """
    sides = np.sort(boxes[1] - boxes[0], 1)
    each = sides[:, 1] * sides[:, 2] / counts  # area a point
    far = 1.2 * np.sqrt(NEIGHBORS * 4 ** (LEVELS - 1) / np.pi * each)
    side, reach = window_domain()
    guess: np.ndarray = stages * far + np.maximum(2 * side + reach, 3 * far)
    return capped(guess, counts)


def capped(reach: np.ndarray, counts: np.ndarray) -> np.ndarray:  # (c,), (c,) -> (c,)
    """Reaches of cells, none far beyond what half of the points have, `counts` of them in each."""
    order = np.argsort(reach)
    total = np.cumsum(counts[order])
    middle = reach[order][np.searchsorted(total, total[-1] / 2)]
    out: np.ndarray = np.minimum(reach, _LONELY * middle)
    return out


def _mark(mask: np.ndarray, index: np.ndarray, rows: np.ndarray) -> None:
    for first in range(0, len(rows), _ROWS):
        mask[index[rows[first : first + _ROWS]].ravel()] = True


def _all(mask: np.ndarray, index: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """For each row, whether the mask holds for all its neighbors."""
    parts = [
        mask[index[rows[first : first + _ROWS]]].all((1, 2)) for first in range(0, len(rows), _ROWS)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, bool)
