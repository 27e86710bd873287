"""Which way normals point where nobody says: towards the sensor, up, or out of the surface."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from veckm.tasks.normals.stats import Chunks

#: Columns along each side of the middle of a cloud, its standard deviation times this either way.
_COLUMNS, _SPAN = 32, 2.0
#: A sheet is at most this high, by standard deviations, as a share of its smaller side.
_FLAT = 0.5
#: One surface is this near to a plane, as a share of the side of a column; points that tell.
_THICK, _FEWEST = 0.1, 8
#: The share of columns with one surface that makes a sheet.
_SHEET = 0.5


class Direction(NamedTuple):
    """What to turn normals to, and why."""

    orient: Literal["viewpoint", "up", "consistent"]
    reason: str


def choose_direction(chunks: Chunks, *, sensor: bool = False, survey: bool = False) -> Direction:
    """The direction that the data suggest.

    A cloud seen from a known place is turned to it. A survey, or a cloud that most columns along z
    meet as one nearly flat surface, is a sheet seen from above: it is turned up. All else may be a
    closed object and is turned outwards. It depends on sums over all points only.

    Args:
        chunks: yields all points (n, 3), some at a time, each time it is called.
        sensor: whether it is known where the sensor was.
        survey: whether z is known to be up, as in LAS files.
    """
    if sensor:
        return Direction("viewpoint", "towards the sensor, whose position is known")
    if survey:
        return Direction("up", "up: a survey, in which z is the height")
    share = _single_columns(chunks)
    if share >= _SHEET:
        seen = f"{share:.0%} of its columns along z have one surface"
        return Direction("up", f"up: a sheet seen from above ({seen})")
    return Direction("consistent", "outwards: no sheet seen from above, and no known sensor")


def _single_columns(chunks: Chunks) -> float:
    """The share of columns along z whose points are near to a plane; 0 for a cloud that is high."""
    count, first, second = 0, np.zeros(3), np.zeros((3, 3))
    middle = next((x[0] for x in chunks() if len(x)), np.zeros(3))
    for x in chunks():
        off = x - middle
        count, first, second = count + len(x), first + off.sum(0), second + off.T @ off
    if count < _FEWEST:
        return 0.0
    mean = first / count
    spread = second / count - np.outer(mean, mean)
    if spread[2, 2] > _FLAT**2 * np.linalg.eigvalsh(spread[:2, :2])[0]:
        return 0.0
    side = 2 * _SPAN / _COLUMNS * np.sqrt(np.diag(spread)[:2].clip(1e-300))
    sums = np.zeros((_COLUMNS**2, 10))
    for x in chunks():
        sums += _column_sums(x - middle - mean, side)
    return _flat_share(sums[sums[:, 0] >= _FEWEST], side)


def _column_sums(x: np.ndarray, side: np.ndarray) -> np.ndarray:  # (n, 3), (2,) -> (C, 10)
    """1, x, y, z and their products, summed over the points of each column, about its middle."""
    cell = np.floor(x[:, :2] / side) + _COLUMNS // 2
    inside = ((cell >= 0) & (cell < _COLUMNS)).all(1)
    x, cell = x[inside].copy(), cell[inside]
    x[:, :2] -= (cell + 0.5 - _COLUMNS // 2) * side
    columns = np.column_stack((np.ones(len(x)), x))
    i, j = np.triu_indices(4)
    slot = cell[:, 0].astype(np.int64) * _COLUMNS + cell[:, 1].astype(np.int64)
    products = (columns[:, i] * columns[:, j]).T
    return np.stack([np.bincount(slot, each, _COLUMNS**2) for each in products], 1)


def _flat_share(sums: np.ndarray, side: np.ndarray) -> float:  # (C, 10), (2,)
    """The share of columns whose points are near to their plane of least squares."""
    if not len(sums):
        return 0.0
    i, j = np.triu_indices(4)
    full = np.zeros((len(sums), 4, 4))
    full[:, i, j] = full[:, j, i] = sums / sums[:, :1]
    a, b = full[:, :3, :3], full[:, :3, 3:]
    a = a + 1e-9 * np.diag([0.0, *side**2])  # points along a line have no plane
    rest = full[:, 3, 3] - (b * np.linalg.solve(a, b)).sum((1, 2))
    return float((rest < (_THICK * np.sqrt(side.prod())) ** 2).mean())
