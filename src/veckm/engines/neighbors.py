"""The neighbours engine: for a block of queries, the points near it, and one dense product.

    F_block = W (w E)_near,      W[q, j] = window(|x_j - q|)

Where the window holds few points this beats the grid; it also does the ball. A Gaussian is cut at
the radius outside which lies the share eps of its mass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn.functional import threshold

from veckm.engines.base import (
    Engine,
    Gaussian,
    Problem,
    Rates,
    Task,
    as_complex,
    as_real,
    empty_result,
)
from veckm.engines.blocks import Blocks, Group, octree, within
from veckm.engines.carrier import Carrier
from veckm.engines.search import Search
from veckm.parallel import one_thread, share, workers

#: Points of a block: enough for an efficient matrix product, few enough to stay compact.
BLOCK_POINTS = 96
#: Sides of a block in radii: coordinates about its centre must tell neighbours apart.
_WIDEST = {torch.float32: 128.0, torch.float64: 1e9}
#: Blocks in each of the few runs whose neighbours are counted to estimate the cost.
_SAMPLE = 16
#: Groups of blocks whose neighbours are looked up at once.
_LOOKUP = 8


@dataclass(frozen=True)
class Plan:
    """Queries in blocks, points in blocks, and the search that joins them."""

    source: Blocks
    target: Blocks
    search: Search

    @cached_property
    def tasks(self) -> list[list[Group]]:
        """Runs of groups: the neighbours of all their blocks are looked up together."""
        groups = self.target.groups
        return [groups[i : i + _LOOKUP] for i in range(0, len(groups), _LOOKUP)]

    def near(self, task: list[Group]) -> list[list[Tensor]]:
        """For each group of a task and each of its blocks, the rows of the points near it."""
        found = iter(self.search.near(task[0][1][0][0], task[-1][1][-1][0] + 1))
        return [[next(found) for _ in members] for _, members in task]

    def local(self, block: int, near: Tensor) -> Tensor:
        """(m, D_in): the points near a block about its centre."""
        x = self.search.points[near] - self.target.centre[block]
        return x.to(self.target.local.dtype)


class Neighbors(Engine):
    """Neighbour lists by blocks: N K D operations; a Gaussian is cut where eps allows."""

    name = "neighbors"

    def prepare(self, problem: Problem) -> Task:
        plan = make_plan(problem)
        blocks = len(plan.target.count)
        pairs = rows = seen = 0.0
        for first in range(0, blocks, max(_SAMPLE, blocks // 4)):  # a few runs stand for all
            last = min(first + _SAMPLE, blocks)
            near = torch.tensor([len(n) for n in plan.search.near(first, last)])
            pairs += float((near * plan.target.count[first:last].cpu()).sum())
            rows += float(near.sum())
            seen += last - first
        scale = blocks / max(1.0, seen)
        width = problem.columns.shape[1]
        size = problem.pos.element_size()
        numbers = (len(problem.pos) + len(problem.queries)) * width
        seconds = (
            scale * pairs * (4 * width * Rates.FLOP * size / 4 + Rates.DISTANCE)
            + scale * rows * 2 * width * size * Rates.ROW_BYTE
            + 3 * blocks * Rates.BLOCK
            + numbers * (Rates.PHASOR + Rates.WRITE)
            + Rates.CALL
            + len(problem.queries) * Rates.SEARCH
        )
        return Task(seconds, lambda: _run(problem, plan))


def _run(problem: Problem, plan: Plan) -> Tensor:
    if problem.needs_grad:
        sums = _Sums.apply(problem.pos, problem.queries, problem.weights, problem, plan)
        return problem.finish(sums)
    out = empty_result(problem)
    _sum(problem, plan, _strengths(problem, plan), out, problem.finish)
    return out


@one_thread()
def make_plan(problem: Problem) -> Plan:
    """Sort points and queries into blocks of at most `BLOCK_POINTS` where cells allow it."""
    radius = problem.window.reach(problem.eps, problem.in_dim)
    source = _blocks(problem.pos, problem.cloud, radius)
    target = source if problem.same else _blocks(problem.queries, problem.query_cloud, radius)
    return Plan(source, target, Search(source, target, radius))


def _blocks(pos: Tensor, cloud: Tensor, radius: float) -> Blocks:
    """Blocks that are neither crowded nor so wide that local coordinates lose their digits."""
    widest = _WIDEST[pos.dtype] * radius

    def price(sides: Tensor, count: Tensor) -> Tensor:
        bad = (count > BLOCK_POINTS) | (sides.amax(1) > widest)
        return 1.0 + bad.double() * count

    return octree(pos, cloud, radius / 4, price)


def _strengths(problem: Problem, plan: Plan) -> Tensor:  # (N, 2C), sorted
    """w E of all points."""
    carrier = Carrier(plan.source, problem.columns)
    f = problem.pos.new_empty(len(problem.pos), 2 * problem.columns.shape[1])
    for rows, _ in plan.source.groups:
        f[rows] = as_real(carrier(rows))
    if problem.weights is not None:
        f *= problem.weights.detach()[plan.source.order, None]
    return f


def _sum(
    problem: Problem, plan: Plan, f: Tensor, out: Tensor, finish: Callable[[Tensor], Tensor]
) -> None:
    """out = finish(W f) ./ E(q), rows back in the caller's order."""
    target = plan.target

    def make(worker: int) -> Callable[[list[Group]], None]:  # noqa: ARG001 - all do the same
        conjugate = Carrier(target, problem.columns, sign=-1)
        F = f.new_empty(target.largest_group, f.shape[1])

        def work(task: list[Group]) -> None:
            for (rows, members), found in zip(task, plan.near(task), strict=True):
                for (block, own), near in zip(members, found, strict=True):
                    W = _cut(problem, _squared(target.local[own], plan.local(block, near)))
                    torch.mm(W, f.index_select(0, near), out=F[within(own, rows)])
                sums = finish(as_complex(F[: rows.stop - rows.start]))
                sums.mul_(conjugate(rows, sums.shape[1]))
                out.index_copy_(0, target.order[rows], sums)

        return work

    count = workers(f.device, 4 * len(plan.tasks))
    share(plan.tasks, make, count, problem.label("encode"))


