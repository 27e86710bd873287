"""Which of its two ways a normal points: to a viewpoint, upwards, or as its neighbors do.

Neighbors vote. For an edge e from point i to point j, both seen along the edge,

    vote_ij = n_i . n_j - (n_i . e)(n_j . e)         the dot product across e

is positive where the normals agree. On a flat piece it is n_i . n_j. Across a sharp convex or
concave edge, where n_i . n_j is near zero and its sign means nothing, it is still well positive.
Through a thin sheet, or between points that noise put above one another, e is along the normals
and the vote is near zero: such a pair does not know. Squared, with their sign, many weak votes do
not outdo a few firm ones.

A spanning tree of the best edges would let a single wrong edge turn half of the cloud. Here patches
grow instead: each patch joins the neighbor with which its votes, all of them along the common
border, agree best; the votes of the new patches are the sums of the old. About log N such rounds
make one patch of each connected piece, in near linear time. A border whose votes cancel joins
nothing.

Pieces that are closed or round enough to know their outside are turned to face it. The others,
strips and patches, are joined to what is nearest by the same rule over thinned clouds. A piece
inside another, as the wall of a hollow is, is turned outwards like any other. Sheets thinner than
about two distances of points, and blades, look the same as noise: their two sides may go wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from veckm.inputs import check_finite
from veckm.parallel import one_thread, threads
from veckm.tasks.normals.classical import check_cloud

How = Literal["none", "viewpoint", "up", "consistent"]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Neighbors that vote on a point.
_NEIGHBORS = 10
#: Pieces left apart are joined over thinned clouds: every 4th, 16th and 64th point.
_LEVELS, _THINNING = 4, 4
#: What must be left of the votes along a border when those for and against cancel.
_AGREED = 0.25
#: Sweeps in which a single point may still change its mind.
_SWEEPS = 4
#: A piece with less volume than this, as a share of area times distance, has no outside.
_FLAT = 0.02
#: A piece this round knows its outside; one that is closed, with an opening of less than this, too.
_ROUND, _OPEN = 0.5, 0.2
#: Fewer points than this are never sure.
_MANY = 40
#: Up for a flat piece: +z, for a vertical one +x, and +y if it is across that too.
_UP = np.array([1e-4, 1e-8, 1.0])


@one_thread()
def orient(
    pos: Tensor,  # (N, 3)
    normal: Tensor,  # (N, 3)
    how: How = "consistent",
    *,
    viewpoint: Tensor | Sequence[float] | None = None,  # (3,) or (N, 3)
    axis: Tensor | Sequence[float] = (0.0, 0.0, 1.0),  # (3,)
) -> Tensor:  # (N, 3)
    r"""The same normals, each or its opposite, so that they point one way.

    .. math:: n_i \to s_i n_i, \qquad s_i \in \{-1, 1\}

    ``"none"`` changes nothing. ``"viewpoint"`` turns every normal towards `viewpoint`, one place or
    one for each point. ``"up"`` turns every normal to the side of `axis`. ``"consistent"`` lets
    neighbors agree, and turns each connected piece outwards: so that the volume it encloses is
    positive; a flat piece, which encloses none, is turned up (an upright one to +x, else +y).

    The given signs do not matter: a normal at right angles to the direction asked for gets its
    first component that is not zero positive.

    Args:
        pos: the cloud.
        normal: unit normals.
        how: the rule.
        viewpoint: where the sensor was, for ``"viewpoint"``.
        axis: what is up, for ``"up"``.

    Shapes:
        - pos, normal: (N, 3)
        - viewpoint: (3,) or (N, 3)
        - axis: (3,)
        - output: (N, 3)
    """
    check_cloud(pos)
    _check_normals(normal, pos)
    if how == "none":
        return normal
    if how == "viewpoint":
        return normal * _side(normal, _places(viewpoint, pos) - pos.detach().double())
    if how == "up":
        return normal * _side(normal, _direction(axis, pos))
    if how == "consistent":
        sign = consistent(*(t.detach().cpu().double().numpy() for t in (pos, normal)))
        return normal * torch.from_numpy(sign).to(normal)[:, None]
    raise ValueError(f'how must be "none", "viewpoint", "up" or "consistent", got {how!r}')


def _check_normals(normal: Tensor, pos: Tensor) -> None:
    if not isinstance(normal, Tensor) or not normal.is_floating_point():
        got = normal.dtype if isinstance(normal, Tensor) else type(normal).__name__
        raise TypeError(f"normal must be a float tensor, got {got}")
    if normal.shape != pos.shape:
        raise ValueError(
            f"normal must have shape {tuple(pos.shape)}, one a point, got {tuple(normal.shape)}"
        )
    check_finite(normal, "normal")


def _places(viewpoint: Tensor | Sequence[float] | None, pos: Tensor) -> Tensor:
    if viewpoint is None:
        raise ValueError('how="viewpoint" needs to know where from: pass viewpoint=(x, y, z)')
    places = torch.as_tensor(viewpoint, dtype=torch.float64, device=pos.device)
    if places.shape not in ((3,), pos.shape):
        raise ValueError(
            f"viewpoint must have shape (3,) or {tuple(pos.shape)}, got {tuple(places.shape)}"
        )
    check_finite(places, "viewpoint")
    return places


def _direction(axis: Tensor | Sequence[float], pos: Tensor) -> Tensor:
    up = torch.as_tensor(axis, dtype=torch.float64, device=pos.device)
    if up.shape != (3,) or not bool(torch.isfinite(up).all()) or not bool(up.any()):
        raise ValueError(f"axis must be a direction of three finite numbers, got {axis!r}")
    return up


def _side(normal: Tensor, toward: Tensor) -> Tensor:  # (N, 3), (N, 3) or (3,) -> (N, 1)
    """1 where the normal is on the side of `toward`, -1 where it is not."""
    n = normal.detach().double()
    side = (n * toward).sum(-1).sign()
    for component in n.unbind(-1):
        side = torch.where(side == 0, component.sign(), side)
    return torch.where(side < 0, -1.0, 1.0).to(normal)[:, None]


def consistent(x: Floats, n: Floats) -> Floats:  # (N, 3), (N, 3) -> (N,)
    """The signs, -1 or 1, that make neighbors agree and every connected piece face outwards."""
    sign, piece = np.ones(len(x)), np.arange(len(x))
    if not len(x):
        return sign
    order = cKDTree(x).indices
    x, n = x[order] - x.mean(0), n[order]
    i, j, reach = _pairs(x)
    area = reach**2 + 1e-200  # a place without neighbors counts, if only just
    vote = _votes(x, n, i, j)
    piece, sign = _grow(i, j, vote, piece, sign, _AGREED)
    sign = _settle(sign, i, j, vote)
    turn, sure = _outward(x, n * sign[:, None], area, piece)
    faced = np.where(sure, turn * sign, 0.0)  # their signs are final
    sign, piece = _joined(x, n, np.where(sure, faced, sign), np.where(sure, -1, piece))
    known = np.sign(_total(piece, faced * sign))[piece]
    turn, _ = _outward(x, n * sign[:, None], area, piece)
    result = np.empty(len(x))
    result[order] = sign * np.where(known == 0, turn, known)
    return result


def _joined(x: Floats, n: Floats, sign: Floats, piece: Ints) -> tuple[Floats, Ints]:  # (N,), (N,)
    """Signs and pieces after joining what lies near each other, over ever thinner clouds.

    Pieces with one number, as those that know their outside, are never turned apart.
    """
    piece = np.unique(piece, return_inverse=True)[1]
    for level in range(1, _LEVELS):
        if not piece.any():
            break
        rows = _thinned(x, piece, _THINNING**level)
        i, j = (rows[t] for t in _pairs(x[rows])[:2])
        vote = _votes(x, n, i, j) * sign[i] * sign[j]
        # In the end anything is better than no votes at all.
        least = _AGREED if level < _LEVELS - 1 else 0.0
        piece, sign = _grow(piece[i], piece[j], vote, piece, sign, least)
    return sign, piece


def _thinned(x: Floats, piece: Ints, step: int) -> Ints:
    """Every step-th row and the first of every piece; of copies in one place and piece only one."""
    first = np.unique(piece, return_index=True)[1]
    rows = np.union1d(np.arange(0, len(piece), step), first)
    placed = np.column_stack((x[rows], piece[rows]))
    return rows[np.sort(np.unique(placed, axis=0, return_index=True)[1])]


def _pairs(x: Floats) -> tuple[Ints, Ints, Floats]:  # (N, 3) -> (E,), (E,), (N,)
    """Each pair of neighbors once, and how far the neighbors of each point reach."""
    k = min(_NEIGHBORS + 1, len(x))
    far, near = cKDTree(x).query(x, np.arange(1, k + 1), workers=threads())
    i, j = np.repeat(np.arange(len(x)), k), near.ravel()
    key = np.sort((np.minimum(i, j) * len(x) + np.maximum(i, j))[i != j])
    key = key[np.diff(key, prepend=-1) > 0]
    return key // len(x), key % len(x), far[:, -1]


def _votes(x: Floats, n: Floats, i: Ints, j: Ints) -> Floats:  # (E,)
    """v |v|, v = n_i . n_j - (n_i . e)(n_j . e), e the unit vector along the edge."""
    d, a, b = x[j] - x[i], n[i], n[j]
    square = np.einsum("ec,ec->e", d, d)
    along = np.einsum("ec,ec->e", a, d) * np.einsum("ec,ec->e", b, d)
    vote: Floats = np.einsum("ec,ec->e", a, b) - along / np.where(square > 0, square, 1.0)
    return vote * np.abs(vote)


def _grow(
    a: Ints, b: Ints, vote: Floats, piece: Ints, sign: Floats, least: float
) -> tuple[Ints, Floats]:  # (E,), (E,), (E,), (N,), (N,) -> (N,), (N,)
    """Patches join while some border is of one mind: pieces, numbered from 0, and signs."""
    weight = np.abs(vote)
    count = int(piece.max()) + 1
    while True:
        a, b, vote, weight = _summed(a, b, vote, weight, count)
        root, turn = _join(a, b, vote, weight, count, least)
        kept, root = np.unique(root, return_inverse=True)
        if len(kept) == count:
            return piece, sign
        sign, piece = sign * turn[piece], root[piece]
        vote = vote * turn[a] * turn[b]
        a, b, count = root[a], root[b], len(kept)


def _summed(
    a: Ints, b: Ints, vote: Floats, weight: Floats, count: int
) -> tuple[Ints, Ints, Floats, Floats]:
    """One entry for each pair of different patches: the sums of its votes and of their sizes."""
    apart = a != b
    key = (np.minimum(a, b) * count + np.maximum(a, b))[apart]
    pair, slot = np.unique(key, return_inverse=True)
    vote, weight = _total(slot, vote[apart]), _total(slot, weight[apart])
    return pair // count, pair % count, vote, weight


def _join(
    a: Ints, b: Ints, vote: Floats, weight: Floats, count: int, least: float
) -> tuple[Ints, Floats]:  # (count,), (count,)
    """Every patch takes its best neighbor: the patch at the root of each tree, and the turn to it.

    Best is vote^2 / weight: a long border, and of one mind. A border whose votes cancel, so that
    less than a share `least` is left, joins nothing.
    """
    order = np.argsort(vote**2 / np.maximum(weight, 1e-300), kind="stable")
    order = order[np.abs(vote[order]) >= least * weight[order]]
    best = np.full(count, -1)
    best[np.stack((a[order], b[order]), 1).ravel()] = np.repeat(order, 2)  # the last one stays
    parent = np.arange(count)
    taken = best >= 0
    parent[taken] = a[best[taken]] + b[best[taken]] - parent[taken]
    turn = np.ones(count)
    turn[taken] = np.where(vote[best[taken]] < 0, -1.0, 1.0)
    # Two that take each other would go round in a circle: the first of them is the root.
    root = (parent[parent] == np.arange(count)) & (np.arange(count) < parent)
    parent[root], turn[root] = np.flatnonzero(root), 1.0
    while True:  # each round doubles the steps towards the root
        further = parent[parent]
        if np.array_equal(further, parent):
            return parent, turn
        turn, parent = turn * turn[parent], further


def _settle(sign: Floats, i: Ints, j: Ints, vote: Floats) -> Floats:
    """Single points that most of their neighbors contradict, turned; even and odd rows in turn."""
    even = np.arange(len(sign)) % 2
    for sweep in range(_SWEEPS):
        field = _total(i, vote * sign[j], len(sign)) + _total(j, vote * sign[i], len(sign))
        sign = np.where((field * sign < 0) & (even == sweep % 2), -sign, sign)
    return sign


def _outward(
    x: Floats, n: Floats, area: Floats, piece: Ints
) -> tuple[Floats, npt.NDArray[np.bool_]]:  # (N,), (N,)
    """1 for the points of a piece that faces outwards, -1 for one to be turned; and if it is sure.

    The volume that a closed piece encloses is sum area n . (x - c) / 3, whatever c is; with the
    center of the piece as c the sign is right for most open pieces too. Sure is a piece that is
    closed, its normals adding up to nothing, or that is round.
    """
    total = _total(piece, area)
    center = _totals(piece, area, x) / total[:, None]
    d = x - center[piece]
    volume = _total(piece, area * np.einsum("nc,nc->n", n, d))
    most = _total(piece, area * np.linalg.norm(d, axis=1))
    open_ = np.linalg.norm(_totals(piece, area, n), axis=1) / total
    round_ = np.abs(volume) / np.maximum(most, 1e-300)
    round_[most < 1e-12 * np.abs(x).max() * total] = 0.0  # all in one place, up to rounding
    many = np.bincount(piece) >= _MANY
    sure = many & ((round_ > _ROUND) | ((open_ < _OPEN) & (round_ > _FLAT)))
    up = _total(piece, area * np.einsum("nc,c->n", n, _UP))
    inward = np.where(round_ > _FLAT, volume, up) < 0
    return np.where(inward, -1.0, 1.0)[piece], sure[piece]


def _total(slot: Ints, values: Floats, count: int = 0) -> Floats:  # (N,), (N,) -> (P,)
    """The sum of the values of each slot."""
    return np.bincount(slot, values, count).astype(np.float64, copy=False)


def _totals(slot: Ints, area: Floats, values: Floats) -> Floats:  # (N,), (N,), (N, 3) -> (P, 3)
    return np.stack([_total(slot, area * column) for column in values.T], 1)
