"""A cloud at several scales: nested subsets, the K nearest of each, and the plane they form.

Level l is a subset of about N / 4^l points, so that its K nearest points span as much as the
K 4^l nearest of the cloud at the price of K. What is left out is not lost: every point of a subset
stands for the points that are nearer to it than to any other, with their mean and their spread.
The planes of the coarse levels are those of `veckm.moments`, which see all points under a smooth
window; where too few are in it, those of the subset. Scales follow the density of the cloud, and
nothing has to be chosen.

All of it is local: in the frame of the whole cloud (`frame.py`), a part with enough around it has
the levels of the whole, but for rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from veckm.engines import GridTooLarge
from veckm.functional import moments
from veckm.moments import Moments, domain, local_moments
from veckm.parallel import one_thread, share, threads, workers
from veckm.tasks.normals import eigen
from veckm.tasks.normals.frame import Frame, centered, frame_of, hashed, make_tree, spacing, untied

__all__ = [
    "LEVELS",
    "NEIGHBORS",
    "Hierarchy",
    "Levels",
    "centered",
    "hashed",
    "make_levels",
    "make_tables",
    "spacing",
]

LEVELS, NEIGHBORS = 4, 12
#: A subset has at least so many points, or all.
FEWEST_MEMBERS = 2 * NEIGHBORS
#: Standard deviations of the windows of coarse levels, in units of the spacing, their accuracy,
#: and the points that must be in one.
_SIGMA = {2: 6.0, 3: 12.0}
_EPS = 1e-2
_FEWEST = 12.0
#: Doublings from the smallest cell of the moments to the largest: about 30 spacings for both.
_DOUBLINGS = {2: 4, 3: 3}
#: Up to so many points all pairs are faster than a grid.
_SMALL = 1448
#: Points looked at together: their neighbors stay in the cache.
_ROWS = 2048
#: Cells of the hash, in units of the median distance of neighbors.
_CELL = 1 / 8
#: A point as far from its member as the farthest neighbor of that, but for rounding, belongs.
SLACK = 1 + 1e-4


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
        """(N, L, 3): of the plane of the neighbors."""
        return self.table[:, :, NORMAL]


#: Columns of the table: the place, the normal, sqrt(l0 / l1) of the eigenvalues of the plane's
#: points (0 flat, 1 a ball), and the height of the point over the plane in radii.
PLACE, NORMAL, ROUGH, HEIGHT = slice(0, 3), slice(3, 6), 6, 7


@one_thread()
def make_levels(
    pos: Tensor,  # (N, 3), N >= 1
    ids: Tensor | None = None,  # (N,)
) -> Levels:
    """Subsets, neighbors and planes of all levels.

    Args:
        pos: the cloud.
        ids: the number of each point in the cloud, where the points come in another order.
    """
    frame = frame_of(pos)
    numbers = np.arange(len(pos)) if ids is None else ids.numpy()
    points = Hierarchy(frame.place(pos).numpy(), numbers)
    points.find(np.arange(len(pos)))
    return make_tables(points, torch.arange(len(pos)), frame)


class Hierarchy:
    """Points in the frame of their cloud, their subsets, and the neighbors that were looked up."""

    def __init__(self, x: np.ndarray, ids: np.ndarray) -> None:  # (N, 3) float64, (N,)
        self.x = x
        self.rank = hashed(np.floor(x / _CELL).astype(np.int64))
        self.index = np.empty((len(x), LEVELS, NEIGHBORS), np.int32)
        self.radius = np.empty((len(x), LEVELS), np.float32)
        self.known = np.zeros(len(x), bool)
        self._ids = ids

    @cached_property
    def members(self) -> list[np.ndarray]:
        """The rows of each subset."""
        return [_subset(self.rank, level) for level in range(LEVELS)]

    @cached_property
    def _moved(self) -> np.ndarray:
        return untied(self.x, self._ids)

    @cached_property
    def _trees(self) -> list[cKDTree]:
        return [make_tree(self._moved[members]) for members in self.members]

    @property
    def enough(self) -> bool:
        """Whether every subset has as many points as it must have without being filled up."""
        return bool((self.rank < _threshold(LEVELS - 1)).sum() >= FEWEST_MEMBERS)

    def look_up(self, rows: np.ndarray) -> None:
        """Find the neighbors of those rows where they are not known yet."""
        new = rows[~self.known[rows]]
        if len(new):
            self.find(new)

    def find(self, rows: np.ndarray) -> None:
        """The K nearest of every subset for some points: index (., L, K) and radius (., L)."""
        self.known[rows] = True
        at = self._moved[rows]
        for level, (tree, members) in enumerate(zip(self._trees, self.members, strict=True)):
            k = min(NEIGHBORS, len(members))
            far, near = tree.query(at, k=np.arange(1, k + 1), workers=threads())
            self.index[rows, level, :k] = members[near]
            if k < NEIGHBORS:  # a tiny cloud: the nearest again
                self.index[rows, level, k:] = members[near[:, :1]]
            self.radius[rows, level] = np.maximum(far[:, -1], 1e-6)

    def owners(self, level: int) -> np.ndarray:  # (N,) int64
        """For every point the nearest member of a subset; of those without neighbors that were
        looked up, only where a member that has some may stand for it."""
        owner = self.index[:, level, 0].astype(np.int64)
        other = np.flatnonzero(~self.known)
        if not len(other):
            return owner
        owner[other] = other  # who is too far from all that are known belongs to nobody of these
        known = self.x[self.known]
        far = float(self.radius[self.known, level].max()) * SLACK * SLACK
        inside = (self.x[other] >= known.min(0) - far) & (self.x[other] <= known.max(0) + far)
        other = other[inside.all(1)]
        distance, near = self._trees[level].query(
            self._moved[other], distance_upper_bound=far, workers=threads()
        )
        found = np.isfinite(distance)
        owner[other[found]] = self.members[level][near[found]]
        return owner


def _subset(rank: np.ndarray, level: int) -> np.ndarray:
    """The rows of about N / 4^level points, and never fewer than two neighborhoods' worth."""
    if level == 0:
        return np.arange(len(rank))
    members = np.flatnonzero(rank < _threshold(level))
    least = min(FEWEST_MEMBERS, len(rank))
    return members if len(members) >= least else np.argsort(rank, kind="stable")[:least]


