"""Two clouds side by side: which points match, and how like their encodings are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from veckm.functional import similarity
from veckm.viewer.encode import Encodings
from veckm.viewer.shown import Shown

_ROWS = 16_384


@dataclass(frozen=True, eq=False)
class Matches:
    """For each shown point of a cloud, the shown point of another that it is compared with.

    Attributes:
        rows: of the other's shown points.
        how: the rule, as the page says it.

    Shapes:
        - rows: (M,) int64
    """

    rows: Tensor
    how: str


def match(one: Shown, other: Shown) -> Matches:
    """Match row by row where the clouds have the same rows, else by the nearest point."""
    same = len(one.pos) == len(other.pos) and torch.equal(one.rows, other.rows)
    if same:
        return Matches(torch.arange(len(one)), "row by row")
    tree = cKDTree(other.pos[other.rows].numpy())
    rows = tree.query(one.pos[one.rows].numpy(), workers=-1)[1]
    return Matches(torch.from_numpy(np.asarray(rows, dtype=np.int64)), "by the nearest point")


def match_similarity(
    one: Encodings, other: Encodings, matches: Matches
) -> np.ndarray:  # (M,) float32
    """The similarity of each point's encoding with that of its match (Proposition 2)."""
    out = torch.empty(len(one))
    for rows, part in one.pieces():
        for some, G in zip(rows.split(_ROWS), part.split(_ROWS), strict=True):
            out[some] = similarity(G, other.of(matches.rows[some]))
    return out.numpy()
