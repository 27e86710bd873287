"""Signs of normals that agree between neighbors and point out of closed surfaces.

Neighbors vote. For an edge e from point i to point j,

    vote_ij = n_i . n_j - (n_i . e)(n_j . e)         the dot product across e

is positive where the normals agree. On a flat piece it is n_i . n_j. Across a sharp edge of the
surface, where n_i . n_j is near zero and its sign is arbitrary, it is still clearly positive.
Through a thin sheet, or between points that noise put above one another, e is along the normals
and the vote is near zero. Votes are squared, keeping their sign, so that many weak ones do not
outvote a few clear ones.

A single wrong edge of a spanning tree would flip half of the cloud. Here patches grow instead: each
joins the neighbor with which its votes, summed over the common border, agree best. About log N such
rounds make one patch of each connected piece. A border whose votes cancel joins nothing.

Patches are then the nodes of a small graph. Pieces of it that are closed or round enough to have an
outside are turned to face it; strips and flat patches are joined to what is nearest by the same
rule over thinned clouds. In tiles each tile has patches of its own, and the borders between tiles
are edges of the graph; a cloud in memory is one tile. Sheets thinner than about two distances of
points look the same as noise: their two sides may go wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from veckm.knn import build_tree, query
from veckm.tasks.normals.stats import hash_points, thinned

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Neighbors that vote on a point, and how many of the thinned clouds there are besides the cloud.
NEIGHBORS, LEVELS = 10, 4
#: What must be left of the votes along a border when those for and against cancel.
_AGREED = 0.25
#: Sweeps in which the sign of a single point may still change.
_SWEEPS = 4
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


class Edges(NamedTuple):
    """Votes between pairs of patches, or between patches and points outside of the tile."""

    a: Ints  # (E,) a patch
    b: Ints  # (E,) a patch, or the row of a point
    vote: Floats  # (E,) sums of the votes, for the signs found so far
    weight: Floats  # (E,) sums of their absolute values


@dataclass(frozen=True)
class Patches:
    """The patches of some points, oriented inside."""

    patch: Ints  # (n,) of each point, from 0
    sign: Floats  # (n,) that makes the normals of a patch agree
    sums: Floats  # (P, 10) of each patch: points, area, center, summed normal, volume, spread
    edges: list[Edges]  # between patches, of the cloud and of each thinned one
    borders: list[Edges]  # to other points, likewise


def consistent_signs(x: Floats, n: Floats) -> Floats:  # (N, 3), (N, 3) -> (N,)
    """The signs, -1 or 1, that make neighbors agree and every connected piece face outwards."""
    if not len(x):
        return np.ones(0)
    found = find_patches(x, n, np.ones(len(x), bool))
    return found.sign * orient_patches(found.sums, found.edges)[found.patch]


def find_patches(x: Floats, n: Floats, own: Bools) -> Patches:  # (N, 3), (N, 3), (N,)
    """Patches of the points that are `own`, among others around them."""
    order = build_tree(x).indices
    rank, middle = hash_points(x[order]), x.mean(0)
    x, n, own = x[order] - middle, n[order], own[order]
    mine = np.flatnonzero(own)
    local = np.cumsum(own) - 1
    i, j, reach = _pairs(x, mine, np.arange(len(x)))
    vote, inner = _votes(x, n, i, j), own[j]
    a, b, inside = local[i[inner]], local[j[inner]], vote[inner]
    votes = Edges(a, b, inside, np.abs(inside))
    patch, sign = _grow(votes, np.arange(len(mine)), np.ones(len(mine)), _AGREED)
    sign = _settle(sign, a, b, inside)
    label, turned = np.full(len(x), -1), np.ones(len(x))
    label[mine], turned[mine] = patch, sign
    edges, borders = [], []
    single = len(mine) == len(x) and not patch.any()
    for level in range(1 if single else LEVELS):
        if level:
            some = _members(x, label, thinned(rank, level))
            i, j, _ = _pairs(x, some[own[some]], some)
            vote = _votes(x, n, i, j)
        vote, inner = vote * turned[i] * turned[j], own[j]
        inside = vote[inner]
        edges.append(_summed(Edges(label[i[inner]], label[j[inner]], inside, np.abs(inside))))
        outside = vote[~inner]
        borders.append(Edges(label[i[~inner]], order[j[~inner]], outside, np.abs(outside)))
    area = reach**2 + 1e-200  # a position without neighbors counts, if only just
    sums = _sums(x[mine], n[mine] * sign[:, None], area, patch)
    sums[:, 2:5] += middle
    back = np.argsort(order[mine])  # as the caller has them
    return Patches(patch[back], sign[back], sums, edges, borders)


def orient_patches(sums: Floats, levels: list[Edges]) -> Floats:  # (P, 10) -> (P,)
    """The sign of each patch."""
    piece, sign = _grow(levels[0], np.arange(len(sums)), np.ones(len(sums)), _AGREED)
    turn, sure = _outward(sums, sign, piece)
    final = np.where(sure, turn * sign, 0.0)
    sign = np.where(sure, final, sign)
    # Pieces that have an outside get one number: they are never turned again.
    piece = np.unique(np.where(sure, -1, piece), return_inverse=True)[1]
    for level, edges in enumerate(levels[1:], 1):
        # In the end any vote is better than none.
        least = _AGREED if level < LEVELS - 1 else 0.0
        piece, sign = _grow(edges, piece, sign, least)
    known = np.sign(_total(piece, final * sign * sums[:, 0]))[piece]
    turn, _ = _outward(sums, sign, piece)
    return sign * np.where(known == 0, turn, known)


def _members(x: Floats, label: Ints, rows: Ints) -> Ints:
    """Rows and the first of every patch; of copies at one position and in one patch only one."""
    patches, first = np.unique(label, return_index=True)
    rows = np.union1d(rows, first[patches >= 0])
    keys = np.column_stack((x[rows], label[rows]))
    return rows[np.sort(np.unique(keys, axis=0, return_index=True)[1])]


def _pairs(x: Floats, rows: Ints, members: Ints) -> tuple[Ints, Ints, Floats]:  # (E,), (E,), (n,)
    """Edges from rows to their neighbors among the members, and how far these reach."""
    k = min(NEIGHBORS + 1, len(members))
    distance, near = query(build_tree(x[members]), x[rows], k)
    i, j = np.repeat(rows, k), members[near.ravel()]
    apart = i != j
    return i[apart], j[apart], distance[:, -1]


def _votes(x: Floats, n: Floats, i: Ints, j: Ints) -> Floats:  # (E,)
    """v |v|, v = n_i . n_j - (n_i . e)(n_j . e), e the unit vector along the edge."""
    d, a, b = x[j] - x[i], n[i], n[j]
    square = np.einsum("ec,ec->e", d, d)
    along = np.einsum("ec,ec->e", a, d) * np.einsum("ec,ec->e", b, d)
    vote: Floats = np.einsum("ec,ec->e", a, b) - along / np.where(square > 0, square, 1.0)
    return vote * np.abs(vote)


def _grow(edges: Edges, piece: Ints, sign: Floats, least: float) -> tuple[Ints, Floats]:
    """Join pieces while some border agrees: the piece of each node, from 0, and its sign."""
    count, joined, turn = int(piece.max()) + 1, piece, sign
    while True:
        a, b = edges.a, edges.b
        edges = _summed(Edges(joined[a], joined[b], edges.vote * turn[a] * turn[b], edges.weight))
        joined, turn = _join(edges, count, least)
        if joined.max() + 1 == count:
            return piece, sign
        piece, sign, count = joined[piece], sign * turn[piece], int(joined.max()) + 1


def _summed(edges: Edges) -> Edges:
    """One edge for each pair of different nodes."""
    a, b, vote, weight = (values[edges.a != edges.b] for values in edges)
    count = int(max(a.max(initial=0), b.max(initial=0))) + 1
    pair, slot = np.unique(np.minimum(a, b) * count + np.maximum(a, b), return_inverse=True)
    return Edges(pair // count, pair % count, _total(slot, vote), _total(slot, weight))


def _join(edges: Edges, count: int, least: float) -> tuple[Ints, Floats]:  # (count,), (count,)
    """Every node joins its best neighbor: its piece, and its sign relative to the first there.

    Best is vote^2 / weight: a long border, and in agreement. A border whose votes cancel, so that
    less than a share `least` is left, joins nothing.
    """
    a, b, vote, weight = edges
    order = np.argsort(vote**2 / np.maximum(weight, 1e-300), kind="stable")
    order = order[np.abs(vote[order]) >= least * weight[order]]
    best = np.full(count, -1)
    best[np.stack((a[order], b[order]), 1).ravel()] = np.repeat(order, 2)  # the last one stays
    best = np.unique(best[best >= 0])
    # Each node is there twice, as it is and turned; an edge joins those that agree.
    far = b[best] + np.where(vote[best] < 0, count, 0)
    i = np.concatenate((a[best], a[best] + count))
    j = np.concatenate((far, (far + count) % (2 * count)))
    graph = coo_array((np.ones(len(i), bool), (i, j)), shape=(2 * count, 2 * count))
    plain, turned = connected_components(graph, directed=False)[1].reshape(2, count)
    piece = np.unique(np.minimum(plain, turned), return_inverse=True)[1]
    return piece, np.where(plain < turned, 1.0, -1.0)


def _settle(sign: Floats, i: Ints, j: Ints, vote: Floats) -> Floats:
    """Flip single points that most of their neighbors contradict; even and odd rows in turn."""
    even = np.arange(len(sign)) % 2
    for sweep in range(_SWEEPS):
        field = _total(i, vote * sign[j], len(sign)) + _total(j, vote * sign[i], len(sign))
        sign = np.where((field * sign < 0) & (even == sweep % 2), -sign, sign)
    return sign


def _sums(x: Floats, n: Floats, area: Floats, patch: Ints) -> Floats:  # (P, 10)
    """Of each patch what :func:`_outward` needs, about the center of the patch."""
    total = _total(patch, area)
    center = _total(patch, area[:, None] * x) / total[:, None]
    d = x - center[patch]
    volume = _total(patch, area * np.einsum("nc,nc->n", n, d))
    spread = _total(patch, area * np.einsum("nc,nc->n", d, d))
    normal = _total(patch, area[:, None] * n)
    return np.column_stack((np.bincount(patch), total, center, normal, volume, spread))


def _outward(sums: Floats, sign: Floats, piece: Ints) -> tuple[Floats, Bools]:  # (P,), (P,)
    """1 for the patches of a piece that faces outwards, -1 for one that does not; and if it is
    certain.

    The volume that a closed piece encloses is sum area n . (x - c) / 3, whatever c is; with the
    center of the piece as c the sign is right for most open pieces too. A piece is certain that is
    closed, its normals adding up to nothing, or that is round.
    """
    count, area, center = sums[:, 0], sums[:, 1], sums[:, 2:5]
    normal = sign[:, None] * sums[:, 5:8]
    total = _total(piece, area)
    middle = _total(piece, area[:, None] * center) / total[:, None]
    d = center - middle[piece]
    volume = _total(piece, sign * sums[:, 8] + np.einsum("pc,pc->p", normal, d))
    spread = _total(piece, sums[:, 9] + area * np.einsum("pc,pc->p", d, d))
    most = np.sqrt(spread) * np.sqrt(total)  # apart: the product may underflow
    summed = _total(piece, normal)
    open_ = np.linalg.norm(summed, axis=1) / total
    round_ = np.abs(volume) / np.maximum(most, 1e-300)
    size = np.abs(center - center.mean(0)).max() + np.sqrt((sums[:, 9] / area).max())
    round_[most < 1e-12 * size * total] = 0.0  # all at one position, up to rounding
    many = _total(piece, count) >= _MANY
    sure = many & ((round_ > _ROUND) | ((open_ < _OPEN) & (round_ > _FLAT)))
    convex = round_ > np.maximum(_FLAT, _SHEET * open_)
    inward = np.where(convex, volume, summed @ _UP) < 0
    return np.where(inward, -1.0, 1.0)[piece], sure[piece]


def _total(slot: Ints, values: Floats, count: int = 0) -> Floats:  # (N,), (N, ...) -> (P, ...)
    """The sum of the values of each slot."""
    if values.ndim > 1:
        return np.stack([_total(slot, column, count) for column in values.T], 1)
    return np.bincount(slot, values, count).astype(np.float64, copy=False)
