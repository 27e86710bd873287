r"""Signs of patches for which the cloud has one inside: a field that is 1 there and 0 elsewhere.

Area-weighted normals that point out of closed surfaces are minus the gradient of such a field. Each
patch j of area a_j and mean normal n_j adds to it, at x,

.. math:: \chi_j(x) = \frac{a_j\, n_j \cdot (x_j - x)}{4 \pi\, (|x_j - x|^2 + h_j^2)^{3/2}},

the solid angle under which it is seen, smoothed over its own size h_j. On a surface the field is
half way, 1/2, whatever the shape, holes and cavities are: that fixes the signs, which the votes of
neighbors leave open where the surface is thin, sharp or noisy. The signs s minimize

.. math:: \sum_i a_i \left(c \sum_j s_j \chi_j(x_i) - \tfrac12\right)^2
          - \sum_{ij} a_{ij}\, s_i s_j v_{ij}

with v_ij the votes, a_ij the area per vote, and c, near 1, by least squares. Groups of patches are
flipped while that decreases, whole pieces first, single patches last. An open sheet has no inside:
where in the end the field is not near 1/2 on a piece, the signs of this piece stay as they were.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from veckm.tasks.normals.votes import Edges, Floats, Ints, total

#: At most about so many patches; of more the smallest are left as they are.
PATCHES = 2000
#: What votes weigh against the field, and how many a point has.
_TRUST, _VOTES = 3.0, 10
#: The square of h_j, as a share of the mean square distance of the patch from its center.
_SMOOTH = 0.3
#: Passes over the groups, with c from the one before and within these limits; flips per group.
_PASSES, _SCALES, _FLIPS = 2, (0.05, 2.0), 3
#: A piece is flipped as a whole for no less than this share of its area.
_PIECE = 0.3
#: The mean of x (1 - x) over a piece, x the field on it, is 1/4 if it is closed; at least this.
_CLOSED = 0.12

_Matrix = npt.NDArray[np.float32]


def improved(
    sums: Floats,  # (P, 10)
    votes: Edges,  # between patches
    sign: Floats,  # (P,) to start from
    groups: list[Ints],  # (P,) each, nested: single patches, ..., pieces, bodies of pieces
) -> Floats:  # (P,)
    """The signs after the flips that make the field more of an indicator."""
    node = np.sort(np.argsort(-sums[:, 1], kind="stable")[:PATCHES])
    area, labels = sums[node, 1], [np.unique(g[node], return_inverse=True)[1] for g in groups]
    chi = solid_angles(sums[node])
    square = chi.T @ (area[:, None].astype(np.float32) * chi)
    wanted, agreed = chi.T @ area, _agreement(sums, votes, node)
    least = [_least(label, labels[-2], area) for label in labels]
    old, body = sign[node], labels[-1]
    extent = float(np.sqrt(old @ square @ old / area.sum()))
    found = []
    for start in (1.0, 0.5 / max(extent, 1e-300)):  # as measured, and as it has to be on average
        new, scale = old, start
        for _ in range(_PASSES):
            scale = float(np.clip(scale, *_SCALES))
            cost = np.float32(2 * scale**2) * square - agreed
            new = new * _flips(cost, scale * wanted, new, labels, least)
            scale = float(new @ wanted / max(2 * new @ square @ new, 1e-300))
        rest = scale**2 * new @ square @ new - scale * new @ wanted - new @ agreed @ new / 2
        found.append((float(rest), scale, new))
    _, scale, new = min(found, key=lambda each: each[0])
    field = scale * (chi @ new)
    closed = total(body, area * field * (1 - field)) > _CLOSED * total(body, area)
    out = sign.copy()
    out[node] = np.where(closed[body], new, old)
    return out


def solid_angles(sums: Floats) -> _Matrix:  # (P, 10) -> (P, P)
    """The field of each patch (column) at the center of each (row), as a share of all around."""
    area, center, normal = sums[:, 1], sums[:, 2:5], sums[:, 5:8]
    center = center - np.average(center, axis=0, weights=area)
    norm = np.square(center).sum(1)
    square = norm[:, None] + norm + _SMOOTH * sums[:, 9] / area - 2 * center @ center.T
    np.fill_diagonal(square, np.inf)  # its own plane has none of it
    square[square <= 1e-12 * norm.max(initial=0.0)] = np.inf
    height = (center * normal).sum(1) - center @ normal.T
    kernel: npt.NDArray[np.float32] = height / (4 * np.pi * square * np.sqrt(square))
    return kernel.astype(np.float32)


def _agreement(sums: Floats, votes: Edges, node: Ints) -> _Matrix:  # (P,) -> (P, P)
    """Votes between patches times the area that each stands for."""
    row = np.full(len(sums), -1)
    row[node] = np.arange(len(node))
    known = (row[votes.a] >= 0) & (row[votes.b] >= 0)
    a, b, vote, _ = (values[known] for values in votes)
    area = (sums[a, 1] + sums[b, 1]) / (sums[a, 0] + sums[b, 0]) / _VOTES
    pair, value = row[a] * len(node) + row[b], _TRUST * area * vote
    out = total(pair, value, len(node) ** 2).reshape(len(node), -1)
    return (out + out.T).astype(np.float32)


def _least(label: Ints, piece: Ints, area: Floats) -> Floats:  # (P,) each -> (G,)
    """What a flip of each group must gain: something only if the group is a whole piece."""
    owner = np.empty(int(label.max()) + 1, np.int64)
    owner[label] = piece
    whole = np.bincount(owner)[owner] == 1
    return np.where(whole, _PIECE * total(label, area), 0.0)


def _flips(
    cost: _Matrix,  # (P, P)
    wanted: Floats,  # (P,)
    sign: Floats,  # (P,)
    labels: list[Ints],  # (P,) each
    least: list[Floats],  # (G,) each
) -> Floats:  # (P,)
    """-1 where groups are better flipped: the best first, the largest groups first."""
    facing = sign.astype(np.float32)
    pull, gain = cost * facing[:, None] * facing, sign * wanted
    levels = [(pull, gain, labels[0])]
    for fine, coarse in pairwise(labels):
        above = np.empty(int(fine.max()) + 1, np.int64)
        above[fine] = coarse
        order = np.argsort(above, kind="stable")
        first = np.flatnonzero(np.diff(above[order], prepend=-1))
        pull = np.add.reduceat(np.add.reduceat(pull[order], first, 0)[:, order], first, 1)
        gain = np.add.reduceat(gain[order], first)
        levels.append((pull, gain, coarse))
    turn = np.ones(len(sign))
    for (pull, gain, label), needed in zip(reversed(levels), reversed(least), strict=True):
        start = np.empty(len(gain))
        start[label] = turn
        turn = _descend(pull, gain, start, needed)[label]
    return turn


def _descend(pull: _Matrix, gain: Floats, turn: Floats, least: Floats) -> Floats:  # (G,)
    """Flip the best group until none is better flipped, by more than `least`."""
    force, own = pull @ turn, np.diag(pull).astype(np.float64)
    for _ in range(_FLIPS * len(turn)):
        change = 2 * turn * (gain - force + own * turn) + least
        best = int(change.argmin())
        if change[best] >= -1e-6 * np.abs(gain).max():
            break
        force -= 2 * turn[best] * pull[:, best]
        turn[best] = -turn[best]
    return turn