def _threshold(level: int) -> np.uint64:
    """Ranks below are in the subset: one in 4^level."""
    return np.uint64(2 ** (64 - 2 * level))


@one_thread()
def make_tables(
    points: Hierarchy,
    rows: Tensor,  # (n,) int64
    frame: Frame,
    origin: np.ndarray | None = None,  # (3,)
) -> Levels:
    """The planes of some points, whose neighbors must be known, and those of these too.

    Args:
        points: all that is at hand.
        rows: of them, those to look at; the other rows of the result mean nothing.
        frame: of the whole cloud.
        origin: where the places of the result count from; float32 is exact near it.
    """
    x = torch.from_numpy(points.x)
    place = (x if origin is None else x - torch.from_numpy(origin)).float()
    index, radius = torch.from_numpy(points.index), torch.from_numpy(points.radius)
    levels = Levels(index, radius, torch.empty(len(x), LEVELS, 8))
    for level in range(LEVELS):
        clusters = _alone(place)
        if level:
            owner = torch.from_numpy(points.owners(level))
            clusters = _clusters(place, owner, radius[:, level])
        levels.table[:, level, PLACE] = clusters[1]
        left = _window(level, x, levels, rows, frame) if level in _SIGMA else rows
        _planes(level, place, levels, left, clusters)
    return levels


def window_domain() -> tuple[float, float]:
    """Cells of the widest windows, and how far apart two that matter may be, in spacings."""
    sizes = [domain(1 / sigma, _EPS, _DOUBLINGS[level]) for level, sigma in _SIGMA.items()]
    return max(side for side, _ in sizes), max(reach for _, reach in sizes)


_Clusters = tuple[Tensor, Tensor, Tensor]


