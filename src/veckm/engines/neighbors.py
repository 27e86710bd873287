"""The neighbours engine: for a block of queries, the points near it, and one dense product.

    F_block = W (w E)_near,      W[q, j] = window(|x_j - q|)

Where the window holds few points this beats the grid; it also does the ball. A Gaussian is cut at
the radius outside which lies the share eps of its mass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from veckm.engines.base import Engine, Gaussian, Problem, Rates
from veckm.engines.blocks import Blocks, octree
from veckm.engines.carrier import Carrier, empty_result
from veckm.engines.search import Search
from veckm.progress import bar

#: Points of a block: enough for an efficient matrix product, few enough to stay compact.
_BLOCK_POINTS = 96
#: Blocks whose neighbours are looked up at once.
_LOOKUP = 64


@dataclass(frozen=True)
class Plan:
    """Queries in blocks, points in blocks, and the search that joins them."""

    source: Blocks
    target: Blocks
    search: Search

    def tasks(self, label: str | None) -> Iterator[tuple[int, slice, Tensor]]:
        """(block, its rows of the sorted queries, rows of the sorted points near it)."""
        count = self.target.count.tolist()
        with bar(len(count), label) as advance:
            for first in range(0, len(count), _LOOKUP):
                last = min(first + _LOOKUP, len(count))
                near = self.search.near(first, last)
                for block in range(first, last):
                    start = self.target.start[block]
                    yield block, slice(start, start + count[block]), near[block - first]
                advance(last - first)

    def local(self, block: int, near: Tensor) -> Tensor:
        """(m, D_in): the points near a block about its centre."""
        x = self.search.points[near] - self.target.centre[block]
        return x.to(self.target.local.dtype)


class Neighbors(Engine):
    """Neighbour lists by blocks: N K D operations; a Gaussian is cut where eps allows."""

    name = "neighbors"

    def cost(self, problem: Problem) -> float:
        plan = make_plan(problem)
        blocks = len(plan.target.count)
        sample = range(0, blocks, max(1, blocks // 64))  # the counts of some blocks stand for all
        pairs = rows = 0.0
        for block in sample:
            near = len(plan.search.near(block, block + 1)[0])
            pairs += near * int(plan.target.count[block])
            rows += near
        share = blocks / max(1, len(sample))
        width = problem.columns.shape[1]
        size = problem.pos.element_size()
        numbers = (len(problem.pos) + len(problem.queries)) * width
        return (
            share * pairs * (4 * width * Rates.FLOP * size / 4 + 2 * Rates.WINDOW)
            + share * rows * 2 * width * size * Rates.ROW_BYTE
            + 3 * blocks * Rates.BLOCK
            + numbers * (Rates.PHASOR + Rates.WRITE)
        )

    def encode(self, problem: Problem) -> Tensor:
        plan = make_plan(problem)
        if problem.needs_grad:
            sums = _Sums.apply(problem.pos, problem.queries, problem.weights, problem, plan)
            return problem.finish(sums)
        out = empty_result(problem)
        for rows, sums in _blocks_of_sums(problem, plan, _strengths(problem, plan)):
            out.index_copy_(0, plan.target.order[rows], problem.finish(sums))
        return out


def make_plan(problem: Problem) -> Plan:
    """Sort points and queries into blocks of at most `_BLOCK_POINTS` where cells allow it."""
    radius = problem.window.reach(problem.eps, problem.in_dim)
    source = _blocks(problem.pos, problem.cloud, radius)
    target = source if problem.same else _blocks(problem.queries, problem.query_cloud, radius)
    return Plan(source, target, Search(source, target, radius))


def _blocks(pos: Tensor, cloud: Tensor, radius: float) -> Blocks:
    def price(sides: Tensor, count: Tensor) -> Tensor:  # noqa: ARG001 - only the count matters
        crowded = (count > _BLOCK_POINTS).double()
        return 1.0 + crowded * count

    return octree(pos, cloud, radius / 4, price)


def _strengths(problem: Problem, plan: Plan) -> Tensor:  # (N, 2C), sorted
    """w E of all points."""
    carrier = Carrier(plan.source, problem.columns)
    f = problem.pos.new_empty(len(problem.pos), 2 * problem.columns.shape[1])
    for rows, _ in plan.source.groups:
        f[rows] = torch.view_as_real(carrier(rows)).flatten(1)
    if problem.weights is not None:
        f *= problem.weights.detach()[plan.source.order, None]
    return f


def _blocks_of_sums(problem: Problem, plan: Plan, f: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The sums (n, C) of each block of queries."""
    conjugate = _PerBlock(Carrier(plan.target, problem.columns, sign=-1), plan.target)
    label = None if problem.progress is False else "encode"
    for block, rows, near in plan.tasks(label):
        W = problem.window(_squared(plan.target.local[rows], plan.local(block, near)))
        sums = torch.mm(W, f.index_select(0, near))
        yield rows, torch.view_as_complex(sums.unflatten(1, (-1, 2))) * conjugate(rows)


