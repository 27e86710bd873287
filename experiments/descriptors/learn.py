"""The projection: between views of one place small, between places large.

    start     V with V^T S_w V = 1 and V^T S_t V diagonal, its largest     (Fisher's discriminant)
    contrast  - log softmax_j(t <f(a_i), f(b_j)>)_i                        both ways

S_w is the covariance of what differs between the two descriptors of one place in two views, S_t
that of all descriptors. Places nearer to each other than a right match may be are no negatives.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from benchmarks.register_parts import views
from benchmarks.register_parts.pairs import RIGHT, Pair, moved
from scipy.linalg import eigh
from scipy.spatial import cKDTree
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from experiments.descriptors import scenes
from veckm.tasks.registration.align import VOXELS
from veckm.tasks.registration.matching import features, standardized
from veckm.tasks.registration.sampling import voxel_size
from veckm.tasks.registration.surface import Surface

#: Matched places of a pair that are kept, least ones, and how near they are in voxels.
_PLACES, _LEAST, _NEAR = 2500, 300, 0.75
#: Cosine of the normals of one place in two views, up to sign.
_SAME = 0.7
_RIDGE, _DECAY = 0.02, 1e-3


@dataclass(frozen=True)
class Example:
    """Descriptors of the same places in two views."""

    kind: str
    source: Tensor  # (n, F) float32, standardized
    target: Tensor  # (n, F)
    pos: Tensor  # (n, 3) in voxels
    total: Tensor  # (F, F) float64: covariance of all of the two clouds


@dataclass(frozen=True)
class Counts:
    """How many simulated pairs there are beside those of the meshes."""

    solids: int = 15
    rooms: int = 45
    streets: int = 20


@dataclass(frozen=True)
class Budget:
    """How long the projection is trained."""

    steps: int = 600
    batch: int = 512
    rate: float = 5e-4
    seed: int = 0


def pairs(meshes: Path, counts: Counts, seed: int) -> Iterator[tuple[str, Pair]]:
    """Two views of every mesh and every solid at three noises, rooms and streets, by kind."""
    parts: dict[str, Iterable[Pair]] = {
        "meshes": views.pairs(views.meshes(meshes), seed),
        "solids": views.pairs(views.solids(counts.solids, 1000 * seed), seed + 1),
        "rooms": scenes.rooms(counts.rooms, seed + 1),
        "streets": scenes.streets(counts.streets, seed + 1),
    }
    for kind, some in parts.items():
        yield from zip(itertools.repeat(kind), some)


def surfaces(pair: Pair) -> tuple[Surface, Surface]:
    """Both clouds as `veckm.register` sees them."""
    voxel = voxel_size([pair.source, pair.target], VOXELS)
    p, q = (Surface.of(x, voxel) for x in (pair.source, pair.target))
    return p, q


def example(kind: str, pair: Pair, seed: int) -> Example | None:
    """Places that both views see, or None where they see too few."""
    p, q = surfaces(pair)
    distance, nearest = cKDTree(q.pos).query(moved(p.pos, pair.truth))
    turned = p.normal @ pair.truth[:3, :3].T
    same = np.abs((turned * q.normal[nearest]).sum(1)) > _SAME
    rows = np.flatnonzero((distance < _NEAR * p.voxel) & same)
    if len(rows) < _LEAST:
        return None
    rows = np.random.default_rng(seed).permutation(rows)[:_PLACES]
    a, b = standardized(features(p), features(q))
    both = torch.cat([a, b]).double()
    pos = torch.from_numpy(q.pos[nearest[rows]] / p.voxel).float()
    return Example(kind, a[rows], b[nearest[rows]], pos, both.t() @ both / len(both))


def discriminant(examples: list[Example], size: int) -> Tensor:  # (F, size)
    """Fisher's discriminant directions, the best first, of unit mean length."""
    off = [(e.source - e.target).double() for e in examples]
    within = torch.stack([d.t() @ d / (2 * len(d)) for d in off]).mean(0)
    total = torch.stack([e.total for e in examples]).mean(0)
    ridge = _RIDGE * torch.trace(within) / len(within) * torch.eye(len(within))
    _, V = eigh(total.numpy(), (within + ridge).numpy())
    best = torch.from_numpy(V[:, ::-1][:, :size].copy())
    return (best / best.norm(dim=0).mean()).float()


def train(examples: list[Example], P: Tensor, budget: Budget) -> Iterator[tuple[int, float]]:
    """Change the projection (F, size); step and mean loss since the last one, a dozen times."""
    g = torch.Generator().manual_seed(budget.seed)
    P.requires_grad_()
    sharpness = torch.tensor(2.5, requires_grad=True)
    optimizer = torch.optim.AdamW([P, sharpness], budget.rate, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, budget.rate, total_steps=budget.steps, pct_start=0.1
    )
    kinds = [[e for e in examples if e.kind == kind] for kind in sorted({e.kind for e in examples})]
    losses: list[float] = []
    for step in range(1, budget.steps + 1):
        some = kinds[int(torch.randint(len(kinds), (1,), generator=g))]
        each = some[int(torch.randint(len(some), (1,), generator=g))]
        rows = torch.randperm(len(each.pos), generator=g)[: budget.batch]
        loss = contrast(each, rows, P, sharpness.exp())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if step % math.ceil(budget.steps / 12) == 0 or step == budget.steps:
            yield step, sum(losses) / len(losses)
            losses = []
    P.requires_grad_(False)


def contrast(each: Example, rows: Tensor, P: Tensor, sharpness: Tensor) -> Tensor:
    """The loss above."""
    x, y = (normalize(part[rows] @ P, dim=1) for part in (each.source, each.target))
    near = torch.cdist(each.pos[rows], each.pos[rows]) < RIGHT
    near.fill_diagonal_(False)
    S = (sharpness * (x @ y.t())).masked_fill(near, -1e4)
    own = torch.arange(len(rows))
    loss: Tensor = (cross_entropy(S, own) + cross_entropy(S.t(), own)) / 2
    return loss
