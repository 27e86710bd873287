"""The neighbors engine: only the pairs within reach of the window, found by cells.

Where the window holds few points this beats the grid; it also does the ball. A Gaussian is cut at
the radius outside which lies the share eps of its mass. On a CPU only: its lists are as uneven as
the cloud, which a GPU does not like.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import threshold

from veckm.engines import device
from veckm.engines.blocks import Blocks, Group, octree, within
from veckm.engines.geometry import Geometry, Points
from veckm.engines.operator import Engine, Operator, Proposal
from veckm.engines.phasors import (
    Modulation,
    Phasors,
    Reader,
    Writer,
    plain_reader,
    plain_writer,
)
from veckm.engines.search import Search
from veckm.engines.windows import Gaussian, Scratch
from veckm.parallel import one_thread, share, workers

#: Points of a block: enough for an efficient matrix product, few enough to stay compact.
_BLOCK_POINTS = 96
#: Cells of the curve across a reach.
_CELLS = 4
#: Sides of a block in radii: coordinates about its center must tell neighbors apart.
_WIDEST = {torch.float32: 128.0, torch.float64: 1e9}
#: Groups of blocks whose neighbors are looked up at once.
_LOOKUP = 8
#: Neighbors that are kept for later products: so many rows for each query.
_KEPT = 64


class Neighbors(Engine):
    """Neighbor lists by blocks: N K C operations; a Gaussian is cut where eps allows."""

    name = "neighbors"

    def propose(self, geometry: Geometry, columns: int) -> Proposal:
        """Pairs from how many points share a cell, and how that grows with the cell's side."""
        if geometry.device.type != "cpu":
            return Proposal(math.inf, lambda: _refuse(geometry))
        rates, m = self.rates(geometry), len(geometry.queries)
        near, members = _occupancy(geometry)
        rows = m / members * near  # of the points, gathered block by block
        seconds = (
            self.least(geometry, columns)
            + m * near * (2 * columns * rates.flop + rates.distance)
            + rows * columns * geometry.points.pos.element_size() * rates.row_byte
        )
        return Proposal(seconds, lambda: NeighborsOperator(geometry))

    def least(self, geometry: Geometry, columns: int) -> float:
        return super().least(geometry, columns) + geometry.size / 2 * self.rates(geometry).search


def _refuse(geometry: Geometry) -> Operator:
    raise ValueError(
        f"engine 'neighbors' runs on the CPU only and pos is on {geometry.device}: use "
        "engine='grid' or 'dense' there, or pos.cpu()"
    )


def _occupancy(geometry: Geometry) -> tuple[float, float]:
    """The points near a block of queries, and the queries of a block, both as means per query."""
    reach = geometry.window.reach(geometry.eps, geometry.in_dim)
    sets = [geometry.points, *([] if geometry.same else [geometry.queries])]
    near, members = [], []
    for points in sets:
        shared, growth = points.curve(reach / _CELLS).occupancy(reach)
        side = reach * (_BLOCK_POINTS / shared) ** (1 / max(growth, 0.5))
        side = min(max(side, reach / _CELLS), 4 * reach)
        members.append(min(_BLOCK_POINTS, max(1.0, shared * (side / reach) ** growth)) / 1.5)
        near.append(shared * ((side / 2 + 2 * reach) / reach) ** growth)
    return min(near[0], max(geometry.points.counts, default=1)), members[-1]


