"""The trained estimator: weigh the neighbors of all levels, fit a plane, let normals vote.

One stage reads, for every neighbor, where it lies and how its normal leans, both seen from the
normal that the point has so far: numbers that do not change when the cloud is turned. It answers
with a weight for each neighbor. A plane through the weighted neighbors, the normals of the
neighbors and the point's own normals of all levels then vote:

    T = sum_e v_e n_e n_e^T,        normal = the dominant eigenvector of T.

Weights of invariants on vectors: the answer turns with the cloud, by construction. The next stage
sees the answers of this one at the neighbors, and so looks farther. Every stage also says what
angle error it expects.

Channels come first and points last, (C, L, K, B): sums over neighbors and products with weights
are then long vector operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from veckm.data.sampling import Seed, make_generator
from veckm.parallel import one_thread, share, workers
from veckm.tasks.normals import eigen
from veckm.tasks.normals.levels import HEIGHT, LEVELS, NEIGHBORS, NORMAL, PLACE, ROUGH, Levels

#: Points whose neighbors are read together: what a stage holds of them stays in the cache.
_ROWS = 1024
#: Points that are concluded about together.
_CONCLUDED = 4096
#: Invariants of a neighbor, and of the point itself.
EDGE = 9
POINT = 4 * LEVELS + LEVELS * (LEVELS - 1) // 2 + 1
#: The expected error is counted in this many degrees.
_DEGREES = 5.0


@dataclass(frozen=True)
class Answer:
    """What a stage says about points."""

    normal: Tensor  # (N, 3) unit
    plane: Tensor  # (N, 3) unit: that of the weighted plane alone
    error: Tensor  # (N,) the expected angle error, in degrees

    @cached_property
    def spoken(self) -> Tensor:
        """(N, 4): the normal, and the logarithm of the error."""
        doubt = (self.error.clamp(0.05, 90.0) / _DEGREES).log()
        return torch.cat([self.normal, doubt[:, None]], 1)


@dataclass(frozen=True)
class View:
    """The neighborhoods of some points, as a stage sees them."""

    edge: Tensor  # (L, EDGE, K, B) invariants of each neighbor
    point: Tensor  # (POINT, B) invariants of the point itself
    offset: Tensor  # (3, L, K, B) to each neighbor, in units of the radius of level 1
    votes: Tensor  # (3, L, K, B) unit normals of the neighbors
    own: Tensor  # (3, O, B) unit normals of the point itself


@dataclass(frozen=True)
class Reading:
    """What is left of the neighbors: a few numbers a point, points last."""

    spread: Tensor  # (6, B) covariance of the weighted neighbors
    votes: Tensor  # (6, B) sum of v n n^T over all normals but that of the plane
    share: Tensor  # (B,) v of the normal of the plane
    context: Tensor  # (C, B)


Part = TypeVar("Part", View, Reading)


def join(parts: Sequence[Part]) -> Part:
    """One view, or one reading, of the points of all."""
    kind = type(parts[0])
    names = kind.__dataclass_fields__
    return kind(**{name: torch.cat([getattr(p, name) for p in parts], -1) for name in names})


def look(levels: Levels, rows: Tensor, said: Answer | None) -> View:
    """The view of the points `rows` (B,), given what the stage before said of all points.

    The first stage sees each level from the level's own normal, the others from the normal so far.
    """
    count = len(rows)
    index = levels.index.index_select(0, rows).permute(1, 2, 0).long().contiguous()  # (L, K, B)
    step = torch.arange(LEVELS, device=index.device)[:, None, None]
    seen = levels.table.view(-1, 8).index_select(0, (index * LEVELS + step).view(-1))
    seen = seen.t().reshape(8, LEVELS, NEIGHBORS, count)
    mine = levels.table.index_select(0, rows).permute(2, 1, 0).contiguous()  # (8, L, B)
    radius = levels.radius.index_select(0, rows).t().contiguous()  # (L, B)
    own, theirs = mine[NORMAL], seen[NORMAL]  # (3, L, B), (3, L, K, B)
    if said is None:
        ahead, votes, doubt, before = own, theirs, seen[ROUGH], mine[ROUGH, 0]
        options, reference = own, own[:, 1]
    else:
        spoken = said.spoken
        heard = spoken.index_select(0, index.view(-1)).t().reshape(4, LEVELS, NEIGHBORS, count)
        mine_so_far = spoken.index_select(0, rows).t()
        reference, before = mine_so_far[:3], mine_so_far[3]
        votes, doubt = heard[:3], heard[3]
        ahead = reference[:, None].expand(-1, LEVELS, -1)
        options = torch.cat([own, reference[:, None]], 1)
    offset = seen[PLACE] - mine[PLACE, :1, None]
    edge, middle = _edges(offset / radius[:, None], ahead[:, :, None], votes, theirs)
    edge[:, 6], edge[:, 7] = doubt, seen[ROUGH]
    i, j = torch.triu_indices(LEVELS, LEVELS, 1)
    point = torch.cat(
        (
            mine[ROUGH],
            mine[HEIGHT].abs(),
            middle.abs(),
            eigen.dot(own, reference[:, None]).abs(),
            eigen.dot(own[:, i], own[:, j]).abs(),
            before[None],
        )
    )
    return View(edge, point, offset / radius[1], votes, options)


def _edges(
    u: Tensor,  # (3, L, K, B) from the point to each neighbor, in radii of the level
    ahead: Tensor,  # (3, L, 1, B) the normal that it is seen from
    votes: Tensor,  # (3, L, K, B) normals of the neighbors so far
    theirs: Tensor,  # (3, L, K, B) normals of the neighbors at the level
) -> tuple[Tensor, Tensor]:  # (L, EDGE, K, B), (L, B)
    """Invariants of the neighbors, numbers 6 and 7 left open, and their mean height.

    They are written in place, for nothing of them is learned.
    """
    edge = u.new_empty(LEVELS, EDGE, *u.shape[2:])
    h = eigen.dot(u, ahead)
    middle = h.mean(1)
    side = torch.where(middle < 0, -1.0, 1.0)[:, None]  # which way the surface bends
    lean = eigen.dot(votes, ahead)
    torch.mul(h, side, out=edge[:, 0])
    torch.mul(h, h, out=edge[:, 1]).mul_(4)
    edge[:, 2] = eigen.dot(u, u)
    torch.sqrt(edge[:, 2], out=edge[:, 3])
    torch.abs(lean, out=edge[:, 4])
    torch.mul(eigen.dot(votes, u), torch.where(lean < 0, -side, side), out=edge[:, 5])
    torch.abs(eigen.dot(theirs, ahead), out=edge[:, 8])
    return edge, middle


def _linear(size: int, out: int, generator: torch.Generator) -> nn.Linear:
    """With torch's own first weights, but drawn from the generator."""
    layer = nn.utils.skip_init(nn.Linear, size, out)
    for value in layer.parameters():
        nn.init.uniform_(value, -(size**-0.5), size**-0.5, generator=generator)
    assert isinstance(layer, nn.Linear)
    return layer


