"""What the projection wins on pairs that training has not seen."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch
from benchmarks import tables
from benchmarks.register_parts.pairs import Pair, moved, right_matches

from experiments import common
from experiments.descriptors.learn import surfaces
from veckm.tasks.registration import register
from veckm.tasks.registration.matching import comparable, features, mutual_matches, nearest
from veckm.tasks.registration.surface import REACH, Surface

#: Names of the methods, and whether they have the projection.
METHODS = {"learnt projection": True, "principal components": False}


def row(kind: str, pair: Pair) -> dict[str, Any]:
    """Both methods on one pair."""
    p, q = surfaces(pair)
    a, b = features(p), features(q)
    return {
        "kind": kind,
        "name": pair.name,
        "methods": {
            name: _method(pair, p, q, *comparable(a, b, learnt), learnt)
            for name, learnt in METHODS.items()
        },
    }


def _method(
    pair: Pair, p: Surface, q: Surface, a: torch.Tensor, b: torch.Tensor, learnt: bool
) -> dict[str, Any]:
    share = right_matches(p.pos, q.pos, nearest(a, b)[0].numpy(), pair.truth, p.voxel)
    mutual = mutual_matches(a, b)
    off = np.linalg.norm(moved(p.pos[mutual[:, 0]], pair.truth) - q.pos[mutual[:, 1]], axis=1)
    found = register(*map(torch.from_numpy, (pair.source, pair.target)), learnt=learnt)
    return {
        "right": None if np.isnan(share) else round(share, 4),
        "mutual": round(float((off < REACH * p.voxel).mean()), 4) if len(mutual) else 0.0,
        "aligned": pair.right(found.transform.numpy()),
        "claimed": found.aligned,
    }


def page(results: dict[str, Any]) -> str:
    """Means over the pairs of a kind, as a table."""
    rows = results["rows"]
    lines = []
    for kind in dict.fromkeys(r["kind"] for r in rows):
        mine = [r["methods"] for r in rows if r["kind"] == kind]
        for method in METHODS:
            each = [m[method] for m in mine]
            lines.append(
                [
                    kind,
                    method,
                    f"{statistics.mean(e['right'] for e in each if e['right'] is not None):.3f}",
                    f"{statistics.mean(e['mutual'] for e in each):.3f}",
                    f"{sum(e['aligned'] for e in each)} of {len(each)}",
                ]
            )
    header = ["pairs", "compared by", "right nearest", "right mutual", "aligned"]
    return f"{common.where(results)}\n\n{tables.table(header, lines)}\n"
