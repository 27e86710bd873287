"""Votes of neighbors on whether their normals agree, and pieces that grow by them.

For an edge e from point i to point j,

    vote_ij = n_i . n_j - (n_i . e)(n_j . e)         the dot product across e

is positive where the normals agree. On a flat piece it is n_i . n_j. Across a sharp edge of the
surface, where n_i . n_j is near zero and its sign is arbitrary, it is still clearly positive.
Through a thin sheet, or between points that noise put above one another, e is along the normals
and the vote is near zero. Votes are squared, keeping their sign, so that many weak ones do not
outvote a few clear ones.

A single wrong edge of a spanning tree would flip half of the cloud. Here pieces grow instead: each
joins the neighbor with which its votes, summed over the common border, agree best. About log N such
rounds make one piece of all that is connected. A border whose votes cancel joins nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: What must be left of the votes along a border when those for and against cancel.
AGREED = 0.25


class Edges(NamedTuple):
    """Votes between pairs of patches, or between patches and points outside of the tile."""

    a: Ints  # (E,) a patch
    b: Ints  # (E,) a patch, or the row of a point
    vote: Floats  # (E,) sums of the votes, for the signs found so far
    weight: Floats  # (E,) sums of their absolute values


def votes(x: Floats, n: Floats, i: Ints, j: Ints) -> Floats:  # (E,)
    """v |v|, v = n_i . n_j - (n_i . e)(n_j . e), e the unit vector along the edge."""
    d, a, b = x[j] - x[i], n[i], n[j]
    square = np.einsum("ec,ec->e", d, d)
    along = np.einsum("ec,ec->e", a, d) * np.einsum("ec,ec->e", b, d)
    vote: Floats = np.einsum("ec,ec->e", a, b) - along / np.where(square > 0, square, 1.0)
    return vote * np.abs(vote)


def rounds(
    edges: Edges, piece: Ints, sign: Floats, least: float
) -> Iterator[tuple[Ints, Floats]]:  # (P,), (P,)
    """The piece of each node, from 0, and its sign: as given, and after every round."""
    count, joined, turn = int(piece.max()) + 1, piece, sign
    while True:
        yield piece, sign
        a, b = edges.a, edges.b
        edges = summed(Edges(joined[a], joined[b], edges.vote * turn[a] * turn[b], edges.weight))
        joined, turn = _join(edges, count, least)
        if joined.max() + 1 == count:
            return
        piece, sign, count = joined[piece], sign * turn[piece], int(joined.max()) + 1


def grow(edges: Edges, piece: Ints, sign: Floats, least: float) -> tuple[Ints, Floats]:
    """Join pieces while some border agrees."""
    *_, last = rounds(edges, piece, sign, least)
    return last


def summed(edges: Edges) -> Edges:
    """One edge for each pair of different nodes."""
    a, b, vote, weight = (values[edges.a != edges.b] for values in edges)
    count = int(max(a.max(initial=0), b.max(initial=0))) + 1
    pair, slot = np.unique(np.minimum(a, b) * count + np.maximum(a, b), return_inverse=True)
    return Edges(pair // count, pair % count, total(slot, vote), total(slot, weight))


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


def total(slot: Ints, values: Floats, count: int = 0) -> Floats:  # (N,), (N, ...) -> (P, ...)
    """The sum of the values of each slot."""
    if values.ndim > 1:
        return np.stack([total(slot, column, count) for column in values.T], 1)
    return np.bincount(slot, values, count).astype(np.float64, copy=False)
