"""A cloud at several scales: nested subsets, the K nearest of each, and the plane they form.

Level l is a subset of about N / 4^l points, so that its K nearest points span as much as the
K 4^l nearest of the cloud at the price of K. What is left out is not lost: every point of a subset
stands for the points that are nearer to it than to any other, with their mean and their spread.
The planes of the coarse levels are those of `veckm.moments`, which see all points under a smooth
window; where too few are in it, those of the subset. Scales follow the density of the cloud, and
nothing has to be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from veckm.engines.lattice import TooFine
from veckm.moments import moments
from veckm.parallel import share, workers
from veckm.tasks.normals import eigen

LEVELS, NEIGHBORS = 4, 12
#: Standard deviations of the windows of coarse levels, in units of the spacing, and the points
#: that must be in one.
_SIGMA = {2: 6.0, 3: 12.0}
_FEWEST = 12.0
#: Points looked at together: their neighbours stay in the cache.
_ROWS = 2048
#: Cells of the hash, in units of the median distance of neighbours.
_CELL = 1 / 8
#: Points that tell the spacing of a cloud.
_PROBES = 4096


@dataclass(frozen=True)
class Levels:
    """What the estimators look at; lengths in units of the spacing, about the middle."""

    index: Tensor  # (N, L, K) int32: the nearest points in each subset
    radius: Tensor  # (N, L): the distance of the farthest of them
    table: Tensor  # (N, L, 8): where a point is at a level, and the plane that it sees there

    def __len__(self) -> int:
        return len(self.index)

    @property
    def pos(self) -> Tensor:
        """(N, 3)."""
        return self.table[:, 0, PLACE]

    @property
    def normal(self) -> Tensor:
        """(N, L, 3): of the plane of the neighbours."""
        return self.table[:, :, NORMAL]


#: Columns of the table: the place, the normal, sqrt(l0 / l1) of the eigenvalues of the plane's
#: points (0 flat, 1 a ball), and the height of the point over the plane in radii.
PLACE, NORMAL, ROUGH, HEIGHT = slice(0, 3), slice(3, 6), 6, 7


def make_levels(pos: Tensor) -> Levels:  # (N, 3), N >= 1
    """Subsets, neighbours and planes of all levels."""
    points = centred(pos)[0]
    x = points.numpy()
    rank = hashed(np.floor(x / _CELL).astype(np.int64))
    index, radius = _neighbors(x, rank)
    place = points.float()
    table = torch.empty(len(x), LEVELS, 8)
    for level in range(LEVELS):
        _planes(level, place, index, radius, table)
    return Levels(index, radius, table)


def centred(pos: Tensor) -> tuple[Tensor, float]:
    """(N, 3) float64 about the middle of the cloud in units of its spacing, and the spacing."""
    x = pos.detach().cpu().double()
    x = x - (x.amin(0) + x.amax(0)) / 2
    size = spacing(x.numpy())
    return x / size, size


def spacing(x: np.ndarray) -> float:  # (N, 3)
    """The median distance to the fourth nearest neighbour, halved: about that of the nearest.

    Probes are spread by hash, not by order, so that a shuffled cloud has the same spacing.
    """
    if len(x) < 2:
        return 1.0
    extent = float((x.max(0) - x.min(0)).max()) or 1.0
    rank = hashed(np.floor(x / extent * 4096).astype(np.int64))
    probes = np.argsort(rank, kind="stable")[:_PROBES]
    k = min(5, len(x))
    far = _tree(x).query(x[probes], k=[k], workers=torch.get_num_threads())[0][:, 0]
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


def _neighbors(x: np.ndarray, rank: np.ndarray) -> tuple[Tensor, Tensor]:
    """The K nearest of every subset for all points: (N, L, K) and (N, L)."""
    n = len(x)
    index = np.empty((n, LEVELS, NEIGHBORS), np.int32)
    radius = np.empty((n, LEVELS), np.float32)
    for level in range(LEVELS):
        members = _subset(rank, level)
        k = min(NEIGHBORS, len(members))
        far, near = _tree(x[members]).query(
            x, k=np.arange(1, k + 1), workers=torch.get_num_threads()
        )
        index[:, level, :k] = members[near]
        index[:, level, k:] = index[:, level, :1]  # a tiny cloud: the nearest again
        radius[:, level] = far[:, -1]
    return torch.from_numpy(index), torch.from_numpy(radius).clamp_min_(1e-6)


def _subset(rank: np.ndarray, level: int) -> np.ndarray:
    """The rows of about N / 4^level points, and never fewer than two neighbourhoods' worth."""
    if level == 0:
        return np.arange(len(rank))
    members = np.flatnonzero(rank < np.uint64(2 ** (64 - 2 * level)))
    least = min(2 * NEIGHBORS, len(rank))
    return members if len(members) >= least else np.argsort(rank, kind="stable")[:least]