class Stage(nn.Module):
    """Neighbors -> weights -> a normal and its expected error."""

    def __init__(self, options: int, hidden: int, context: int, generator: torch.Generator) -> None:
        super().__init__()
        self.inner = nn.Parameter(torch.empty(LEVELS, hidden, EDGE))
        self.inner_bias = nn.Parameter(torch.zeros(LEVELS, hidden, 1))
        self.outer = nn.Parameter(torch.empty(LEVELS, hidden, hidden))
        self.weigh = nn.Parameter(torch.zeros(LEVELS, 2, hidden))  # for the plane, for the vote
        for weight in (self.inner, self.outer):
            nn.init.normal_(weight, std=math.sqrt(2 / weight.shape[2]), generator=generator)
        self.context = nn.Sequential(
            _linear(2 * LEVELS * hidden + POINT, context, generator),
            nn.ReLU(),
            _linear(context, context, generator),
            nn.ReLU(),
        )
        self.bias = _linear(context, LEVELS * hidden, generator)
        self.level = _linear(context, 2 * LEVELS, generator)
        self.choose = _linear(context, options + 1, generator)
        self.doubt = nn.Sequential(
            _linear(context + 2, 32, generator), nn.ReLU(), _linear(32, 1, generator)
        )
        for zero in (self.level.weight, self.level.bias):
            nn.init.zeros_(zero)

    def forward(self, view: View) -> Answer:
        """Views of B points."""
        return self.conclude(self.read(view))

    def read(self, view: View) -> Reading:
        """The neighbors: all that is many times as large as the answer."""
        L, _, K, B = view.edge.shape
        edge = view.edge.reshape(L, EDGE, K * B)
        h = functional.relu(torch.baddbmm(self.inner_bias, self.inner, edge), inplace=True)
        c = self.context(torch.cat((self._pool(h.view(L, -1, K, B)), view.point)).t())  # (B, C)
        z = torch.bmm(self.outer, h).view(L, -1, K, B)
        z += self.bias(c).t().reshape(L, -1, 1, B)
        z = functional.relu(z, inplace=True)
        logits = torch.bmm(self.weigh, z.view(L, -1, K * B)).view(L, 2, K, B)
        logits = logits + self.level(c).t().reshape(L, 2, 1, B)
        logits = logits.transpose(0, 1).reshape(2, L * K, B)
        spread = _spread(view.offset.reshape(3, L * K, B), logits[0].softmax(0))
        v = torch.cat((logits[1], self.choose(c).t() + math.log(K))).softmax(0)  # (E, B)
        n = torch.cat((view.votes.reshape(3, L * K, B), view.own), 1)
        return Reading(spread, (eigen.outer(n) * v[:-1]).sum(1), v[-1], c.t())

    def conclude(self, reading: Reading) -> Answer:
        """Eigenvectors and the expected error, of any number of points at once."""
        plane = eigen.smallest(reading.spread)  # (3, B)
        T = reading.votes + eigen.outer(plane) * reading.share  # (6, B)
        normal = eigen.dominant(T)
        agreement = eigen.dot(eigen.times(T, normal), normal)
        same = eigen.dot(normal, plane).abs()
        known = torch.cat((reading.context, agreement[None], same[None])).t().detach()
        error = _DEGREES * self.doubt(known)[:, 0].clamp(-6.0, 3.0).exp()
        return Answer(normal.t(), plane.t(), error)

    @staticmethod
    def _pool(h: Tensor) -> Tensor:  # (L, H, K, B) -> (2 L H, B)
        return torch.cat((h.mean(2).flatten(0, 1), h.amax(2).flatten(0, 1)))


