"""Signs of normals that agree between neighbors and point out of closed surfaces.

Patches of the points grow by the votes of neighbors (`votes.py`) and are then the nodes of a small
graph. Pieces of it that are closed or round enough to have an outside are turned to face it; strips
and flat patches are joined to what is nearest by the same rule over thinned clouds. Where votes
are undecided, as in noise and through thin walls, the field of an inside (`indicator.py`) decides.

In tiles each tile has patches of its own, and the borders between tiles are edges of the graph; a
cloud in memory is one tile. Sheets thinner than about two distances of points look the same as
noise: their two sides may go wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from veckm.knn import build_tree, query
from veckm.tasks.normals.indicator import PATCHES, improved
from veckm.tasks.normals.pyramid import Subsets
from veckm.tasks.normals.stats import hash_points, thinned
from veckm.tasks.normals.votes import (
    AGREED,
    Bools,
    Edges,
    Floats,
    Ints,
    grow,
    rounds,
    summed,
    total,
    votes,
)

#: Neighbors that vote on a point, and how many of the thinned clouds there are besides the cloud.
NEIGHBORS, LEVELS = 10, 4
#: A patch has at least about so many points.
_FEWEST = 32
#: Times that the cloud is thinned to a quarter, for areas.
_AREA_LEVEL = 2
#: A piece with less volume than this, as a share of area times distance, has no outside.
_FLAT = 0.02
#: A piece this round has an outside; so has a closed one, with an opening of less than this.
_ROUND, _OPEN = 0.5, 0.2
#: An open piece less round than this, as a share of its opening, is a sheet: it is turned up.
_SHEET = 0.4
#: Fewer points than this never decide the outside.
_MANY = 40
#: Up for a flat piece: +z, for a vertical one +x, and +y if it is across that too.
_UP = np.array([1e-4, 1e-8, 1.0])


@dataclass(frozen=True)
class Patches:
    """The patches of some points, oriented inside."""

    patch: Ints  # (n,) of each point, from 0
    sign: Floats  # (n,) that makes the normals of a patch agree
    sums: Floats  # (P, 10) of each patch: points, area, center, summed normal, volume, spread
    edges: list[Edges]  # between patches, of the cloud and of each thinned one
    borders: list[Edges]  # to other points, likewise


def consistent_signs(x: Floats, n: Floats, subsets: Subsets | None = None) -> Floats:  # (N,)
    """The signs, -1 or 1, that make neighbors agree and every connected piece face outwards.

    With the subsets of these points, in the order of a curve, their trees are used again.
    """
    if not len(x):
        return np.ones(0)
    found = find_patches(x, n, np.ones(len(x), bool), len(x), subsets)
    return found.sign * orient_patches(found.sums, found.edges)[found.patch]


def find_patches(
    x: Floats,  # (N, 3)
    n: Floats,  # (N, 3)
    own: Bools,  # (N,)
    count: int,
    subsets: Subsets | None = None,
) -> Patches:
    """Patches of the points that are `own`, of `count` in the cloud, among others around them."""
    order = build_tree(x).indices if subsets is None else np.arange(len(x))
    near, middle = _Near(x[order], subsets), x.mean(0)
    x, n, own = x[order] - middle, n[order], own[order]
    mine = np.flatnonzero(own)
    local = np.cumsum(own) - 1
    i, j, reach = near.pairs(mine)
    vote, inner = votes(x, n, i, j), own[j]
    inside = vote[inner]
    edges = Edges(local[i[inner]], local[j[inner]], inside, np.abs(inside))
    patch, piece, sign = _grown(edges, len(mine), min(PATCHES / count, 1 / _FEWEST) * len(mine))
    label, whole, turned = np.full(len(x), -1), np.full(len(x), -1), np.ones(len(x))
    label[mine], whole[mine], turned[mine] = patch, piece, sign
    levels, borders = [], []
    single = len(mine) == len(x) and not piece.any()
    for level in range(1 if single else LEVELS):
        if level:
            near.thin(level, whole)
            i, j, _ = near.pairs(near.members[own[near.members]])
            apart = whole[i] != whole[j]
            i, j = i[apart], j[apart]
            vote = votes(x, n, i, j)
        vote, inner = vote * turned[i] * turned[j], own[j]
        inside = vote[inner]
        levels.append(summed(Edges(label[i[inner]], label[j[inner]], inside, np.abs(inside))))
        outside = vote[~inner]
        borders.append(Edges(label[i[~inner]], order[j[~inner]], outside, np.abs(outside)))
    sums = _sums(x[mine], n[mine] * sign[:, None], near.areas(mine, reach), patch)
    sums[:, 2:5] += middle
    back = np.argsort(order[mine])  # as the caller has them
    return Patches(patch[back], sign[back], sums, levels, borders)


class _Near:
    """Neighbors among all points, and then among those of thinned clouds.

    Trees of the pyramid are used where there is one; its last thinned cloud is too dense to be the
    last here, which has a point of every patch.
    """

    def __init__(self, x: Floats, subsets: Subsets | None) -> None:
        self.x = x if subsets is None else subsets.moved
        self.subsets, self.members = subsets, np.arange(len(x))
        self.rank = hash_points(x) if subsets is None else subsets.rank
        self.tree = build_tree(x) if subsets is None else subsets.trees[0]

    def thin(self, level: int, label: Ints) -> None:
        """From now on among one point in 4^level."""
        known = self._known(level)
        if known is not None and level < LEVELS - 1:
            self.members, self.tree = known
        else:
            self.members = _members(self.x, label, thinned(self.rank, level))
            self.tree = build_tree(self.x[self.members])

    def _known(self, level: int) -> tuple[Ints, cKDTree] | None:
        if self.subsets is None or level >= len(self.subsets.trees):
            return None
        return self.subsets.members[level], self.subsets.trees[level]

    def pairs(self, rows: Ints) -> tuple[Ints, Ints, Floats]:  # (E,), (E,), (n,)
        """Edges from rows to their neighbors among the members, and how far these reach."""
        k = min(NEIGHBORS + 1, len(self.members))
        distance, near = query(self.tree, self.x[rows], k)
        i, j = np.repeat(rows, k), self.members[near.ravel()]
        apart = i != j
        return i[apart], j[apart], distance[:, -1]

    def areas(self, rows: Ints, reach: Floats) -> Floats:  # (n,)
        """The area that each point stands for.

        From its distance to the nearest of a thinned cloud, so far that noise adds little to it.
        """
        known = self._known(_AREA_LEVEL)
        some = thinned(self.rank, _AREA_LEVEL) if known is None else known[0]
        if len(some) > 4 * NEIGHBORS:
            tree = build_tree(self.x[some]) if known is None else known[1]
            reach = query(tree, self.x[rows], NEIGHBORS)[0][:, -1] / 2**_AREA_LEVEL
        area: Floats = np.pi / NEIGHBORS * reach**2 + 1e-200  # one without neighbors counts
        return area


def orient_patches(sums: Floats, levels: list[Edges]) -> Floats:  # (P, 10) -> (P,)
    """The sign of each patch."""
    grown = list(rounds(levels[0], np.arange(len(sums)), np.ones(len(sums)), AGREED))
    piece, sign = grown[-1]
    turn, sure = _outward(sums, sign, piece)
    final = np.where(sure, turn * sign, 0.0)
    sign = np.where(sure, final, sign)
    # Pieces that have an outside get one number: they are never turned again.
    certain = piece
    piece = np.unique(np.where(sure, -1, piece), return_inverse=True)[1]
    for level, edges in enumerate(levels[1:], 1):
        # In the end any vote is better than none.
        least = AGREED if level < LEVELS - 1 else 0.0
        piece, sign = grow(edges, piece, sign, least)
    known = np.sign(total(piece, final * sign * sums[:, 0]))[piece]
    turn, _ = _outward(sums, sign, piece)
    sign = sign * np.where(known == 0, turn, known)
    body = np.where(sure, certain, len(sums) + piece)
    return improved(sums, levels[0], sign, [*(label for label, _ in grown), body])


def _grown(edges: Edges, count: int, most: float) -> tuple[Ints, Ints, Floats]:  # (count,) each
    """Patches, at most so many or as few as grow; the pieces that these would join to; signs."""
    found = list(rounds(edges, np.arange(count), np.ones(count), AGREED))
    piece, sign = found[-1]
    return next((p for p, _ in found if p.max() < most), piece), piece, sign


def _members(x: Floats, label: Ints, rows: Ints) -> Ints:
    """Rows and the first of every patch; of copies at one position and in one patch only one."""
    patches, first = np.unique(label, return_index=True)
    rows = np.union1d(rows, first[patches >= 0])
    keys = np.column_stack((x[rows], label[rows]))
    return rows[np.sort(np.unique(keys, axis=0, return_index=True)[1])]


def _sums(x: Floats, n: Floats, area: Floats, patch: Ints) -> Floats:  # (P, 10)
    """Of each patch what :func:`_outward` needs, about the center of the patch."""
    size = total(patch, area)
    center = total(patch, area[:, None] * x) / size[:, None]
    d = x - center[patch]
    volume = total(patch, area * np.einsum("nc,nc->n", n, d))
    spread = total(patch, area * np.einsum("nc,nc->n", d, d))
    normal = total(patch, area[:, None] * n)
    return np.column_stack((np.bincount(patch), size, center, normal, volume, spread))


def _outward(sums: Floats, sign: Floats, piece: Ints) -> tuple[Floats, Bools]:  # (P,), (P,)
    """1 for the patches of a piece that faces outwards, -1 for one that does not; and if it is
    certain.

    The volume that a closed piece encloses is sum area n . (x - c) / 3, whatever c is; with the
    center of the piece as c the sign is right for most open pieces too. A piece is certain that is
    closed, its normals adding up to nothing, or that is round.
    """
    count, area, center = sums[:, 0], sums[:, 1], sums[:, 2:5]
    normal = sign[:, None] * sums[:, 5:8]
    whole = total(piece, area)
    middle = total(piece, area[:, None] * center) / whole[:, None]
    d = center - middle[piece]
    volume = total(piece, sign * sums[:, 8] + np.einsum("pc,pc->p", normal, d))
    spread = total(piece, sums[:, 9] + area * np.einsum("pc,pc->p", d, d))
    most = np.sqrt(spread) * np.sqrt(whole)  # apart: the product may underflow
    facing = total(piece, normal)
    open_ = np.linalg.norm(facing, axis=1) / whole
    round_ = np.abs(volume) / np.maximum(most, 1e-300)
    size = np.abs(center - center.mean(0)).max() + np.sqrt((sums[:, 9] / area).max())
    round_[most < 1e-12 * size * whole] = 0.0  # all at one position, up to rounding
    many = total(piece, count) >= _MANY
    sure = many & ((round_ > _ROUND) | ((open_ < _OPEN) & (round_ > _FLAT)))
    convex = round_ > np.maximum(_FLAT, _SHEET * open_)
    inward = np.where(convex, volume, facing @ _UP) < 0
    return np.where(inward, -1.0, 1.0)[piece], sure[piece]