def _planes(level: int, place: Tensor, levels: Levels, left: Tensor, clusters: _Clusters) -> None:
    """Fill one level of the table for the rows `left` from the clusters of their neighbors."""
    count, mean, spread = clusters
    index, radius, table = levels.index, levels.radius, levels.table

    def work(rows: Tensor) -> None:
        at, reach = place[rows].t(), radius[rows, level]
        near = index[rows, level].long().t().reshape(-1)  # (K n): sums over neighbors are long
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


def _alone(place: Tensor) -> _Clusters:
    """At the finest level every point stands for itself."""
    return place.new_ones(len(place)), place, place.new_zeros(1, 6).expand(len(place), -1)


def _clusters(place: Tensor, owner: Tensor, radius: Tensor) -> _Clusters:
    """Of the points that are nearest to each member of a subset: (N,) how many, (N, 3) their mean,
    (N, 6) their covariance. Rows that are no members mean nothing.

    A point beyond the farthest neighbor of its member, as outliers are, belongs to nobody.
    """
    off = place - place[owner]
    near = off.square().sum(1) <= (SLACK * radius[owner]).square()
    weight = near.float()
    off = off * weight[:, None]
    count = torch.zeros(len(place)).index_add_(0, owner, weight)
    share_of = count.clamp_min(1.0)[:, None]
    mean = torch.zeros_like(place).index_add_(0, owner, off) / share_of
    second = place.new_zeros(len(place), 6).index_add_(0, owner, eigen.outer(off.t()).t())
    return count, place + mean, second / share_of - eigen.outer(mean.t()).t()


def _window(level: int, x: Tensor, levels: Levels, rows: Tensor, frame: Frame) -> Tensor:
    """The planes of a smooth window over all points; returns the rows where it holds too few."""
    part = rows.new_zeros(len(x), dtype=torch.bool)
    part[rows] = True
    wanted = part.clone()
    if len(rows) < len(x):
        part = _around(x, rows, *domain(1 / _SIGMA[level], _EPS, _DOUBLINGS[level]))
    try:
        m = _moments(level, x[part], frame, wanted[part])
    except GridTooLarge:  # points so far apart that no window of this size holds enough
        return rows
    at = (part.cumsum(0) - 1)[rows]
    covariance = eigen.packed(m.covariance[at])
    middle = m.mean[at].t() / levels.radius[rows, level]
    _write(levels.table, rows, level, middle, covariance)
    return rows[m.weight[at] < _FEWEST]


def _moments(level: int, x: Tensor, frame: Frame, wanted: Tensor) -> Moments:
    beta = 1 / _SIGMA[level]
    if frame.count <= _SMALL:
        return moments(x.float(), beta=beta, eps=_EPS, engine="dense", progress=False)
    chosen = None if bool(wanted.all()) else wanted
    return local_moments(x, beta=beta, eps=_EPS, levels=_DOUBLINGS[level], wanted=chosen)


def _around(x: Tensor, rows: Tensor, side: float, reach: float) -> Tensor:  # (N,) bool
    """The points of all cells that matter to some of them: see `veckm.moments.domain`."""
    cell = np.floor(x.numpy() / side).astype(np.int64)
    cell -= cell.min(0)
    far = math.ceil(reach / side)
    size = cell.max(0) + 2 * far + 1
    step = np.array([size[1] * size[2], size[2], 1])
    key = (cell + far) @ step
    steps = np.arange(-far, far + 1)
    around = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(-1, 3) @ step
    kept = np.unique(np.unique(key[rows.numpy()])[:, None] + around)
    return torch.from_numpy(np.isin(key, kept))


def _write(table: Tensor, rows: Tensor, level: int, middle: Tensor, covariance: Tensor) -> None:
    """The plane of points about `middle` (3, n), from where the point is, in radii."""
    normal = eigen.smallest(covariance)
    low, between, _ = eigen.spectrum(covariance, normal)
    table[rows, level, NORMAL] = normal.t()
    table[rows, level, ROUGH] = (low / between.clamp_min(1e-12)).clamp_(0, 1).sqrt_()
    table[rows, level, HEIGHT] = -eigen.dot(middle, normal)