def _tree(x: np.ndarray) -> cKDTree:
    return cKDTree(x, leafsize=16, compact_nodes=False, balanced_tree=False)


def _planes(level: int, place: Tensor, index: Tensor, radius: Tensor, table: Tensor) -> None:
    """Fill one level of the table."""
    count, mean, spread = _clusters(place, index[:, level, 0].long()) if level else _alone(place)
    table[:, level, PLACE] = mean
    left = _window(level, place, radius, table) if level in _SIGMA else torch.arange(len(place))

    def work(rows: Tensor) -> None:
        at, reach = place[rows].t(), radius[rows, level]
        near = index[rows, level].long().t().reshape(-1)  # (K n): sums over neighbours are long
        u = mean.index_select(0, near).t().reshape(3, NEIGHBORS, -1)
        u = (u - at[:, None]) / reach
        w = (1 - eigen.dot(u, u) / 1.5).clamp_(min=0.01).square_()
        w *= count.index_select(0, near).view(NEIGHBORS, -1)
        w /= w.sum(0)
        middle = (u * w).sum(1)  # (3, n)
        between = (eigen.outer(u - middle[:, None]) * w).sum(1)
        within = (spread.index_select(0, near).t().reshape(6, NEIGHBORS, -1) * w).sum(1)
        _write(table, rows, level, middle, between + within / reach.square())

    share(left.split(_ROWS), lambda _: work, workers(index.device, len(left) // _ROWS))


def _alone(place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """At the finest level every point stands for itself."""
    return place.new_ones(len(place)), place, place.new_zeros(1, 6).expand(len(place), -1)


def _clusters(place: Tensor, owner: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the points that are nearest to each member of a subset: (N,) how many, (N, 3) their mean,
    (N, 6) their covariance. Rows that are no members mean nothing."""
    count = torch.zeros(len(place)).index_add_(0, owner, torch.ones(len(place)))
    share_of = count.clamp_min(1.0)[:, None]
    off = place - place[owner]
    mean = torch.zeros_like(place).index_add_(0, owner, off) / share_of
    second = place.new_zeros(len(place), 6).index_add_(0, owner, eigen.outer(off.t()).t())
    return count, place + mean, second / share_of - eigen.outer(mean.t()).t()


def _window(level: int, place: Tensor, radius: Tensor, table: Tensor) -> Tensor:
    """The planes of a smooth window over all points; returns the rows where it holds too few."""
    try:
        m = moments(place, beta=1 / _SIGMA[level], eps=1e-2, progress=False)
    except TooFine:  # points so far apart that no window of this size holds enough
        return torch.arange(len(place))
    covariance = eigen.packed(m.covariance)
    _write(table, torch.arange(len(place)), level, m.mean.t() / radius[:, level], covariance)
    return (m.weight < _FEWEST).nonzero()[:, 0]


def _write(table: Tensor, rows: Tensor, level: int, middle: Tensor, covariance: Tensor) -> None:
    """The plane of points about `middle` (3, n), from where the point is, in radii."""
    normal = eigen.smallest(covariance)
    low, between, _ = eigen.spectrum(covariance, normal)
    table[rows, level, NORMAL] = normal.t()
    table[rows, level, ROUGH] = (low / between.clamp_min(1e-12)).clamp_(0, 1).sqrt_()
    table[rows, level, HEIGHT] = -eigen.dot(middle, normal)
