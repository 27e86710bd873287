"""Local moments: density, mean and covariance of the neighbourhood of every point, at any scale.

    m_0 = sum_j w_j window(x_j - q)              how much lies around q
    m_1 = sum_j w_j window(x_j - q) (x_j - q)    where it lies
    m_2 = sum_j w_j window(x_j - q) (x_j - q)(x_j - q)^T

The grid engine computes them with 1, x and x x^T in the place of the carrier E: weighted PCA in
linear time, without neighbour lists. Everything is about origins nearby, block, node or query in
turn, so that float32 is enough however large the coordinates are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from veckm.engines import Gaussian, Problem
from veckm.engines.blocks import anchored
from veckm.engines.lattice import Lattice, TooFine
from veckm.engines.plan import Plan, Side, block_price, make_plan, plan_of
from veckm.functional import make_problem, make_window
from veckm.parallel import share, workers

#: Up to this many pairs the definition is faster than making a plan.
_DENSE_PAIRS = 1 << 21
#: Blocks whose nodes are moved to their origins together.
_BLOCKS_AT_ONCE = 32


@dataclass(frozen=True)
class Moments:
    """Gaussian-weighted moments about each query; the leading shape is that of the queries."""

    weight: Tensor  # (...,) sum of the weights: the effective number of points around
    mean: Tensor  # (..., D_in) of x_j - q: from the query to the middle of what is around it
    covariance: Tensor  # (..., D_in, D_in)
    beta: float

    @property
    def density(self) -> Tensor:
        """Points per volume: the kernel density estimate (beta^2 / 2 pi)^(D_in / 2) m_0."""
        volume = math.sqrt(2 * math.pi / self.beta**2) ** self.mean.shape[-1]
        return self.weight / volume


def moments(
    pos: Tensor,  # (N, D_in) or (B, N, D_in)
    *,
    beta: float | None = None,
    radius: float | None = None,
    batch: Tensor | None = None,  # (N,)
    queries: Tensor | None = None,  # (M, D_in) or (B, M, D_in)
    query_batch: Tensor | None = None,  # (M,)
    weights: Tensor | None = None,  # (N,) or (B, N), not negative
    engine: Literal["auto", "dense", "grid"] = "auto",
    eps: float = 1e-3,
    progress: bool | None = None,
) -> Moments:
    """Weight, mean and covariance of the points around each query under a Gaussian window.

    Arguments as for :func:`veckm.encode`; differentiable in pos, queries and weights. Where no
    point is in reach all moments are zero.

    Shapes:
        returns: ``Moments`` with leading shape (N,), (M,), (B, N) or (B, M).
    """
    if engine not in ("auto", "dense", "grid"):
        raise ValueError(f"unknown engine {engine!r} for moments: use 'auto', 'dense' or 'grid'")
    window = make_window("gaussian", beta, radius)
    assert isinstance(window, Gaussian)
    in_dim = pos.shape[-1] if isinstance(pos, Tensor) and pos.dim() else 1
    columns = 1 + in_dim + in_dim**2
    # The frequencies are not used; their number tells the plan how wide the tables are.
    A = torch.zeros(in_dim, (columns + 1) // 2)
    problem, lead = make_problem(
        pos,
        A,
        window=window,
        norm="mean" if weights is not None else None,  # weights must not be negative here
        eps=eps,
        batch=batch,
        queries=queries,
        query_batch=query_batch,
        weights=weights,
        progress=progress,
    )
    if not len(problem.pos) or not len(problem.queries):
        raw = problem.pos.new_zeros(len(problem.queries), columns)
    elif engine == "dense" or (engine == "auto" and _small(problem)):
        raw = _dense(problem)
    else:
        raw = _Grid.apply(
            problem.pos, problem.queries, problem.weights, problem, make_plan(problem)
        )
    return _finish(raw.view(*lead, columns), in_dim, window.beta)


def local_moments(
    x: Tensor,  # (N, 3) float64
    *,
    beta: float,
    eps: float,
    levels: int,
    wanted: Tensor | None = None,  # (N,) bool
) -> Moments:
    """Moments of a part of a cloud as those of the whole, but for rounding.

    The blocks of the grid engine are then cells of one fixed lattice about zero, `levels` doublings
    of its smallest cell wide, and what a point gets depends on the points within :func:`domain` of
    it alone. The part must have the coordinates of the whole, not be moved. Where not all are
    `wanted`, the others mean nothing.

    Shapes:
        - x: (N, 3) float64
        - output: ``Moments`` of leading shape (N,), float32
    """
    window = Gaussian(beta)
    lattice = Lattice.for_accuracy(beta, eps, x.shape[1])
    pos = x.float()
    cloud = torch.zeros(len(x), dtype=torch.int64)
    A = pos.new_zeros(x.shape[1], (2 + x.shape[1] + x.shape[1] ** 2) // 2)
    problem = Problem(pos, cloud, pos, cloud, None, A, window, None, eps, progress=False)
    try:
        blocks = anchored(x, lattice.spacing / 4, levels, block_price(problem, lattice))
        plan = plan_of(problem, lattice, [blocks], adapt=False)
    except (TooFine, OverflowError):  # thin clouds have many nodes: one half after the other
        return _halves(x, beta, eps, levels, wanted)
    with torch.no_grad():
        raw = _gather_all(problem, plan, _spread_all(problem, plan), wanted)
    return _finish(raw, x.shape[1], beta)


def _halves(x: Tensor, beta: float, eps: float, levels: int, wanted: Tensor | None) -> Moments:
    """Local moments of each half of a cloud with what matters around it."""
    side, reach = domain(beta, eps, levels, x.shape[1])
    cell = torch.floor(x / side)
    axis = int((cell.amax(0) - cell.amin(0)).argmax())
    along = cell[:, axis]
    cut = float(along.median())
    below = along < cut if bool((along < cut).any()) else along <= cut
    margin = math.ceil(reach / side) + 1  # whole cells
    parts = [along < cut + margin, along >= cut - margin]
    if bool(parts[0].all()) or bool(parts[1].all()) or bool(below.all()):
        raise TooFine(f"windows of beta = {beta:g} are too small for how thinly the points lie")
    n, in_dim = x.shape
    shapes: tuple[tuple[int, ...], ...] = ((n,), (n, in_dim), (n, in_dim, in_dim))
    weight, mean, covariance = (torch.empty(shape, dtype=torch.float32) for shape in shapes)
    for part, mine in zip(parts, (below, ~below), strict=True):
        some_wanted = None if wanted is None else wanted[part]
        m = local_moments(x[part], beta=beta, eps=eps, levels=levels, wanted=some_wanted)
        weight[mine], mean[mine] = m.weight[mine[part]], m.mean[mine[part]]
        covariance[mine] = m.covariance[mine[part]]
    return Moments(weight, mean, covariance, beta)


def domain(beta: float, eps: float, levels: int, in_dim: int = 3) -> tuple[float, float]:
    """The side of the cells of :func:`local_moments`, and how far apart two that matter may be.

    A point is changed by others only if their cells, as boxes, are within that distance of its own.
    """
    lattice = Lattice.for_accuracy(beta, eps, in_dim)
    return lattice.spacing / 4 * 2**levels, 2 * lattice.reach


def _finish(raw: Tensor, in_dim: int, beta: float) -> Moments:
    weight, first, second = _parts(raw, in_dim)
    # Twice tiny: the reciprocal of a subnormal would overflow to infinity.
    total = weight.clamp_min(4 * torch.finfo(raw.dtype).tiny)
    mean = first / total[..., None]
    covariance = second / total[..., None, None] - mean[..., :, None] * mean[..., None, :]
    return Moments(weight, mean, covariance, beta)


def _small(problem: Problem) -> bool:
    return len(problem.pos) * len(problem.queries) <= _DENSE_PAIRS


def _dense(problem: Problem) -> Tensor:  # (M, 1 + D_in + D_in^2)
    """The definition, all pairs, a few rows at a time."""
    rows = max(1, _DENSE_PAIRS // len(problem.pos))
    out = []
    for q, cloud in zip(problem.queries.split(rows), problem.query_cloud.split(rows), strict=True):
        z = problem.pos[None] - q[:, None]  # (m, N, D_in)
        w = problem.window(z.square().sum(-1)) * (cloud[:, None] == problem.cloud)
        if problem.weights is not None:
            w = w * problem.weights
        second = torch.einsum("mn,mni,mnj->mij", w, z, z)
        first = torch.einsum("mn,mni->mi", w, z)
        out.append(torch.cat([w.sum(1, keepdim=True), first, second.flatten(1)], 1))
    return torch.cat(out)


def _parts(raw: Tensor, in_dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """(..., 1 + D + D^2) -> m_0 (...), m_1 (..., D), m_2 (..., D, D)."""
    second = raw[..., 1 + in_dim :].unflatten(-1, (in_dim, in_dim))
    return raw[..., 0], raw[..., 1 : 1 + in_dim], second


def _shift(raw: Tensor, by: Tensor) -> Tensor:  # (k, 1 + D + D^2), (k, D)
    """Moments about an origin moved by d: m_1 - d m_0, m_2 - d m_1^T - m_1 d^T + d d^T m_0."""
    zero, first, second = _parts(raw, by.shape[1])
    cross = by[:, :, None] * first[:, None, :]
    outer = by[:, :, None] * by[:, None, :] * zero[:, None, None]
    moved = second - cross - cross.transpose(1, 2) + outer
    return torch.cat([zero[:, None], first - by * zero[:, None], moved.flatten(1)], 1)


@dataclass(frozen=True)
class _Run:
    """Some neighbouring blocks of a side: their rows and their nodes are contiguous."""

    rows: slice  # of the sorted points
    points: list[int]  # of each block
    nodes: list[int]  # of each block
    index: Tensor  # (t,) rows of the table
    u: Tensor  # (t, D_in) nodes about the centre of their block


def _runs(side: Side, beta: float) -> list[_Run]:
    blocks = side.blocks
    count, out = blocks.count.tolist(), []
    for k in range(0, len(count), _BLOCKS_AT_ONCE):
        points, index = count[k : k + _BLOCKS_AT_ONCE], side.index[k : k + _BLOCKS_AT_ONCE]
        start, first = blocks.start[k], side.ranges[k].start
        last = side.ranges[k + len(points) - 1].stop
        u = side.nodes[first:last, : blocks.local.shape[1]] / beta
        rows = slice(start, start + sum(points))
        out.append(_Run(rows, points, [len(i) for i in index], torch.cat(index), u))
    return out


def _windows(run: _Run, x: Tensor, beta: float) -> list[Tensor]:
    """S = exp(-beta^2 |x - u|^2) of each block, (n, q), as the exponential of a product."""
    x, u, one = beta * x, beta * run.u, torch.ones_like(x[:, :1])
    left = torch.cat([2 * x, -x.square().sum(1, keepdim=True), -one], 1)
    right = torch.cat([u, torch.ones_like(u[:, :1]), u.square().sum(1, keepdim=True)], 1)
    pairs = zip(left.split(run.points), right.split(run.nodes), strict=True)
    return [torch.exp(a @ b.t()) for a, b in pairs]


def _spread(run: _Run, x: Tensor, w: Tensor | None, beta: float) -> Tensor:
    """Moments of the points onto the nodes, about each node: (t, 1 + D + D^2)."""
    second = (x[:, :, None] * x[:, None, :]).flatten(1)
    powers = torch.cat([torch.ones_like(x[:, :1]), x, second], 1)
    if w is not None:
        powers = powers * w[:, None]
    pairs = zip(_windows(run, x, beta), powers.split(run.points), strict=True)
    return _shift(torch.cat([S.t() @ f for S, f in pairs]), run.u)


def _gather(run: _Run, x: Tensor, table: Tensor, beta: float) -> Tensor:
    """Moments at the queries, about each, from the tables of the nodes: (n, 1 + D + D^2)."""
    local = _shift(table, -run.u)
    pairs = zip(_windows(run, x, beta), local.split(run.nodes), strict=True)
    return _shift(torch.cat([S @ f for S, f in pairs]), x)


def _spread_all(problem: Problem, plan: Plan) -> Tensor:  # (rows, 1 + D + D^2)
    """The moments that each node holds, about that node."""
    side, in_dim = plan.source, problem.in_dim
    runs = _runs(side, plan.beta)
    w = None if problem.weights is None else problem.weights.detach()[side.blocks.order]
    count = workers(problem.pos.device, len(runs))
    tables = problem.pos.new_zeros(count, plan.rows, 1 + in_dim + in_dim**2)

    def make(worker: int) -> Callable[[_Run], None]:
        def work(run: _Run) -> None:
            part = None if w is None else w[run.rows]
            moved = _spread(run, side.blocks.local[run.rows], part, plan.beta)
            tables[worker].index_add_(0, run.index, moved)

        return work

    share(runs, make, count, problem.label("spread"))
    return tables.sum(0).mul_(plan.lattice.scale)


def _gather_all(
    problem: Problem, plan: Plan, table: Tensor, wanted: Tensor | None = None
) -> Tensor:  # (M, 1 + D + D^2)
    """The moments about each query, at least about those `wanted` (M,)."""
    side = plan.target
    runs = _runs(side, plan.beta)
    if wanted is not None:
        sorted_ = wanted[side.blocks.order]
        runs = [run for run in runs if bool(sorted_[run.rows].any())]
    out = table.new_empty(len(problem.queries), table.shape[1])

    def make(worker: int) -> Callable[[_Run], None]:  # noqa: ARG001 - all do the same
        def work(run: _Run) -> None:
            part = _gather(run, side.blocks.local[run.rows], table[run.index], plan.beta)
            out.index_copy_(0, side.blocks.order[run.rows], part)

        return work

    share(runs, make, workers(table.device, len(runs)), problem.label("gather"))
    return out


class _Grid(torch.autograd.Function):
    """Raw moments (M, 1 + D + D^2) by the grid; backward differentiates block by block."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        pos: Tensor,  # autograd must see these three; problem and plan hold their values
        queries: Tensor,
        weights: Tensor | None,
        problem: Problem,
        plan: Plan,
    ) -> Tensor:
        table = _spread_all(problem, plan)
        out = _gather_all(problem, plan, table)
        ctx.problem, ctx.plan = problem, plan  # type: ignore[attr-defined]
        ctx.save_for_backward(table)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        problem, plan = ctx.problem, ctx.plan  # type: ignore[attr-defined]
        (table,) = ctx.saved_tensors  # type: ignore[attr-defined]
        grad_queries, back = _backward_queries(problem, plan, grad, table)
        grad_pos, grad_weights = _backward_sources(problem, plan, back)
        if problem.same:  # one tensor in both roles: autograd adds what it gets for each
            grad_pos, grad_queries = grad_pos + grad_queries, torch.zeros_like(grad_queries)
        return grad_pos, grad_queries, grad_weights, None, None


