"""The neighbors engine: only the pairs within reach of the window, found by cells.

Where the window holds few points this beats the grid; it also does the ball. A Gaussian is cut at
the radius outside which lies the share eps of its mass. On a CPU only: lists as uneven as the cloud
do not suit a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import threshold

from veckm.engines import device
from veckm.engines.blocks import Blocks, Group, boxes, octree, within
from veckm.engines.geometry import Geometry, Points
from veckm.engines.operator import Engine, Operator, Proposal
from veckm.engines.phasors import Modulation, Phasors, Reader, Writer, plain_reader, plain_writer
from veckm.engines.windows import Gaussian, Scratch, extended
from veckm.parallel import one_thread, share, workers

#: Points of a block: enough for an efficient matrix product, few enough to stay compact.
_BLOCK_POINTS = 96
#: The same for products of few columns, such as moments, where starting each costs more than it.
_NARROW, _NARROW_POINTS = 16, 256
#: Cells of the curve across a reach.
_CELLS = 4
#: Sides of a block in radii: coordinates about its center must tell neighbors apart.
_WIDEST = {torch.float32: 128.0, torch.float64: 1e9}
#: Groups of blocks whose neighbors are looked up at once.
_LOOKUP = 8
#: Errors from which on the exponent of such products may be rounded to about 1e-5.
_ROUGH = 1e-3
#: Neighbors that are kept for later products: so many rows for each query.
_KEPT = 64
#: Ranges of cells that a block may look up, on average.
_RANGES = 64

Tile = tuple[slice, Tensor, Tensor, Tensor]  # own rows, rows near, W (n, m), near points (m, D_in)


class Neighbors(Engine):
    """Neighbor lists by blocks: N K C operations; a Gaussian is cut where eps allows."""

    name = "neighbors"

    def propose(self, geometry: Geometry, columns: int) -> Proposal:
        """Pairs from how many points share a cell, and how that grows with the cell's side."""
        if geometry.device.type != "cpu":
            return Proposal(math.inf, lambda: NeighborsOperator(geometry))
        rates, m = self.rates(geometry), len(geometry.queries)
        near, members = _occupancy(geometry)
        rows = m / members * near  # of the points, gathered block by block
        seconds = (
            self.least(geometry, columns)
            + m * near * (2 * columns * rates.flop + rates.distance)
            + rows * columns * geometry.points.pos.element_size() * rates.row_byte
        )
        block = _NARROW_POINTS if columns <= _NARROW else _BLOCK_POINTS
        return Proposal(seconds, lambda: NeighborsOperator(geometry, block))

    def least(self, geometry: Geometry, columns: int) -> float:
        return super().least(geometry, columns) + geometry.size / 2 * self.rates(geometry).search


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
    """K in tiles: a block of queries and the points near it, W v with W[q, j] = w(x_j - q)."""

    @one_thread()
    def __init__(self, geometry: Geometry, block_points: int = _BLOCK_POINTS) -> None:
        super().__init__(geometry)
        self._block_points = block_points
        if geometry.device.type != "cpu":
            raise ValueError(
                f"engine 'neighbors' runs on the CPU only and pos is on {geometry.device}: use "
                "engine='grid' or 'dense' there, or pos.cpu()"
            )
        self.reach = geometry.window.reach(geometry.eps, geometry.in_dim)
        self.source = _blocks(geometry.points, self.reach, block_points)
        self.target = self.source
        if not geometry.same:
            self.target = _blocks(geometry.queries, self.reach, block_points)
        self.search = Search(self.source, self.target, self.reach)
        groups = self.target.groups
        self._tasks = [groups[i : i + _LOOKUP] for i in range(0, len(groups), _LOOKUP)]
        self._kept: dict[int, list[list[Tensor]]] = {}
        self._room = _KEPT * len(geometry.queries)
        window = geometry.window
        self._extended: Tensor | None = None
        if isinstance(window, Gaussian):
            # Zero beyond the reach also where a block sees farther: parts add up to the whole.
            self._least = math.exp(-0.5 * (window.beta * self.reach) ** 2)
            narrow = block_points == _NARROW_POINTS
            if narrow and geometry.in_dim > 1 and geometry.eps >= _ROUGH:
                self._extended = extended(self.target.local, window.beta)

    @cached_property
    def T(self) -> Operator:
        return (
            self
            if self.geometry.same
            else NeighborsOperator(self.geometry.swapped, self._block_points)
        )

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

        def make() -> Callable[[slice, Iterator[Tile]], None]:
            write, sums = writer(), table.new_empty(self.target.largest_group, table.shape[1])

            def visit(rows: slice, tiles: Iterator[Tile]) -> None:
                for own, near, W, _ in tiles:
                    Q = table.index_select(0, near)
                    torch.mm(W.to(Q.dtype), Q, out=sums[within(own, rows)])
                write(rows, sums[: rows.stop - rows.start])

            return visit

        self._visit(make)

    def query_grad(self, cotangent: Tensor, values: Tensor) -> Tensor:
        """dW/dq = -r (q - x) W, so with T = W * (u v^T) it is -r (q sum_j T - T x)."""
        out = torch.zeros_like(self.target.local)
        rate = self.geometry.window.rate
        if not rate:
            return out
        table = self._table(plain_reader(values, self.source), values)
        read = plain_reader(cotangent, self.target)

        def visit(rows: slice, tiles: Iterator[Tile]) -> None:
            u = read(rows)
            for own, near, W, x in tiles:
                T = (u[within(own, rows)] @ table.index_select(0, near).t()).to(out.dtype) * W
                grad = rate * (T @ x - self.target.local[own] * T.sum(1, keepdim=True))
                out.index_copy_(0, self.target.order[own], grad)

        self._visit(lambda: visit)
        return out

    def _visit(self, make: Callable[[], Callable[[slice, Iterator[Tile]], None]]) -> None:
        """Call a function of each thread with the rows of every group and its tiles."""

        def worker(_: int) -> Callable[[list[Group]], None]:
            visit, scratch = make(), Scratch(self.target.local)

            def work(task: list[Group]) -> None:
                for (rows, members), found in zip(task, self._near(task), strict=True):
                    pairs = zip(members, found, strict=True)
                    visit(rows, (self._tile(*member, near, scratch) for member, near in pairs))

            return work

        count = workers(self.geometry.device, 4 * len(self._tasks))
        share(self._tasks, worker, count, self.geometry.label("sum"))

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

    def _tile(self, block: int, own: slice, near: Tensor, scratch: Scratch) -> Tile:
        """A block of queries and the points near it, about its center; valid until the next."""
        x = (self.search.points[near] - self.target.center[block]).to(self.target.local.dtype)
        window = self.geometry.window
        if self._extended is not None and isinstance(window, Gaussian):
            W = scratch.gaussian(self._extended[own], x, window.beta)
            return own, near, threshold(W, self._least, 0.0, inplace=True), x
        squared = scratch.squared(self.target.local[own], x)
        if not isinstance(window, Gaussian) or self.geometry.in_dim == 1:
            return own, near, window(squared, inplace=True), x  # on a line eps needs what is cut
        W = squared.mul_(-0.5 * window.beta**2).exp_()
        return own, near, threshold(W, self._least, 0.0, inplace=True), x


