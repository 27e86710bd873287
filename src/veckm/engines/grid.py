"""The grid engine: the paper's factorisation with a sparse, exact feature map. Linear time.

    J-hat ~ c S S^T,   S[j, u] = exp(-beta^2 |x_j - u|^2)  on the nodes u near x_j   (`lattice`)
    Q = c S^T (w E)    spread: every point onto its nodes
    F = S Q            gather: every query from its nodes
    G = F ./ E(q)      demodulate

Points are taken in blocks (`blocks`), where S is a small dense matrix that is made when it is
needed. Besides the result there is only Q, a row for each node, and no buffer of N x anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

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
from veckm.engines.blocks import Blocks, Group
from veckm.engines.carrier import Carrier
from veckm.engines.lattice import Lattice
from veckm.engines.plan import Plan, block_price, find_blocks, plan_of
from veckm.parallel import share, workers

#: Irrational: sums of integers times these are distinct.
_MIX = (0.7548776662466927, 0.5698402909980532, 0.3819660112501051, 0.4142135623730951, 0.1618034)


class Grid(Engine):
    """Spread onto a lattice, gather from it: N D operations, mean error below eps."""

    name = "grid"
    windows = (Gaussian,)

    def prepare(self, problem: Problem) -> Task:
        assert isinstance(problem.window, Gaussian)
        lattice = Lattice.for_accuracy(problem.window.beta, problem.eps, problem.in_dim)
        blocks = find_blocks(problem, lattice)
        width = problem.columns.shape[1]
        numbers = (len(problem.pos) + len(problem.queries)) * width
        seconds = sum(b.seconds for b in blocks) / len(blocks)
        if int(problem.cloud[-1]):  # many clouds
            seconds *= Rates.TRIMMED if problem.same else Rates.TRIMMED_TWICE
        seconds *= 1.2
        seconds += Rates.CALL + numbers * Rates.PHASOR
        seconds += len(problem.queries) * width * Rates.WRITE
        return GridTask(
            seconds, lambda: _run(problem, plan_of(problem, lattice, blocks)), blocks[0]
        )


def thin_seconds(problem: Problem) -> float:
    """About the least that the blocks of a thin cloud can cost, at a glance: without an octree.

    A block of a thin cloud is seldom much wider than a cell of the reach, and has at least the
    nodes of one point.
    """
    assert isinstance(problem.window, Gaussian)
    lattice = Lattice.for_accuracy(problem.window.beta, problem.eps, problem.in_dim)
    cell = torch.floor(problem.pos.detach().double() / lattice.reach)
    mixed = cell @ cell.new_tensor(_MIX[: problem.in_dim]) + problem.cloud * _MIX[-1]
    count = torch.unique(mixed, return_counts=True)[1].double()
    point = count.new_zeros(len(count), problem.in_dim)
    return float(block_price(problem, lattice)(point, count).sum()) / 1.5


@dataclass(frozen=True)
class GridTask(Task):
    """With the blocks of the points, which tell how crowded the windows are."""

    blocks: Blocks


def _run(problem: Problem, plan: Plan) -> Tensor:
    if problem.needs_grad:
        sums = _Sums.apply(problem.pos, problem.queries, problem.weights, problem, plan)
        return problem.finish(sums)
    return _encode(problem, plan)


def _encode(problem: Problem, plan: Plan) -> Tensor:
    """The forward pass without a graph: spread, gather, and finish while the rows are in cache."""
    out = empty_result(problem)
    if len(plan.clouds) == 1:
        store = out if problem.same else None  # E waits where its row of the result will be
        Q = _spread_sources(problem, plan, store)
        _gather_targets(problem, plan, Q, out, problem.finish, store)
    else:
        _cloud_by_cloud(problem, plan, out)
    return out


def _cloud_by_cloud(problem: Problem, plan: Plan, out: Tensor) -> None:
    """Clouds do not see each other: a worker does one after the other, its tables stay in cache."""
    source, target = plan.source, plan.target
    sources, targets = source.blocks.groups_of_clouds, target.blocks.groups_of_clouds
    weights = None if problem.weights is None else problem.weights.detach()[source.blocks.order]
    most = max(rows.stop - rows.start for rows in plan.clouds)

    def make(worker: int) -> Callable[[int], None]:  # noqa: ARG001 - all do the same
        carrier = Carrier(source.blocks, problem.columns)
        other = None if problem.same else Carrier(target.blocks, problem.columns, sign=-1)
        table = problem.pos.new_empty(most, 2 * problem.columns.shape[1])
        F = table.new_empty(target.blocks.largest_group, table.shape[1])

        def work(cloud: int) -> None:
            nodes = plan.clouds[cloud]
            Q = table[: nodes.stop - nodes.start].zero_()
            kept = []
            for group in sources.get(cloud, []):
                source.trim(group, nodes.start)
                e = carrier(group[0])
                f = e if weights is None else e * weights[group[0], None]
                source.spread(group, as_real(f), Q)
                if other is not None:
                    source.drop(group)
                kept.append(e)
            Q *= plan.lattice.scale
            for k, group in enumerate(targets.get(cloud, [])):
                if other is not None:
                    target.trim(group, nodes.start)
                sums = problem.finish(as_complex(target.gather(group, Q, F)))
                target.drop(group)
                e = other(group[0]) if other is not None else kept[k].conj_physical_()
                out.index_copy_(0, target.blocks.order[group[0]], sums.mul_(e[:, : sums.shape[1]]))

        return work

    count = len(plan.clouds)
    share(range(count), make, workers(out.device, 4 * count), problem.label("encode"))


def _spread_sources(
    problem: Problem, plan: Plan, store: Tensor | None = None
) -> Tensor:  # (rows, 2C)
    """Q = c S^T (w E); E itself is left in `store` for the gather, if there is one."""
    side = plan.source
    order = side.blocks.order
    weights = None if problem.weights is None else problem.weights.detach()[order]
    count = _spreaders(problem, plan)
    tables = problem.pos.new_zeros(count, plan.rows, 2 * problem.columns.shape[1])

    def make(worker: int) -> Callable[[Group], None]:
        carrier = Carrier(side.blocks, problem.columns)

        def work(group: Group) -> None:
            e = carrier(group[0])
            if store is not None:
                store.index_copy_(0, order[group[0]], e[:, : store.shape[1]])
            if weights is not None:
                e.mul_(weights[group[0], None])
            side.spread(group, as_real(e), tables[worker])

        return work

    share(side.blocks.groups, make, count, problem.label("spread"))
    for other in tables[1:]:
        tables[0] += other
    return tables[0].mul_(plan.lattice.scale)


def _gather_targets(
    problem: Problem,
    plan: Plan,
    Q: Tensor,
    out: Tensor,
    finish: Callable[[Tensor], Tensor],
    store: Tensor | None = None,
) -> None:
    """out = finish(S Q) ./ E(q), rows back in the caller's order."""
    side = plan.target
    order = side.blocks.order

    def make(worker: int) -> Callable[[Group], None]:  # noqa: ARG001 - all do the same
        carrier = Carrier(side.blocks, problem.columns, sign=-1)
        F = Q.new_empty(side.blocks.largest_group, Q.shape[1])

        def work(group: Group) -> None:
            sums, rows = finish(as_complex(side.gather(group, Q, F))), order[group[0]]
            if store is None:
                sums.mul_(carrier(group[0], sums.shape[1]))
            else:
                sums.mul_(store.index_select(0, rows).conj_physical_())
            out.index_copy_(0, rows, sums)

        return work

    groups = side.blocks.groups
    share(groups, make, workers(Q.device, len(groups)), problem.label("gather"))


