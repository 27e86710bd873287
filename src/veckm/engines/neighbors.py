"""The neighbors engine: only the pairs within reach of the window, found by cells.

Where the window holds few points this beats the grid; it also does the ball. A Gaussian is cut at
the radius outside which lies the share eps of its mass. On a CPU only: its lists are as uneven as
the cloud, which a GPU does not like.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import threshold

from veckm.engines.blocks import Blocks, Group, octree
from veckm.engines.geometry import Geometry, Points
from veckm.engines.operator import Engine, Operator, Proposal
from veckm.engines.search import Search
from veckm.engines.tiles import Near, Tiles
from veckm.engines.windows import Gaussian
from veckm.parallel import one_thread

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
        near, members = _crowding(geometry)
        rows = m / members * near  # of the points, gathered block by block
        seconds = (
            rates.call
            + m * rates.point
            + m * near * (2 * columns * rates.flop + rates.distance)
            + rows * columns * geometry.points.pos.element_size() * rates.row_byte
            + 3 * m / members * rates.block
            + geometry.size * columns / 2 * (rates.phasor + rates.write)
        )
        return Proposal(seconds, lambda: NeighborsOperator(geometry))


def _refuse(geometry: Geometry) -> Operator:
    raise ValueError(
        f"engine 'neighbors' runs on the CPU only and pos is on {geometry.device}: use "
        "engine='grid' or 'dense' there, or pos.cpu()"
    )


def _crowding(geometry: Geometry) -> tuple[float, float]:
    """The points near a block of queries, and the queries of a block, both as means per query."""
    reach = geometry.window.reach(geometry.eps, geometry.in_dim)
    sets = [geometry.points, *([] if geometry.same else [geometry.queries])]
    near, members = [], []
    for points in sets:
        shared, growth = points.curve(reach / _CELLS).crowding(reach)
        side = reach * (_BLOCK_POINTS / shared) ** (1 / max(growth, 0.5))
        side = min(max(side, reach / _CELLS), 4 * reach)
        members.append(min(_BLOCK_POINTS, max(1.0, shared * (side / reach) ** growth)) / 1.5)
        near.append(shared * ((side / 2 + 2 * reach) / reach) ** growth)
    return min(near[0], max(geometry.points.counts, default=1)), members[-1]


class NeighborsOperator(Tiles):
    """Queries in blocks, points in blocks, and the search that joins them."""

    @one_thread()
    def __init__(self, geometry: Geometry) -> None:
        self.reach = geometry.window.reach(geometry.eps, geometry.in_dim)
        source = _blocks(geometry.points, self.reach)
        target = source if geometry.same else _blocks(geometry.queries, self.reach)
        super().__init__(geometry, source, target)
        self.search = Search(source, target, self.reach)
        self._kept: dict[int, list[list[Near]]] = {}
        self._room = _KEPT * len(geometry.queries)

    @cached_property
    def T(self) -> Operator:
        return self if self.geometry.same else NeighborsOperator(self.geometry.swapped)

    @cached_property
    def _tasks(self) -> list[list[Group]]:
        groups = self.target.groups
        return [groups[i : i + _LOOKUP] for i in range(0, len(groups), _LOOKUP)]

    def tasks(self) -> list[list[Group]]:
        return self._tasks

    def near(self, task: list[Group]) -> list[list[Near]]:
        first, last = task[0][1][0][0], task[-1][1][-1][0] + 1
        if first in self._kept:
            return self._kept[first]
        found = self.search.near(first, last)
        blocks = iter(found)
        out: list[list[Near]] = [[next(blocks) for _ in members] for _, members in task]
        size = sum(len(rows) for rows in found)
        if size <= self._room:
            self._room -= size
            self._kept[first] = out
        return out

    def local(self, block: int, near: Near) -> Tensor:
        x = self.search.points[near] - self.target.center[block]
        return x.to(self.target.local.dtype)

    def weigh(self, squared: Tensor) -> Tensor:
        """The window, zero beyond its reach: also where the block of the query sees farther.

        So the result does not depend on the blocks, and a part of a cloud has that of the whole.
        """
        window = self.geometry.window
        if not isinstance(window, Gaussian) or self.geometry.in_dim == 1:
            return window(squared, inplace=True)  # on a line the cut share is needed to meet eps
        least = math.exp(-0.5 * (window.beta * self.reach) ** 2)
        return threshold(squared.mul_(-0.5 * window.beta**2).exp_(), least, 0.0, inplace=True)


def _blocks(points: Points, reach: float) -> Blocks:
    """Blocks that are neither crowded nor so wide that local coordinates lose their digits."""
    widest = _WIDEST[points.pos.dtype] * reach

    def price(sides: Tensor, count: Tensor) -> Tensor:
        bad = (count > _BLOCK_POINTS) | (sides.amax(1) > widest)
        return 1.0 + bad.double() * count

    return octree(points.curve(reach / _CELLS), reach / _CELLS, price)