def _squared(y: Tensor, x: Tensor) -> Tensor:
    """|y - x|^2 for all pairs: (n, D_in), (m, D_in) -> (n, m). Differences, so no cancellation."""
    out = (y[:, :1] - x[:, 0]).square_()
    for axis in range(1, y.shape[1]):
        step = y[:, axis : axis + 1] - x[:, axis]
        out.addcmul_(step, step)
    return out


def _cut(problem: Problem, squared: Tensor) -> Tensor:
    """The window, zero beyond its reach: also where the block of the query sees farther.

    So the result does not depend on the blocks, and a part of a cloud has that of the whole.
    """
    window = problem.window
    if not isinstance(window, Gaussian) or problem.in_dim == 1:
        return window(squared)  # on a line the share that is cut is needed to meet eps
    least = math.exp(-0.5 * (window.beta * window.reach(problem.eps, problem.in_dim)) ** 2)
    return threshold(torch.exp(squared * (-0.5 * window.beta**2)), least, 0.0, inplace=True)


class _Sums(torch.autograd.Function):
    """The sums (M, C); backward walks the same blocks."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        pos: Tensor,  # (N, D_in)
        queries: Tensor,  # (M, D_in)
        weights: Tensor | None,  # (N,)
        problem: Problem,
        plan: Plan,
    ) -> Tensor:
        f = _strengths(problem, plan)
        shape = (len(queries), problem.columns.shape[1])
        out = torch.empty(shape, dtype=problem.complex_dtype, device=pos.device)
        _sum(problem, plan, f, out, lambda sums: sums)
        ctx.problem, ctx.plan = problem, plan  # type: ignore[attr-defined]
        ctx.save_for_backward(f, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        problem, plan = ctx.problem, ctx.plan  # type: ignore[attr-defined]
        f, out = ctx.saved_tensors  # type: ignore[attr-defined]
        grad_queries, grad_pos, back = _backward_window(problem, plan, grad, out, f)
        pulled, grad_weights = _backward_carrier(problem, plan, back)
        grad_pos += pulled
        if problem.same:  # one tensor in both roles: autograd adds what it gets for each
            grad_pos, grad_queries = grad_pos + grad_queries, torch.zeros_like(grad_queries)
        return grad_pos, grad_queries, grad_weights, None, None


def _backward_window(
    problem: Problem, plan: Plan, grad: Tensor, out: Tensor, f: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Through W and 1 / E(q): dL/dq, the part of dL/dx through W, and dL/df = W^T H.

    H = grad * E(q). dW/dq = -beta^2 (q - x) W, so with T = W * (H f^T):
    dL/dq = -beta^2 (q sum_j T - T x) + Im(conj(grad) G) A^T, and likewise for x with T^T.
    """
    target, source = plan.target, plan.source
    carrier = Carrier(target, problem.columns)
    grad_queries = torch.zeros_like(problem.queries, requires_grad=False)
    grad_pos = torch.zeros_like(problem.pos, requires_grad=False)
    back = torch.zeros_like(f)
    square = problem.window.beta**2 if isinstance(problem.window, Gaussian) else 0.0
    for task in plan.tasks:
        for (rows, members), found in zip(task, plan.near(task), strict=True):
            order = target.order[rows]
            g = grad.index_select(0, order)
            H = as_real(g * carrier(rows))
            turn = (g.conj() * out.index_select(0, order)).imag @ problem.columns.t()
            for (block, own), near in zip(members, found, strict=True):
                here = within(own, rows)
                q, x = target.local[own], plan.local(block, near)
                W = _cut(problem, _squared(q, x))
                back.index_add_(0, near, W.t() @ H[here])
                T = W * (H[here] @ f.index_select(0, near).t())
                turn[here] -= square * (q * T.sum(1, keepdim=True) - T @ x)
                pulled = -square * (x * T.sum(0)[:, None] - T.t() @ q)
                grad_pos.index_add_(0, source.order[near], pulled)
            grad_queries[order] = turn
    return grad_queries, grad_pos, back


def _backward_carrier(problem: Problem, plan: Plan, back: Tensor) -> tuple[Tensor, Tensor | None]:
    """Through f = w E: dL/dx = -w Im(conj(P) E) A^T and dL/dw = Re(conj(P) E), P = dL/df."""
    source = plan.source
    carrier = Carrier(source, problem.columns)
    grad_pos = torch.zeros_like(problem.pos, requires_grad=False)
    weights = None if problem.weights is None else problem.weights.detach()
    grad_weights = None if weights is None else torch.empty_like(weights)
    for rows, _ in source.groups:
        order = source.order[rows]
        product = as_complex(back[rows]).conj() * carrier(rows)
        pulled = -product.imag @ problem.columns.t()
        if weights is not None and grad_weights is not None:
            grad_weights[order] = product.real.sum(1)
            pulled *= weights[order, None]
        grad_pos[order] = pulled
    return grad_pos, grad_weights
