"""A cloud at several scales: nested subsets, the K nearest neighbors in each, and their planes.

Level l is a subset of about N / 4^l points, so that its K nearest points span as much as the
K 4^l nearest of the cloud at the cost of K. The points that are left out still count: every point
of a subset represents those that are nearer to it than to any other, by their mean and covariance.
Beyond that see the VecKM encodings of two windows around every point (`encodings.py`). Scales
follow the density of the cloud, and nothing has to be chosen.

All of it is local: a part of a cloud with enough points around it, in the units and about the
middle of the whole (`stats.py`), has the pyramid of the whole, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from veckm.knn import build_tree, query
from veckm.parallel import one_thread, share, workers
from veckm.tasks.normals import eigen, encodings
from veckm.tasks.normals.stats import break_ties, hash_cells, stats_of, thinned

LEVELS, NEIGHBORS = 3, 12
#: A subset has at least so many points, or all.
_FEWEST_MEMBERS = 2 * NEIGHBORS
#: Points processed together: their neighbors stay in the cache.
_ROWS = 4096
#: Side of the cells that are hashed, in units of the spacing.
_CELL = 1 / 8
#: A point as far from its member as the farthest neighbor of that, up to rounding, belongs to it.
_SLACK = 1 + 1e-4

#: Columns of the table: the position, the normal, sqrt(l0 / l1) of the eigenvalues of the points
#: (0 a plane, 1 a ball), and the height of the point over the plane in radii.
POSITION, NORMAL, ROUGHNESS, HEIGHT = slice(0, 3), slice(3, 6), 6, 7


@dataclass(frozen=True)
class Pyramid:
    """The input of the estimators; lengths in units of the spacing."""

    index: Tensor  # (N, L, K) int32: the nearest points in each subset
    radius: Tensor  # (N, L): the distance of the farthest of them
    table: Tensor  # (N, L, 8): position of a point at a level, and the plane there
    #: (N, L) sqrt(l1 / l2) of the eigenvalues: 0 where the points lie on a line, as on the rings of
    #: a scanner, where their plane is undetermined; 1 where they are as wide as long
    width: Tensor
    encoding: Tensor  # (N, S, 2, RINGS, J) float16: see `encodings`


def make_pyramid(pos: Tensor) -> Pyramid:  # (N, 3), N >= 1
    """The pyramid of a whole cloud."""
    stats = stats_of(pos)
    x = stats.scaled(pos.detach().cpu().double().numpy())
    subsets = Subsets(x, np.arange(len(x)))
    return subsets.pyramid(*subsets.dependencies(np.arange(len(x)), 0))


class Subsets:
    """Points of a cloud or of a part of it, nested subsets of them, and neighbors in these."""

    def __init__(self, x: np.ndarray, ids: np.ndarray, family: int = 0) -> None:  # (N, 3), (N,)
        """Points (float64) in the units of their cloud, the number of each in it, and which of many
        equally good families of subsets."""
        self.x, self._ids = x, ids
        self.rank = hash_cells(np.floor(x / _CELL).astype(np.int64) + 7919 * family)
        self.index = np.empty((len(x), LEVELS, NEIGHBORS), np.int32)
        self.radius = np.zeros((len(x), LEVELS), np.float32)
        self._known = np.zeros(len(x), bool)

    @cached_property
    def members(self) -> list[np.ndarray]:
        """The rows of each subset: never fewer than two neighborhoods' worth."""
        out = [thinned(self.rank, level) for level in range(LEVELS)]
        least = min(_FEWEST_MEMBERS, len(self.rank))
        return [m if len(m) >= least else np.argsort(self.rank, kind="stable")[:least] for m in out]

    @property
    def complete(self) -> bool:
        """Whether no subset had to be filled up; only that of a whole, tiny cloud may be."""
        return len(thinned(self.rank, LEVELS - 1)) >= _FEWEST_MEMBERS

    @cached_property
    def moved(self) -> np.ndarray:
        """The points without ties of distance: (N, 3)."""
        return break_ties(self.x, self._ids)

    @cached_property
    def trees(self) -> list[cKDTree]:
        """Of the members of each subset, where they are moved to."""
        return [build_tree(self.moved[members], balanced=False) for members in self.members]

    def find(self, rows: np.ndarray) -> None:
        """The K nearest in every subset of some points, unless they are known: index, radius."""
        rows = rows[~self._known[rows]]
        self._known[rows] = True
        at = self.moved[rows]
        for level, (tree, members) in enumerate(zip(self.trees, self.members, strict=True)):
            k = min(NEIGHBORS, len(members))
            distance, near = query(tree, at, k)
            self.index[rows, level, :k] = members[near]
            if k < NEIGHBORS:  # a tiny cloud: the nearest again
                self.index[rows, level, k:] = members[near[:, :1]]
            self.radius[rows, level] = np.maximum(distance[:, -1], 1e-6)

    def reach(self, rows: np.ndarray, stages: int) -> np.ndarray:  # (n,) -> (n,)
        """How far from each row the points are that its estimate depends on, in spacings.

        Every stage of the network reads the previous one at the neighbors. The planes of these come
        from members that represent points as far as their radius, the encodings from windows.
        """
        _, *needed = self.dependencies(rows, stages)
        far = np.maximum(2 * self.radius[:, -1], encodings.window_reach())
        for some in needed:
            step = far.copy()
            step[some] = self.radius[some, -1] + far[self.index[some, -1]].max(1)
            far = step
        return np.asarray(far[rows], np.float64)

    def dependencies(self, rows: np.ndarray, stages: int) -> list[np.ndarray]:
        """The rows that estimates at some rows depend on: of the planes that the first stage reads,
        then of each stage of the network those that it must compute.
        """
        inside = np.zeros(len(self.x), bool)
        inside[rows] = True
        reached = [rows]
        self.find(rows)
        for _ in range(stages):  # from the last stage to the first
            if len(reached[0]) < len(inside):
                _mark(inside, self.index, reached[0])
                self.find(np.flatnonzero(inside))
            reached.insert(0, np.flatnonzero(inside))
        if len(reached[0]) < len(inside):
            _mark(inside, self.index[:, 1:], reached[0])
            self.find(np.flatnonzero(inside))
        return reached

    @one_thread()
    def pyramid(self, planes: np.ndarray) -> Pyramid:
        """Planes of all levels at the rows `planes`; other rows of it are undefined."""
        rows, x = torch.from_numpy(planes), torch.from_numpy(self.x)
        place = (x - (x[rows].amin(0) + x[rows].amax(0)) / 2).float()
        radius = torch.from_numpy(self.radius)
        G = encodings.encode_windows(x, rows)
        table, width = torch.empty(len(x), LEVELS, 8), torch.empty_like(radius)
        made = Pyramid(torch.from_numpy(self.index), radius, table, width, G)
        for level in range(LEVELS):
            # At the finest level every point represents itself.
            owner = self._owners(level) if level else torch.arange(len(x))
            clusters = _clusters(place, owner, radius[:, level])
            made.table[:, level, POSITION] = clusters[1]
            _cluster_planes(level, place, made, rows, clusters)
        return made

    def _owners(self, level: int) -> Tensor:  # (N,) int64
        """The member of a subset that represents each point; itself where that does not matter."""
        owner = self.index[:, level, 0].astype(np.int64)
        other = np.flatnonzero(~self._known)
        if len(other):
            owner[other] = other
            known = self.x[self._known]
            far = float(self.radius[self._known, level].max()) * _SLACK**2
            some = self.x[other]
            other = other[((some >= known.min(0) - far) & (some <= known.max(0) + far)).all(1)]
            distance, near = query(self.trees[level], self.moved[other], 1, far)
            found = np.isfinite(distance[:, 0])
            owner[other[found]] = self.members[level][near[found, 0]]
        return torch.from_numpy(owner)


