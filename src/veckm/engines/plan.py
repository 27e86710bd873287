"""The plan of the grid engine: blocks of points, their nodes, and what a pass over them does.

A plan depends on where the points are and on nothing else. S, the matrix of the window between the
points of a block and its nodes, is made when it is needed, and kept where that costs little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from veckm.engines.base import Gaussian, Problem, Rates, no_subnormals
from veckm.engines.blocks import Blocks, Group, Price, grown_volume, octree, within
from veckm.engines.lattice import Lattice, Nodes, TooFine, candidates, number, reached_nodes
from veckm.parallel import one_thread

#: The grid may hold this many bytes, or this many times the result, whichever is more.
_MAX_BYTES = 1 << 29
_MAX_TIMES_RESULT = 4.0
#: S is kept from the spread to the gather when it is smaller than this share of the result.
KEEP_SHARE = 0.3


class Window(NamedTuple):
    """S of one block, and where its nodes are."""

    S: Tensor  # (n, q)
    rows: Tensor  # (q,) int64: the rows of Q of its nodes


@dataclass(frozen=True)
class Side:
    """One set of points (the sources or the queries), its blocks, and their nodes."""

    blocks: Blocks
    scaled: Tensor  # (N, D_in + 2): x' = [2 x, -|x|^2, -1], beta-scaled and about the block
    nodes: Tensor  # (T, D_in + 2): u' = [u, 1, |u|^2], so that S = exp(x' u'^T)
    index: tuple[Tensor, ...]  # for each block (q,) int64: the rows of Q of its nodes
    ranges: list[slice]  # for each block, its part of nodes
    cut: float  # s at the reach of the lattice
    kept: dict[int, Window]  # where keeping them costs little beside the result
    keep: bool

    def window(self, block: int, rows: slice) -> Window:
        """S of one block."""
        window = self.kept.get(block)
        if window is None:
            S = torch.mm(self.scaled[rows], self.nodes[self.ranges[block]].t()).exp_()
            window = Window(no_subnormals(S, inplace=True), self.index[block])
            if self.keep:
                self.kept[block] = window
        return window

    def trim(self, group: Group, first: int) -> None:
        """Keep the windows of a group without the nodes that no point reaches, until `drop`.

        In small clouds that is a third of them. Rows count from the node `first`. For a forward
        pass only: `pull` wants all nodes.
        """
        for block, own in group[1]:
            S, rows = self.window(block, own)
            columns = (S.amax(0) >= self.cut).nonzero()[:, 0]
            self.kept[block] = Window(S[:, columns], rows[columns] - first)

    def drop(self, group: Group) -> None:
        """Forget the windows of a group."""
        for block, _ in group[1]:
            del self.kept[block]

    def spread(self, group: Group, f: Tensor, Q: Tensor) -> None:
        """Q += S^T f for a run of sorted rows, f (n, 2C)."""
        rows, members = group
        for block, own in members:
            S, index = self.window(block, own)
            Q.index_add_(0, index, torch.mm(S.t(), f[within(own, rows)]))

    def gather(self, group: Group, Q: Tensor, out: Tensor) -> Tensor:
        """S Q for a run of sorted rows, (n, 2C), in the first rows of `out`."""
        rows, members = group
        for block, own in members:
            S, index = self.window(block, own)
            torch.mm(S, Q.index_select(0, index), out=out[within(own, rows)])
        return out[: rows.stop - rows.start]

    def pull(self, group: Group, f: Tensor, Q: Tensor) -> Tensor:
        """d/dx of sum f . (S Q) through S alone, for a run of rows: (n, D_in), beta-scaled.

        ds/dx = -2 (x - u) s, so with T = S * (f Q^T) it is -2 (x sum_u T - T u).
        """
        rows, members = group
        in_dim = self.scaled.shape[1] - 2
        out = f.new_empty(rows.stop - rows.start, in_dim)
        for block, own in members:
            here = within(own, rows)
            S, index = self.window(block, own)
            T = S * (f[here] @ Q.index_select(0, index).t())
            # x is doubled already
            x, u = self.scaled[own, :in_dim], self.nodes[self.ranges[block], :in_dim]
            out[here] = 2 * (T @ u) - x * T.sum(1, keepdim=True)
        return out


@dataclass(frozen=True)
class Plan:
    """Everything that depends on where the points are, and on nothing else."""

    lattice: Lattice
    beta: float
    source: Side
    target: Side
    clouds: list[slice]  # the rows of Q of each cloud
    rows: int  # of Q


def make_plan(problem: Problem) -> Plan:
    """Sort points and queries into blocks and find the nodes of each."""
    assert isinstance(problem.window, Gaussian)
    lattice = Lattice.for_accuracy(problem.window.beta, problem.eps, problem.in_dim)
    return plan_of(problem, lattice, find_blocks(problem, lattice))


@one_thread()
def plan_of(problem: Problem, lattice: Lattice, blocks: list[Blocks], adapt: bool = True) -> Plan:
    """The plan for blocks that were found; a clear error where there would be too many nodes.

    With `adapt` the reach suits the blocks of this cloud; without, it is that of the lattice.
    """
    assert isinstance(problem.window, Gaussian)
    beta = problem.window.beta
    if adapt:
        lattice = lattice.for_blocks(min(b.mean_diagonal for b in blocks), beta)
    _refuse_if_too_many(sum(candidates(b, lattice) for b in blocks), 200, problem)
    nodes = [reached_nodes(b, lattice) for b in blocks]
    index, rows = number(torch.cat([n.key for n in nodes]))
    _refuse_if_too_many(rows, 2 * problem.columns.shape[1] * problem.pos.element_size(), problem)
    parts = index.split([len(n.key) for n in nodes])
    entries = sum(int((n.count * b.count).sum()) for n, b in zip(nodes, blocks, strict=True))
    result = 2 * len(problem.queries) * problem.columns.shape[1]
    keep = entries < KEEP_SHARE * result
    sides = [_side(*a, beta, lattice, keep) for a in zip(blocks, nodes, parts, strict=True)]
    owner = torch.cat([n.key[:, 0] for n in nodes])  # nodes are numbered cloud by cloud
    last = torch.zeros(int(owner.max()) + 1, dtype=torch.int64, device=owner.device)
    stop = last.scatter_reduce_(0, owner, index + 1, "amax").cummax(0).values.tolist()
    clouds = [slice(i, j) for i, j in zip([0, *stop[:-1]], stop, strict=True)]
    return Plan(lattice, beta, sides[0], sides[-1], clouds, rows)


def find_blocks(problem: Problem, lattice: Lattice) -> list[Blocks]:
    """Blocks of the points and, if they are others, of the queries, by the price of both passes."""
    price = block_price(problem, lattice)
    sets = [(problem.pos, problem.cloud), (problem.queries, problem.query_cloud)]
    return [octree(*points, lattice.spacing / 4, price) for points in sets[: 2 - problem.same]]


def block_price(problem: Problem, lattice: Lattice) -> Price:
    """Seconds that blocks of given sides and counts cost in both passes."""
    width = 2 * problem.columns.shape[1]
    size = problem.pos.element_size()
    entry = 4 * width * Rates.FLOP * size / 4 + 2 * Rates.WINDOW
    row = 4 * width * size * Rates.ROW_BYTE

    def price(sides: Tensor, count: Tensor) -> Tensor:
        nodes = grown_volume(sides, lattice.reach) * lattice.density
        return 2 * Rates.BLOCK + nodes * (count * entry + row)

    return price


def _side(
    blocks: Blocks, nodes: Nodes, index: Tensor, beta: float, lattice: Lattice, keep: bool
) -> Side:
    x, u = blocks.local * beta, nodes.local * beta
    scaled = torch.cat([2 * x, -x.square().sum(1, keepdim=True), -torch.ones_like(x[:, :1])], 1)
    table = torch.cat([u, torch.ones_like(u[:, :1]), u.square().sum(1, keepdim=True)], 1)
    stop = torch.cumsum(nodes.count, 0).tolist()
    ranges = [slice(i, j) for i, j in zip([0, *stop[:-1]], stop, strict=True)]
    parts = index.split(nodes.count.tolist())
    cut = math.exp(-((beta * lattice.reach) ** 2))
    return Side(blocks, scaled, table, parts, ranges, cut, {}, keep)


def _refuse_if_too_many(rows: float, row_bytes: float, problem: Problem) -> None:
    result = len(problem.queries) * problem.columns.shape[1] * 2 * problem.pos.element_size()
    needed = rows * row_bytes
    if needed > max(_MAX_BYTES, _MAX_TIMES_RESULT * result):
        assert isinstance(problem.window, Gaussian)
        raise TooFine(
            f"the grid for beta = {problem.window.beta:g} would take {needed / 2**30:.1f} GiB for "
            f"{len(problem.pos)} points: the radius is too small for how thinly they lie. "
            "Use engine='neighbors' or 'auto', or a larger radius"
        )