def _blocks(points: Points, reach: float, most: int) -> Blocks:
    """Blocks that are neither crowded nor so wide that local coordinates lose their digits."""
    widest = _WIDEST[points.pos.dtype] * reach

    def price(sides: Tensor, count: Tensor) -> Tensor:
        bad = (count > most) | (sides.amax(1) > widest)
        return 1.0 + bad.double() * count

    return octree(points.curve(reach / _CELLS), reach / _CELLS, price)


class Search:
    """Fixed-radius search for the points near whole blocks.

    Points are sorted by cell: cells of a box that differ along the last axis only are one range.
    """

    def __init__(self, points: Blocks, targets: Blocks, radius: float) -> None:
        self.radius = radius
        self.targets = targets
        self.points = points.center[points.of_row] + points.local.double()  # (N, D_in)
        cloud = points.cloud[points.of_row]  # (N,)
        self.low = self.points.amin(0)
        extent = self.points.amax(0) - self.low
        # A cell as large as a typical block: smaller ones would mean many ranges for each.
        typical = float((targets.high - targets.low).double().amax(1).median())
        self.cell = self._fitting(max(radius, typical), extent, int(cloud.max()) + 1)
        self.cells = (extent / self.cell).long() + 1  # (D_in,) per axis
        index = ((self.points - self.low) / self.cell).long()
        self.key, self.order = torch.sort(self._flat(cloud, index))

    def _fitting(self, cell: float, extent: Tensor, clouds: int) -> float:
        """The cell, made larger until cell numbers fit in 62 bits and no block asks for much."""
        sides = (self.targets.high - self.targets.low).double()[:, :-1] + 2 * self.radius
        cell = max(cell, float(extent.max()) * 2**-52, 1e-300)
        while math.log2(clouds) + float(torch.log2(extent / cell + 1).sum()) > 61 or float(
            (sides / cell + 2).prod(1).sum()
        ) > _RANGES * len(sides):
            cell *= 2
        return cell

    def near(self, first: int, last: int) -> list[Tensor]:
        """For each of the blocks first..last-1, the rows of `points` within reach of its box."""
        low = self.targets.low[first:last].double() - self.radius
        high = self.targets.high[first:last].double() + self.radius
        # Clamped before they become integers: a far query must not overflow, it finds nothing.
        most = self.cells.double()
        start = torch.minimum(((low - self.low) / self.cell).floor().clamp(min=0), most).long()
        stop = torch.minimum(((high - self.low) / self.cell).floor().clamp(min=-1), most - 1).long()
        box, lead = boxes(start[:, :-1], stop[:, :-1])  # all axes but the last
        filled = (stop >= start).all(1)[box]
        box, lead = box[filled], lead[filled]
        cloud = self.targets.cloud[first:last][box]
        begin = self._flat(cloud, torch.cat([lead, start[box, -1:]], 1))
        end = self._flat(cloud, torch.cat([lead, stop[box, -1:]], 1))
        i = torch.searchsorted(self.key, begin)
        n = torch.searchsorted(self.key, end, right=True) - i
        block = torch.repeat_interleave(box, n)
        run = torch.arange(len(block), device=n.device) - torch.repeat_interleave(
            torch.cumsum(n, 0) - n - i, n
        )
        row = self.order[run]
        x = self.points[row]
        gap = torch.maximum(low[block] + self.radius - x, x - (high[block] - self.radius))
        keep = gap.clamp_(min=0).square().sum(1) <= self.radius**2 * (1 + 1e-6)
        block, row = block[keep], row[keep]
        return list(row.split(torch.bincount(block, minlength=last - first).tolist()))

    def _flat(self, cloud: Tensor, index: Tensor) -> Tensor:
        flat = cloud
        for axis, n in enumerate(self.cells.tolist()):
            flat = flat * n + index[:, axis]
        return flat
