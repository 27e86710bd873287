"""Light and shade from the shape alone, so that a cloud in one color is still readable."""

from __future__ import annotations

from itertools import product

import numpy as np

from veckm.viewer.display import cells, grid_side

#: Points of a cell on a surface, about; a plane is fitted to a cell and those around it.
_PER_CELL = 6
#: Where the light comes from, and the brightness of a surface that it only grazes.
_LIGHT = np.array([-0.45, -0.6, 0.66]) / np.linalg.norm([-0.45, -0.6, 0.66])
_DARKEST = 0.3
_PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


def shade(rgb: np.ndarray, at: np.ndarray) -> np.ndarray:  # (M, 3) uint8, (M, 3) -> (M, 3)
    """Colors of points darkened by |n . light|, for which a normal may have either direction."""
    light = np.abs(_cell_normals(at) @ _LIGHT)
    factor = (_DARKEST + (1 - _DARKEST) * light).astype(np.float32)
    darkened: np.ndarray = np.rint(rgb * factor[:, None]).astype(np.uint8)
    return darkened


def _cell_normals(at: np.ndarray) -> np.ndarray:  # (M, 3) -> (M, 3)
    """Normals of planes through the points of each cell and the 26 around it."""
    index, cell, count = cells(at, _PER_CELL)
    side = grid_side(at, _PER_CELL)
    offset = at - at.min(0) - (index[cell] + 0.5).astype(np.float32) * side
    first = np.stack([np.bincount(cell, offset[:, k]) for k in range(3)], axis=1)  # (C, 3)
    second = np.empty((len(index), 3, 3))
    for i, j in _PAIRS:
        second[:, i, j] = second[:, j, i] = np.bincount(cell, offset[:, i] * offset[:, j])
    shape = tuple(index.max(0) + 3)
    key = np.ravel_multi_index(tuple((index + 1).T), shape)
    total, mean, square = np.zeros(len(key)), np.zeros((len(key), 3)), np.zeros((len(key), 3, 3))
    for step in product((-1, 0, 1), repeat=3):
        other = np.ravel_multi_index(tuple((index + 1 + step).T), shape)
        place = np.searchsorted(key, other).clip(0, len(key) - 1)
        here = np.flatnonzero(key[place] == other)
        place, d = place[here], np.array(step) * side  # moments about the middle cell's center
        n, s = count[place], first[place]
        mixed = s[:, :, None] * d
        total[here] += n
        mean[here] += s + n[:, None] * d
        square[here] += (
            second[place] + mixed + mixed.transpose(0, 2, 1) + n[:, None, None] * np.outer(d, d)
        )
    mean /= total[:, None]
    covariance = square / total[:, None, None] - mean[:, :, None] * mean[:, None, :]
    normals: np.ndarray = np.linalg.eigh(covariance)[1][:, :, 0]
    found: np.ndarray = normals[cell]
    return found