class _PerBlock:
    """A carrier evaluated for a whole group of blocks at once and handed out by block."""

    def __init__(self, carrier: Carrier, blocks: Blocks) -> None:
        self.carrier = carrier
        self.groups = iter(blocks.groups)
        self.rows = slice(0, 0)

    def __call__(self, rows: slice) -> Tensor:
        while rows.stop > self.rows.stop:
            self.rows = next(self.groups)[0]
            self.values = self.carrier(self.rows)
        return self.values[rows.start - self.rows.start : rows.stop - self.rows.start]


def _squared(y: Tensor, x: Tensor) -> Tensor:
    """|y - x|^2 for all pairs: (n, D_in), (m, D_in) -> (n, m). Differences, so no cancellation."""
    out = (y[:, :1] - x[:, 0]).square_()
    for axis in range(1, y.shape[1]):
        step = y[:, axis : axis + 1] - x[:, axis]
        out.addcmul_(step, step)
    return out


class _Sums(torch.autograd.Function):
    """The sums (M, C); backward walks the same blocks."""

    @staticmethod
    def forward(  # type: ignore[override]
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
        for rows, sums in _blocks_of_sums(problem, plan, f):
            out.index_copy_(0, plan.target.order[rows], sums)
        ctx.problem, ctx.plan = problem, plan  # type: ignore[attr-defined]
        ctx.save_for_backward(f, out)
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
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
    carrier = _PerBlock(Carrier(target, problem.columns), target)
    grad_queries = torch.zeros_like(problem.queries, requires_grad=False)
    grad_pos = torch.zeros_like(problem.pos, requires_grad=False)
    back = torch.zeros_like(f)
    square = problem.window.beta**2 if isinstance(problem.window, Gaussian) else 0.0
    for block, rows, near in plan.tasks(None):
        order = target.order[rows]
        g = grad.index_select(0, order)
        H = torch.view_as_real(g * carrier(rows)).flatten(1)
        q, x = target.local[rows], plan.local(block, near)
        W = problem.window(_squared(q, x))
        back.index_add_(0, near, W.t() @ H)
        T = W * (H @ f.index_select(0, near).t())
        turn = (g.conj() * out.index_select(0, order)).imag @ problem.columns.t()
        grad_queries[order] = turn - square * (q * T.sum(1, keepdim=True) - T @ x)
        own = -square * (x * T.sum(0)[:, None] - T.t() @ q)
        grad_pos.index_add_(0, source.order[near], own)
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
        product = torch.view_as_complex(back[rows].unflatten(1, (-1, 2))).conj() * carrier(rows)
        pulled = -product.imag @ problem.columns.t()
        if weights is not None and grad_weights is not None:
            grad_weights[order] = product.real.sum(1)
            pulled *= weights[order, None]
        grad_pos[order] = pulled
    return grad_pos, grad_weights