def _spreaders(problem: Problem, plan: Plan) -> int:
    """Workers for the spread: each has a table of its own, together no larger than the result."""
    table = plan.rows * problem.columns.shape[1]
    result = len(problem.queries) * problem.columns.shape[1]
    room = 1 + result // max(1, table)
    return min(room, workers(problem.pos.device, len(plan.source.blocks.groups)))


class _Sums(torch.autograd.Function):
    """The sums (M, C), with the backward pass as the same two products again."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        pos: Tensor,  # (N, D_in)
        queries: Tensor,  # (M, D_in)
        weights: Tensor | None,  # (N,)
        problem: Problem,
        plan: Plan,
    ) -> Tensor:
        Q = _spread_sources(problem, plan)
        out = problem.A.new_empty(
            len(queries), problem.columns.shape[1], dtype=problem.complex_dtype
        )
        _gather_targets(problem, plan, Q, out, lambda sums: sums)
        ctx.problem, ctx.plan = problem, plan  # type: ignore[attr-defined]
        ctx.save_for_backward(Q, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        problem, plan = ctx.problem, ctx.plan  # type: ignore[attr-defined]
        Q, out = ctx.saved_tensors  # type: ignore[attr-defined]
        grad_queries, back = _backward_queries(problem, plan, grad, out, Q)
        grad_pos, grad_weights = _backward_sources(problem, plan, back)
        if problem.same:  # one tensor in both roles: autograd adds what it gets for each
            grad_pos, grad_queries = grad_pos + grad_queries, torch.zeros_like(grad_queries)
        return grad_pos, grad_queries, grad_weights, None, None


def _backward_queries(
    problem: Problem, plan: Plan, grad: Tensor, out: Tensor, Q: Tensor
) -> tuple[Tensor, Tensor]:
    """dL/dq, and dL/dQ = S^T H with H = dL/dG * E(q).

    q stands in S and in 1 / E(q):  dL = pull(H, Q) dq + sum_d Im(conj(grad) G)_d (dq A)_d.
    """
    side, order = plan.target, plan.target.blocks.order
    carrier = Carrier(side.blocks, problem.columns)
    back = torch.zeros_like(Q)
    grad_queries = torch.empty_like(problem.queries, requires_grad=False)
    for group in side.blocks.groups:
        rows = group[0]
        g = grad.index_select(0, order[rows])
        H = as_real(g * carrier(rows))
        side.spread(group, H, back)
        turn = (g.conj() * out.index_select(0, order[rows])).imag @ problem.columns.t()
        grad_queries[order[rows]] = turn + plan.beta * side.pull(group, H, Q)
    return grad_queries, back.mul_(plan.lattice.scale)


def _backward_sources(problem: Problem, plan: Plan, back: Tensor) -> tuple[Tensor, Tensor | None]:
    """dL/dx and dL/dw from back = c dL/dQ, with P = S back:

    dL = Re(conj(P) E) dw + w [pull(E, back) dx - sum_d Im(conj(P) E)_d (dx A)_d].
    """
    side, order = plan.source, plan.source.blocks.order
    carrier = Carrier(side.blocks, problem.columns)
    grad_pos = torch.empty_like(problem.pos, requires_grad=False)
    weights = None if problem.weights is None else problem.weights.detach()
    grad_weights = None if weights is None else torch.empty_like(weights)
    buffer = back.new_empty(side.blocks.largest_group, back.shape[1])
    for group in side.blocks.groups:
        rows = group[0]
        e = carrier(rows)
        product = as_complex(side.gather(group, back, buffer)).conj() * e
        pulled = plan.beta * side.pull(group, as_real(e), back)
        pulled -= product.imag @ problem.columns.t()
        if weights is not None and grad_weights is not None:
            grad_weights[order[rows]] = product.real.sum(1)
            pulled *= weights[order[rows], None]
        grad_pos[order[rows]] = pulled
    return grad_pos, grad_weights
