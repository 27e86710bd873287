"""Two clouds side by side: which points match, and how similar their encodings are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veckm.functional import similarity
from veckm.knn import build_tree, query
from veckm.viewer.display import DisplayCloud
from veckm.viewer.encodings import Encodings


@dataclass(frozen=True, eq=False)
class Matches:
    """For each displayed point of a cloud, the displayed point of another that matches it.

    Attributes:
        rows: of the other's displayed points.
        rule: how they were matched, for the page.

    Shapes:
        - rows: (M,) int64
    """

    rows: Tensor
    rule: str

    def similarity(self, one: Encodings, other: Encodings) -> np.ndarray:  # (M,) float32
        """Similarity of each point's encoding with that of its match (Proposition 2)."""
        out = torch.empty(len(one))
        for rows, G in one.chunks():
            out[rows] = similarity(G, other.of(self.rows[rows]))
        return out.numpy()


def match(one: DisplayCloud, other: DisplayCloud) -> Matches:
    """Match row by row where the clouds have the same rows, else by the nearest point."""
    if len(one.pos) == len(other.pos) and torch.equal(one.rows, other.rows):
        return Matches(torch.arange(len(one)), "row by row")
    tree = build_tree(other.pos[other.rows].numpy())
    rows = query(tree, one.pos[one.rows].numpy(), 1)[1]
    return Matches(torch.from_numpy(rows[:, 0]), "by the nearest point")