def _mark(mask: np.ndarray, index: np.ndarray, rows: np.ndarray) -> None:
    step = 1 << 17
    for first in range(0, len(rows), step):
        mask[index[rows[first : first + step]].ravel()] = True


_Clusters = tuple[Tensor, Tensor, Tensor]  # (N,) points, (N, 3) their mean, (N, 6) covariance


def _clusters(place: Tensor, owner: Tensor, radius: Tensor) -> _Clusters:
    """The points that each member of a subset represents; other rows are undefined.

    A point beyond the farthest neighbor of its member, as outliers are, is left out.
    """
    off = place - place[owner]
    near = off.square().sum(1) <= (_SLACK * radius[owner]).square()
    weight = near.float()
    off = off * weight[:, None]
    count = torch.zeros(len(place)).index_add_(0, owner, weight)
    share_of = count.clamp_min(1.0)[:, None]
    mean = torch.zeros_like(place).index_add_(0, owner, off) / share_of
    second = place.new_zeros(len(place), 6).index_add_(0, owner, eigen.outer(off.t()).t())
    return count, place + mean, second / share_of - eigen.outer(mean.t()).t()


def _cluster_planes(
    level: int, place: Tensor, made: Pyramid, rows: Tensor, clusters: _Clusters
) -> None:
    """Fill one level of the table at some rows from the clusters of their neighbors."""
    count, mean, spread = clusters
    index, radius = made.index, made.radius

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
        covariance = between + within / reach.square()
        normal = eigen.smallest(covariance)
        low, mid, high = eigen.spectrum(covariance, normal).clamp_min(1e-12)
        made.table[rows, level, NORMAL] = normal.t()
        made.table[rows, level, ROUGHNESS] = (low / mid).clamp_(0, 1).sqrt_()
        made.table[rows, level, HEIGHT] = -eigen.dot(middle, normal)
        made.width[rows, level] = (mid / high).sqrt_()

    share(rows.split(_ROWS), lambda _: work, workers(index.device, len(rows) // _ROWS))
