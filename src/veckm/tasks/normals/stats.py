"""Statistics of a whole cloud, known before any part of it is looked at.

Lengths are in units of the spacing, about the middle of the cloud. Random choices (which points
are in a subset, which of two equally near neighbors comes first) are hashes of the position. A part
of a cloud therefore has the subsets and the neighbors of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veckm.knn import build_tree, query

Chunks = Callable[[], Iterable[np.ndarray]]  # the points again, (n, 3) float64 at a time

#: Points that the spacing is measured at, and cells across the cloud that they are drawn by.
_PROBES, _PROBE_CELLS = 4096, 4096
#: The spacing is half the distance to this neighbor, the point itself counted.
_NEIGHBOR = 5
#: Ties of distance are broken by moves this small, in units of the spacing: of positions, and of
#: copies at one position.
_MOVE, _COPY = 1e-7, 1e-8


@dataclass(frozen=True)
class GlobalStats:
    """What the estimate at one point needs to know about the whole cloud.

    Attributes:
        middle: center of the bounding box.
        spacing: about the distance from a point to the nearest one.
        count: number of points.
        collinear: all points lie on one line or at one position, up to rounding.
    """

    middle: tuple[float, float, float]
    spacing: float
    count: int
    collinear: bool

    @classmethod
    def of(cls, chunks: Chunks, rounding: float = float(np.finfo(np.float64).eps)) -> GlobalStats:
        """Stream over the points three times; the result does not depend on their order.

        Args:
            chunks: yields all points, at least one, each time it is called.
            rounding: relative rounding of the coordinates.
        """
        boxes = [(len(x), x.min(0), x.max(0)) for x in chunks()]
        count = sum(n for n, _, _ in boxes)
        low, high = np.min([b for _, b, _ in boxes], 0), np.max([b for _, _, b in boxes], 0)
        middle, extent = (low + high) / 2, float((high - low).max()) or 1.0
        first, second = np.zeros(3), np.zeros((3, 3))
        probes = np.zeros((0, 3))
        for x in chunks():
            off = x - middle
            first, second = first + off.sum(0), second + off.T @ off
            some = np.concatenate([probes, x])
            cells = np.floor((some - middle) / extent * _PROBE_CELLS).astype(np.int64)
            probes = _least(some, hash_cells(cells))
        mean = first / count
        spread = np.sqrt(np.linalg.eigvalsh(second / count - np.outer(mean, mean)).clip(0))
        tiny = 4 * rounding * np.abs([low, high]).max()
        line = bool(spread[1] <= max(tiny, 1e-7 * spread[2]))
        spacing = 1.0 if count < 2 else _spacing(probes, chunks, min(_NEIGHBOR, count), extent)
        x, y, z = middle.tolist()
        return cls((x, y, z), spacing, count, line)

    def scaled(self, x: np.ndarray) -> np.ndarray:  # (..., 3) -> (..., 3) float64
        """Positions in units of the spacing, about the middle."""
        return np.asarray((x - np.array(self.middle)) / self.spacing)


def stats_of(pos: Tensor) -> GlobalStats:  # (N, 3)
    """The statistics of a cloud in memory."""
    x = pos.detach().cpu().double().numpy()
    return GlobalStats.of(lambda: [x], torch.finfo(pos.dtype).eps)


def _least(x: np.ndarray, rank: np.ndarray) -> np.ndarray:  # (n, 3), (n,) -> (p, 3)
    """The probes of least rank; equal ranks by coordinates, so that any order will do."""
    if len(rank) > _PROBES:
        some = rank <= np.partition(rank, _PROBES - 1)[_PROBES - 1]
        x, rank = x[some], rank[some]
    return x[np.lexsort((*x.T, rank))[:_PROBES]]


def _spacing(probes: np.ndarray, chunks: Chunks, k: int, extent: float) -> float:
    """The median distance to the fourth nearest neighbor, halved: about that of the nearest."""
    near = np.full((len(probes), k), np.inf)
    for x in chunks():
        gap = np.maximum(np.maximum(x.min(0) - probes, probes - x.max(0)), 0)
        some = np.flatnonzero(np.linalg.norm(gap, axis=1) <= near[:, -1])
        if len(some):
            found, _ = query(build_tree(x, balanced=False), probes[some], min(k, len(x)))
            near[some] = np.sort(np.concatenate([near[some], found], 1), 1)[:, :k]
    far = near[:, -1]
    typical = float(np.median(far[far > 0])) / 2 if (far > 0).any() else 0.0
    return max(typical, extent * 1e-7)


def hash_cells(cells: np.ndarray) -> np.ndarray:  # (N, 3) int64 -> (N,) uint64
    """A fixed pseudo-random number for every cell."""
    h = np.zeros(len(cells), np.uint64)
    for axis, odd in enumerate((0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)):
        h ^= cells[:, axis].view(np.uint64) * np.uint64(odd)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    return h


def hash_points(x: np.ndarray) -> np.ndarray:  # (N, 3) float64 -> (N,) uint64
    """A fixed pseudo-random number for every position."""
    return hash_cells((x + 0.0).view(np.int64))  # minus zero is zero


def thinned(rank: np.ndarray, level: int) -> np.ndarray:  # (N,) uint64 -> rows
    """About one point in 4^level: nested subsets by the rank of :func:`hash_cells`."""
    if level == 0:
        return np.arange(len(rank))
    return np.flatnonzero(rank < np.uint64(2 ** (64 - 2 * level)))


def break_ties(x: np.ndarray, ids: np.ndarray) -> np.ndarray:  # (N, 3), (N,) -> (N, 3)
    """Points moved by next to nothing, so that no two are equally far from a third.

    Which of two equally near neighbors a tree finds depends on all the points in it. On a regular
    grid, or where coordinates are rounded, that is every second neighborhood. The move is a hash of
    the position; for copies at one position also of their number in the cloud.
    """
    copies = hash_cells(np.repeat(ids[:, None], 3, 1))
    return x + _MOVE * _vectors(hash_points(x)) + _COPY * _vectors(copies)


def _vectors(h: np.ndarray) -> np.ndarray:  # (N,) uint64 -> (N, 3) in [-1/2, 1/2)
    parts = [(h >> np.uint64(shift)) & np.uint64(0x1FFFFF) for shift in (0, 21, 42)]
    return np.stack(parts, 1).astype(np.float64) / 2**21 - 0.5
