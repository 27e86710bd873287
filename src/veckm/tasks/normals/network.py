"""The trained estimator: weigh the neighbors of all levels, fit a plane, let normals vote.

A stage reads invariants of every neighbor: where it lies and how its normal leans, both relative to
the normal of the point so far. They do not change when the cloud is rotated. The stage computes a
weight for each neighbor. A plane through the weighted neighbors, the normals of the neighbors and
the point's own normals of all levels and windows then vote:

    T = sum_e v_e n_e n_e^T + sum_k a_k (n V_k^T + V_k n^T)
    normal = the dominant eigenvector of T

Weights depend on invariants only, so the normal rotates with the cloud by construction. The next
stage reads the output of this one at the neighbors, and so sees farther; and the encodings as seen
from it, with the directions V to move it along (`encodings.py`). Every stage also predicts its
angle error.

Channels come first and points last, (C, L, K, B): sums over neighbors and products with weights
are then long vector operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from veckm.parallel import one_thread, share, workers
from veckm.tasks.normals import eigen
from veckm.tasks.normals.encodings import (
    INVARIANTS,
    PEAK_NUMBERS,
    PEAKS,
    SCALES,
    VECTORS,
    peaks,
    seen_from,
)
from veckm.tasks.normals.pyramid import (
    HEIGHT,
    LEVELS,
    NEIGHBORS,
    NORMAL,
    POSITION,
    ROUGHNESS,
    Pyramid,
)

#: Points whose neighbors are read together: what a stage holds of them stays in the cache.
_ROWS = 2048
#: Points whose eigenvectors are computed together: these take many short operations.
_POINTS = 8192
#: Invariants of a neighbor and a one, which makes the bias; and invariants of the point itself.
EDGE = 10
POINT = 6 * LEVELS + LEVELS * (LEVELS - 1) // 2 + 1 + PEAKS * (1 + LEVELS) + PEAK_NUMBERS
#: Numbers from the encodings, seen from the normal so far.
SEEN = SCALES * INVARIANTS
#: The unit of the predicted error, in degrees.
DEGREES = 5.0
#: Logarithms of the error that a stage predicts, and that the next one reads: 0.05 to 90 degrees.
_PREDICTED = (-6.0, 3.0)
_READ = (math.log(0.05 / DEGREES), math.log(90 / DEGREES))
#: Of the calibration of expected errors.
KNOTS = 32


@dataclass(frozen=True)
class StageInput:
    """The neighborhoods of B points."""

    edge: Tensor  # (L, EDGE, K, B) invariants of each neighbor
    point: Tensor  # (POINT, B) invariants of the point itself
    offset: Tensor  # (3, L, K, B) to each neighbor, in units of the radius of level 1
    votes: Tensor  # (3, L, K, B) unit normals of the neighbors
    own: Tensor  # (3, O, B) unit normals of the point itself
    best: Tensor  # (3, B) the normal so far
    turns: Tensor | None  # (3, V, B) where the encodings would move it


def gather_inputs(pyramid: Pyramid, rows: Tensor, previous: Tensor | None) -> StageInput:
    """The input of a stage at the points `rows` (B,), given the previous stage at all, (N, 4).

    The first stage takes each level's own normal as reference, the others the normal so far.
    """
    count = len(rows)
    index = pyramid.index.index_select(0, rows).permute(1, 2, 0).long().contiguous()  # (L, K, B)
    level = torch.arange(LEVELS, device=index.device)[:, None, None]
    seen = pyramid.table.view(-1, 8).index_select(0, (index * LEVELS + level).view(-1))
    seen = seen.t().reshape(8, LEVELS, NEIGHBORS, count)
    mine = pyramid.table.index_select(0, rows).permute(2, 1, 0).contiguous()  # (8, L, B)
    radius = pyramid.radius.index_select(0, rows).t().contiguous()  # (L, B)
    own, theirs = mine[NORMAL], seen[NORMAL]  # (3, L, B), (3, L, K, B)
    if previous is None:
        reference, votes, error, own_error = own, theirs, seen[ROUGHNESS], mine[ROUGHNESS, 0]
        options, best = own, own[:, 1]
    else:
        there = previous.index_select(0, index.view(-1)).t().reshape(4, LEVELS, NEIGHBORS, count)
        here = previous.index_select(0, rows).t()
        best, own_error = here[:3], here[3].clamp(*_READ)
        votes, error = there[:3], there[3].clamp(*_READ)
        reference = best[:, None].expand(-1, LEVELS, -1)
        options = torch.cat([own, best[:, None]], 1)
    G = pyramid.encoding.index_select(0, rows).float()
    top, clear = peaks(G)
    offset = seen[POSITION] - mine[POSITION, :1, None]
    edge, middle = _edges(offset / radius[:, None], reference[:, :, None], votes, theirs)
    edge[:, 6], edge[:, 7] = error, seen[ROUGHNESS]
    i, j = torch.triu_indices(LEVELS, LEVELS, 1)
    point = torch.cat(
        (
            mine[ROUGHNESS],
            mine[HEIGHT].abs(),
            pyramid.width.index_select(0, rows).t(),
            radius.log() / 3,
            middle.abs(),
            eigen.dot(own, best[:, None]).abs(),
            eigen.dot(own[:, i], own[:, j]).abs(),
            own_error[None],
            eigen.dot(top, best[:, None]).abs(),
            eigen.dot(top[:, :, None], own[:, None]).abs().flatten(0, 1),
            clear,
        )
    )
    turns = None
    if previous is not None:
        numbers, turns = seen_from(G, best)
        point = torch.cat((point, numbers))
    options = torch.cat([options, top], 1)
    return StageInput(edge, point, offset / radius[1], votes, options, best, turns)


def _edges(
    u: Tensor,  # (3, L, K, B) from the point to each neighbor, in radii of the level
    reference: Tensor,  # (3, L, 1, B) normal that heights are measured along
    votes: Tensor,  # (3, L, K, B) normals of the neighbors so far
    theirs: Tensor,  # (3, L, K, B) normals of the neighbors at the level
) -> tuple[Tensor, Tensor]:  # (L, EDGE, K, B), (L, B)
    """Invariants of the neighbors, except numbers 6 and 7, and their mean height.

    Written in place: no gradient passes through them.
    """
    edge = u.new_empty(LEVELS, EDGE, *u.shape[2:])
    h = eigen.dot(u, reference)
    middle = h.mean(1)
    side = torch.where(middle < 0, -1.0, 1.0)[:, None]  # which way the surface curves
    lean = eigen.dot(votes, reference)
    torch.mul(h, side, out=edge[:, 0])
    torch.mul(h, h, out=edge[:, 1]).mul_(4)
    edge[:, 2] = eigen.dot(u, u)
    torch.sqrt(edge[:, 2], out=edge[:, 3])
    torch.abs(lean, out=edge[:, 4])
    torch.mul(eigen.dot(votes, u), torch.where(lean < 0, -side, side), out=edge[:, 5])
    torch.abs(eigen.dot(theirs, reference), out=edge[:, 8])
    edge[:, 9] = 1
    return edge, middle


class Stage(nn.Module):
    """From neighbors to weights, and from these to a normal and its expected error."""

    def __init__(self, first: bool, hidden: int, context: int) -> None:
        super().__init__()
        point, options = POINT, LEVELS + PEAKS
        if not first:
            point, options = point + SEEN, options + 1
        self.layer1 = nn.Parameter(torch.randn(LEVELS, hidden, EDGE) * math.sqrt(2 / EDGE))
        nn.init.zeros_(self.layer1[:, :, -1])
        self.layer2 = nn.Parameter(torch.randn(LEVELS, hidden, hidden) * math.sqrt(2 / hidden))
        self.logits = nn.Parameter(torch.zeros(LEVELS, 2, hidden))  # for the plane, for the vote
        self.context = nn.Sequential(
            nn.Linear(2 * LEVELS * hidden + point, context),
            nn.ReLU(),
            nn.Linear(context, context),
            nn.ReLU(),
        )
        self.context_bias = nn.Linear(context, LEVELS * hidden)
        self.level_logits = nn.Linear(context, 2 * LEVELS)
        self.option_logits = nn.Linear(context, options + 1)
        if not first:
            self.turn = nn.Linear(context, SCALES * VECTORS)
            nn.init.zeros_(self.turn.weight)
            nn.init.zeros_(self.turn.bias)
        self.error_head = nn.Sequential(nn.Linear(context + 2, 32), nn.ReLU(), nn.Linear(32, 1))
        nn.init.zeros_(self.level_logits.weight)
        nn.init.zeros_(self.level_logits.bias)

    def forward(self, inputs: Iterable[StageInput]) -> tuple[Tensor, Tensor]:  # (B, 4), (B, 3)
        """Normal and logarithm of its expected error, and the normal of the plane alone."""
        return self._predict(torch.cat([self._summarize(part) for part in inputs], 1))

    def _summarize(self, inputs: StageInput) -> Tensor:  # (13 + C, B)
        """Weigh the neighbors: what is left of them is a few numbers per point.

        The covariance of the weighted neighbors (6), the sum of v n n^T over all normals but that
        of the plane (6), v of the plane (1), and the context (C).
        """
        L, _, K, B = inputs.edge.shape
        edge = inputs.edge.reshape(L, EDGE, K * B)
        h = functional.relu(torch.bmm(self.layer1, edge), inplace=True)
        each = h.view(L, -1, K, B)
        pooled = each.mean(2).flatten(0, 1), each.amax(2).flatten(0, 1)
        c = torch.cat((*pooled, inputs.point))
        for layer in self.context:
            c = _linear(layer, c) if isinstance(layer, nn.Linear) else layer(c)  # (C, B) at last
        z = torch.bmm(self.layer2, h).view(L, -1, K, B)
        z += _linear(self.context_bias, c).view(L, -1, 1, B)
        z = functional.relu(z, inplace=True)
        logits = torch.bmm(self.logits, z.view(L, -1, K * B)).view(L, 2, K, B)
        logits = logits + _linear(self.level_logits, c).view(L, 2, 1, B)
        logits = logits.transpose(0, 1).reshape(2, L * K, B)
        d = inputs.offset.reshape(3, L * K, B)
        w = logits[0].softmax(0) / (eigen.dot(d, d) + 0.05)  # far ones count by their angle
        w = w / w.sum(0)
        spread = (eigen.outer(d - (d * w).sum(1, keepdim=True)) * w).sum(1)
        options = _linear(self.option_logits, c) + math.log(K)
        v = torch.cat((logits[1], options)).softmax(0)  # (E, B)
        n = torch.cat((inputs.votes.reshape(3, L * K, B), inputs.own), 1)
        T = (eigen.outer(n) * v[:-1]).sum(1)
        if inputs.turns is not None:
            T = T + _between(inputs.best, (inputs.turns * _linear(self.turn, c)).sum(1))
        return torch.cat((spread, T, v[-1:], c))

    def _predict(self, summary: Tensor) -> tuple[Tensor, Tensor]:
        plane = eigen.smallest(summary[:6])  # (3, B)
        T = summary[6:12] + eigen.outer(plane) * summary[12]  # (6, B)
        normal = eigen.dominant(T)
        agreement = eigen.dot(eigen.times(T, normal), normal)
        same = eigen.dot(normal, plane).abs()
        known = torch.cat((summary[13:], agreement[None], same[None])).t().detach()
        return torch.cat((normal.t(), self.error_head(known).clamp(*_PREDICTED)), 1), plane.t()


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:  # (C_in, B) -> (C_out, B)
    """The layer on channels first."""
    return torch.addmm(layer.bias[:, None], layer.weight, x)


def _between(n: Tensor, v: Tensor) -> Tensor:  # (3, B), (3, B) -> (6, B)
    """n v^T + v n^T: added to T, it moves the dominant eigenvector from n towards v."""
    diagonal = 2 * n * v
    mixed = [n[i] * v[j] + n[j] * v[i] for i, j in ((0, 1), (0, 2), (1, 2))]
    return torch.cat((diagonal, torch.stack(mixed)))


@one_thread()
@torch.no_grad()
def run_stage(
    stage: Stage, pyramid: Pyramid, previous: Tensor | None, rows: Tensor | None = None
) -> Tensor:  # (N, 4)
    """A stage at all points of a cloud, given the output of the previous one.

    The output is the normal and the logarithm of its expected error, in units of `DEGREES`. With
    `rows` (n,) it is computed at those only, and the other rows are undefined.
    """
    out = pyramid.radius.new_empty(len(pyramid.radius), 4)
    asked = torch.arange(len(out)) if rows is None else rows
    large = asked.split(_POINTS) if len(asked) else ()

    def work(rows: Tensor) -> None:
        parts = rows.split(_ROWS)
        out[rows] = stage(gather_inputs(pyramid, part, previous) for part in parts)[0]

    share(large, lambda _: work, workers(out.device, 4 * len(large)))
    return out


class NormalNet(nn.Module):
    """Stages one after the other."""

    stages: Sequence[Stage]
    calibration: Tensor  # (2, knots): predicted and measured logarithms of errors, both ascending

    def __init__(self, stages: int = 2, hidden: int = 16, context: int = 64, seed: int = 0) -> None:
        super().__init__()
        self.settings = {"stages": stages, "hidden": hidden, "context": context}
        with torch.random.fork_rng(devices=[]):  # layers draw from the global generator
            torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
            made = [Stage(k == 0, hidden, context) for k in range(stages)]
        self.stages = nn.ModuleList(made)  # type: ignore[assignment]
        self.register_buffer("calibration", torch.linspace(*_READ, KNOTS).repeat(2, 1))

    def forward(
        self, pyramid: Pyramid, rows: Sequence[np.ndarray] | None = None
    ) -> tuple[Tensor, Tensor]:  # (N, 3), (N,)
        """Normals of all points and their expected errors in degrees, without a graph.

        With `rows` each stage is run at its own (n,) only: those that the next stage reads.
        """
        out = self.run(pyramid, rows)
        return out[:, :3], DEGREES * self.calibrated(out[:, 3]).exp()

    def run(self, pyramid: Pyramid, rows: Sequence[np.ndarray] | None = None) -> Tensor:  # (N, 4)
        """The output of the last stage, before calibration."""
        out = None
        for number, stage in enumerate(self.stages):
            asked = None if rows is None else torch.from_numpy(rows[number])
            out = run_stage(stage, pyramid, out, asked)
        assert out is not None
        return out

    def calibrated(self, error: Tensor) -> Tensor:  # (N,) -> (N,)
        """Logarithms of errors as measured where these were predicted: linear between knots."""
        at, measured = self.calibration
        k = torch.bucketize(error.contiguous(), at[1:-1].contiguous())
        slope = (measured[1:] - measured[:-1]) / (at[1:] - at[:-1])
        found: Tensor = measured[k] + slope[k] * (error.clamp(at[0], at[-1]) - at[k])
        return found