class NeighborsOperator(Operator):
    """K in tiles: a block of queries, the points near it, one dense product.

    S_block = W v_near,   W[q, j] = window(|x_j - q|)
    """

    @one_thread()
    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.reach = geometry.window.reach(geometry.eps, geometry.in_dim)
        self.source = _blocks(geometry.points, self.reach)
        self.target = self.source if geometry.same else _blocks(geometry.queries, self.reach)
        self.search = Search(self.source, self.target, self.reach)
        groups = self.target.groups
        self._tasks = [groups[i : i + _LOOKUP] for i in range(0, len(groups), _LOOKUP)]
        self._kept: dict[int, list[list[Tensor]]] = {}
        self._room = _KEPT * len(geometry.queries)

    @cached_property
    def T(self) -> Operator:
        return self if self.geometry.same else NeighborsOperator(self.geometry.swapped)

    def product(self, values: Tensor) -> Tensor:
        out = device.empty(len(self.geometry.queries), values.shape[1], values)
        table = self._table(plain_reader(values, self.source), values)
        self._run(table, lambda: plain_writer(out, self.target))
        return out

    def encode(self, modulation: Modulation, out: Tensor) -> None:
        points = Phasors(modulation, self.source)
        queries = points if self.geometry.same else Phasors(modulation, self.target)
        like = modulation.A.new_empty(0, 2 * modulation.width)
        self._run(self._table(points.reader(), like), lambda: queries.writer(out))

    def _table(self, read: Reader, like: Tensor) -> Tensor:  # (N, C)
        """The values of all points, sorted."""
        table = device.empty(len(self.geometry.points), like.shape[1], like)
        for rows, _ in self.source.groups:
            table[rows] = read(rows)
        return table

    def _run(self, table: Tensor, writer: Callable[[], Writer]) -> None:
        """W v of every tile, group by group to a writer of each thread."""
        target = self.target

        def make(worker: int) -> Callable[[list[Group]], None]:  # noqa: ARG001 - all do the same
            write, scratch = writer(), Scratch(target.local)
            sums = table.new_empty(target.largest_group, table.shape[1])

            def work(task: list[Group]) -> None:
                for (rows, members), found in zip(task, self._near(task), strict=True):
                    for (block, own), near in zip(members, found, strict=True):
                        W, _ = self._tile(block, own, near, scratch)
                        Q = table.index_select(0, near)
                        torch.mm(W.to(Q.dtype), Q, out=sums[within(own, rows)])
                    write(rows, sums[: rows.stop - rows.start])

            return work

        self._share(make)

    def query_grad(self, cotangent: Tensor, values: Tensor) -> Tensor:
        """dW/dq = -r (q - x) W, so with T = W * (u v^T) it is -r (q sum_j T - T x)."""
        out = torch.zeros_like(self.target.local)
        rate = self.geometry.window.rate
        if not rate:
            return out
        table = self._table(plain_reader(values, self.source), values)
        read = plain_reader(cotangent, self.target)

        def make(worker: int) -> Callable[[list[Group]], None]:  # noqa: ARG001 - all do the same
            scratch = Scratch(self.target.local)

            def work(task: list[Group]) -> None:
                for (rows, members), found in zip(task, self._near(task), strict=True):
                    u = read(rows)
                    for (block, own), near in zip(members, found, strict=True):
                        W, x = self._tile(block, own, near, scratch)
                        T = u[within(own, rows)] @ table.index_select(0, near).t()
                        T = T.to(out.dtype) * W
                        q = self.target.local[own]
                        pulled = rate * (T @ x - q * T.sum(1, keepdim=True))
                        out.index_copy_(0, self.target.order[own], pulled)

            return work

        self._share(make)
        return out

    def _share(self, make: Callable[[int], Callable[[list[Group]], None]]) -> None:
        count = workers(self.geometry.device, 4 * len(self._tasks))
        share(self._tasks, make, count, self.geometry.label("sum"))

    def _near(self, task: list[Group]) -> list[list[Tensor]]:
        """For each group of a task and each of its blocks, the sorted rows of points in reach."""
        first, last = task[0][1][0][0], task[-1][1][-1][0] + 1
        if first in self._kept:
            return self._kept[first]
        found = self.search.near(first, last)
        blocks = iter(found)
        out = [[next(blocks) for _ in members] for _, members in task]
        size = sum(len(rows) for rows in found)
        if size <= self._room:
            self._room -= size
            self._kept[first] = out
        return out

    def _tile(
        self, block: int, own: slice, near: Tensor, scratch: Scratch
    ) -> tuple[Tensor, Tensor]:  # (n, m), (m, D_in)
        """W, valid until the next tile, and the points about the center of the block.

        Zero beyond the reach also where the block of the query sees farther: the result does not
        depend on the blocks, and a part of a cloud has that of the whole.
        """
        x = (self.search.points[near] - self.target.center[block]).to(self.target.local.dtype)
        squared, window = scratch.squared(self.target.local[own], x), self.geometry.window
        if not isinstance(window, Gaussian) or self.geometry.in_dim == 1:
            return window(squared, inplace=True), x  # on a line eps needs what would be cut
        least = math.exp(-0.5 * (window.beta * self.reach) ** 2)
        return threshold(squared.mul_(-0.5 * window.beta**2).exp_(), least, 0.0, inplace=True), x


def _blocks(points: Points, reach: float) -> Blocks:
    """Blocks that are neither crowded nor so wide that local coordinates lose their digits."""
    widest = _WIDEST[points.pos.dtype] * reach

    def price(sides: Tensor, count: Tensor) -> Tensor:
        bad = (count > _BLOCK_POINTS) | (sides.amax(1) > widest)
        return 1.0 + bad.double() * count

    return octree(points.curve(reach / _CELLS), reach / _CELLS, price)