def _backward_queries(
    problem: Problem, plan: Plan, grad: Tensor, table: Tensor
) -> tuple[Tensor, Tensor]:
    side, back = plan.target, torch.zeros_like(table)
    out = torch.empty_like(problem.queries, requires_grad=False)
    for run in _runs(side, plan.beta):
        order = side.blocks.order[run.rows]
        with torch.enable_grad():
            x = side.blocks.local[run.rows].requires_grad_()
            part = table[run.index].requires_grad_()
            value = _gather(run, x, part, plan.beta)
            out[order], pulled = torch.autograd.grad(value, (x, part), grad[order])
        back.index_add_(0, run.index, pulled)
    return out, back.mul_(plan.lattice.scale)


def _backward_sources(problem: Problem, plan: Plan, back: Tensor) -> tuple[Tensor, Tensor | None]:
    side = plan.source
    grad_pos = torch.empty_like(problem.pos, requires_grad=False)
    grad_weights = torch.empty_like(grad_pos[:, 0])
    for run in _runs(side, plan.beta):
        order = side.blocks.order[run.rows]
        with torch.enable_grad():
            x = side.blocks.local[run.rows].requires_grad_()
            w = x.new_ones(len(order)) if problem.weights is None else problem.weights[order]
            w = w.detach().requires_grad_()
            value = _spread(run, x, w, plan.beta)
            gx, gw = torch.autograd.grad(value, (x, w), back[run.index])
        grad_pos[order], grad_weights[order] = gx, gw
    return grad_pos, None if problem.weights is None else grad_weights
