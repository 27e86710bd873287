"""What of a cloud must be known before any part of it can be looked at alone.

Lengths are in units of the spacing and about the middle of the cloud; everything that looks random,
who is in a subset and who comes first among the equally near, is a hash of the place. So a part of
a cloud in the frame of the whole has the subsets and the neighbors of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree
from torch import Tensor

from veckm.parallel import threads

#: Points that tell the spacing of a cloud, and cells across it that they are drawn by.
PROBES, PROBE_CELLS = 4096, 4096
#: The spacing is half the distance to this neighbor, the point itself counted.
NEIGHBOR = 5
#: Equal distances are told apart by moves this small, in units of the spacing: of places, and of
#: copies in one place.
_MOVE, _COPY = 1e-7, 1e-8


@dataclass(frozen=True)
class Frame:
    """Where a cloud is, how dense, and how many points it has."""

    middle: tuple[float, float, float]
    spacing: float
    count: int

    def place(self, pos: Tensor) -> Tensor:  # (N, 3) -> (N, 3) float64
        """Points in units of the spacing, about the middle."""
        x = pos.detach().cpu().double()
        return (x - x.new_tensor(self.middle)) / self.spacing


def frame_of(pos: Tensor) -> Frame:  # (N, 3)
    """The frame of a whole cloud."""
    x = pos.detach().cpu().double()
    middle = (x.amin(0) + x.amax(0)) / 2
    a, b, c = middle.tolist()
    return Frame((a, b, c), spacing((x - middle).numpy()), len(x))


def centered(pos: Tensor) -> tuple[Tensor, float]:
    """(N, 3) float64 about the middle of the cloud in units of its spacing, and the spacing."""
    frame = frame_of(pos)
    return frame.place(pos), frame.spacing


def spacing(x: np.ndarray) -> float:  # (N, 3)
    """The median distance to the fourth nearest neighbor, halved: about that of the nearest.

    Probes are spread by hash, not by order, so that a shuffled cloud has the same spacing.
    """
    if len(x) < 2:
        return 1.0
    extent = float((x.max(0) - x.min(0)).max()) or 1.0
    probes = np.argsort(probe_rank(x, extent), kind="stable")[:PROBES]
    k = min(NEIGHBOR, len(x))
    far = make_tree(x).query(x[probes], k=[k], workers=threads())[0][:, 0]
    return spacing_of(far, extent)


def probe_rank(x: np.ndarray, extent: float) -> np.ndarray:  # (N, 3) -> (N,) uint64
    """Those of least rank are the probes; `x` is about the middle of the cloud."""
    return hashed(np.floor(x / extent * PROBE_CELLS).astype(np.int64))


def spacing_of(far: np.ndarray, extent: float) -> float:
    """From the distances of the probes to their fourth neighbors."""
    middle = float(np.median(far[far > 0])) / 2 if (far > 0).any() else 0.0
    return max(middle, extent * 1e-7)


def hashed(cells: np.ndarray) -> np.ndarray:  # (N, 3) int64 -> (N,) uint64
    """A fixed pseudo-random number for every cell: who is in a subset depends on place alone."""
    h = np.zeros(len(cells), np.uint64)
    for axis, odd in enumerate((0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)):
        h ^= cells[:, axis].view(np.uint64) * np.uint64(odd)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    return h


def untied(x: np.ndarray, ids: np.ndarray, size: float = 1.0) -> np.ndarray:
    """Points moved by next to nothing, so that no two are equally far from a third.

    Which of two equally near neighbors a tree finds depends on all the points in it. On a regular
    grid, or where coordinates are rounded, that is every second neighborhood. The move is a hash
    of the place, for copies in one place also of their number in the cloud.

    Shapes:
        - x: (N, 3) float64, lengths in units of `size`
        - ids: (N,) int64
        - output: (N, 3) float64
    """
    places = hashed((x + 0.0).view(np.int64))  # minus zero is zero
    copies = hashed(np.repeat(ids[:, None], 3, 1))
    return x + size * (_MOVE * _vectors(places) + _COPY * _vectors(copies))


def _vectors(h: np.ndarray) -> np.ndarray:  # (N,) uint64 -> (N, 3) in [-1/2, 1/2)
    parts = [(h >> np.uint64(shift)) & np.uint64(0x1FFFFF) for shift in (0, 21, 42)]
    return np.stack(parts, 1).astype(np.float64) / 2**21 - 0.5


def make_tree(x: np.ndarray) -> cKDTree:
    """The fastest to make."""
    return cKDTree(x, leafsize=16, compact_nodes=False, balanced_tree=False)