def _spread(v: Tensor, weights: Tensor) -> Tensor:  # (3, E, B), (E, B) -> (6, B)
    """The covariance of the weighted neighbors; far ones count by their angle."""
    w = weights / (eigen.dot(v, v) + 0.05)
    w = w / w.sum(0)
    v = v - (v * w).sum(1, keepdim=True)
    return (eigen.outer(v) * w).sum(1)


@one_thread()
def answers(
    stage: Stage, levels: Levels, said: Answer | None, rows: Tensor | None = None
) -> Answer:
    """What a stage says of all points of a cloud, given what the stage before said.

    With `rows` (n,) of those only; the other rows of the answer mean nothing.

    Neighbors are read in small parts that stay in the cache; what is left of them, a few numbers
    a point, is concluded from in large ones, for eigenvectors take many short operations.
    """
    size, like = len(levels), levels.radius
    out = Answer(like.new_empty(size, 3), like.new_empty(size, 3), like.new_empty(size))
    asked = torch.arange(size) if rows is None else rows
    n = len(asked)
    if said is not None:
        _ = said.spoken  # made once, before the workers ask for it

    def work(rows: Tensor) -> None:
        read = [stage.read(look(levels, part, said)) for part in rows.split(_ROWS)]
        answer = stage.conclude(join(read))
        out.normal[rows], out.plane[rows] = answer.normal, answer.plane
        out.error[rows] = answer.error

    large = asked.split(_CONCLUDED) if n else ()
    with torch.no_grad():
        share(large, lambda _: work, workers(like.device, 4 * len(large)))
    return out


class NormalNet(nn.Module):
    """Stages one after the other."""

    def __init__(
        self, stages: int = 2, hidden: int = 16, context: int = 64, seed: Seed = 0
    ) -> None:
        super().__init__()
        self.settings = {"stages": stages, "hidden": hidden, "context": context}
        generator = make_generator(seed)
        self.stages = nn.ModuleList(
            Stage(LEVELS + (k > 0), hidden, context, generator) for k in range(stages)
        )

    def stage(self, number: int) -> Stage:
        """One of them."""
        stage = self.stages[number]
        assert isinstance(stage, Stage)
        return stage

    def forward(self, levels: Levels, rows: Sequence[Tensor] | None = None) -> Answer:
        """Normals and expected errors of all points, without a graph.

        With `rows` each stage answers for its own (n,) only: those that the next stage looks at.
        """
        said = None
        for number in range(len(self.stages)):
            asked = None if rows is None else rows[number]
            said = answers(self.stage(number), levels, said, asked)
        assert said is not None
        return said
