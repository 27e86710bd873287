"""The grid engine: the paper's factorization with a sparse, exact feature map. Linear time.

    K ~ c S_q S_x^T,   S[j, u] = exp(-beta^2 |x_j - u|^2)  on the nodes u near x_j   (`lattice`)
    Q = c S_x^T v      spread: every point onto its nodes
    K v = S_q Q        gather: every query from its nodes

Besides the result there is only Q, a row for each node. Points are taken in blocks of an octree
(`blocks`), each small enough for the cache; other devices have padded cells (`batched`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from veckm.engines import batched, device
from veckm.engines.blocks import Blocks, Group, Price, grown_volume, octree, within
from veckm.engines.cost import CostModel
from veckm.engines.geometry import Geometry
from veckm.engines.lattice import GridTooLarge, Lattice, Nodes, candidates, number, reached_nodes
from veckm.engines.operator import Engine, Factored, Proposal
from veckm.engines.phasors import Modulation, Phasors, Reader, Writer, plain_reader, plain_writer
from veckm.engines.windows import Gaussian, no_subnormals
from veckm.parallel import one_thread, share, workers

#: The grid may hold this many bytes, or this many times the result, whichever is more.
_MAX_BYTES = 1 << 29
_MAX_TIMES_RESULT = 4.0
#: S is kept in the plan when it is smaller than this share of a result, or has fewer numbers.
_KEEP_SHARE, _KEEP_ENTRIES = 0.3, 1 << 25
#: Of the work on the nodes of a block, so much is left without those that no point reaches.
_TRIMMED = 0.85
#: A node is left out where S of every point is below this share of S at the reach. At 1 the mean
#: error of thin volumes was 1.03 % for eps = 1 %.
_CUT = 0.8


class Grid(Engine):
    """Spread onto a lattice, gather from it: N C operations, mean error below eps."""

    name = "grid"
    windows = (Gaussian,)

    def propose(self, geometry: Geometry, columns: int) -> Proposal:
        lattice = lattice_of(geometry)
        if device.launches(geometry.device):
            return batched.propose(geometry, lattice, columns)
        rates = self.rates(geometry)
        price = block_price(lattice, columns, rates, geometry.points.pos.element_size())
        cell = lattice.spacing / 4
        sets = [geometry.points, geometry.queries][: 2 - geometry.same]
        blocks = [octree(points.curve(cell), cell, price) for points in sets]
        seconds = self.least(geometry, columns) + _TRIMMED * sum(b.seconds for b in blocks) / len(
            blocks
        )
        return Proposal(seconds, lambda: GridOperator.of(geometry, lattice, blocks, columns))

    def least(self, geometry: Geometry, columns: int) -> float:
        """The tree and the nodes take many short passes."""
        return super().least(geometry, columns) + 3 * self.rates(geometry).call


def lattice_of(geometry: Geometry) -> Lattice:
    """The lattice that meets the accuracy of a geometry."""
    assert isinstance(geometry.window, Gaussian)
    return Lattice.for_accuracy(geometry.window.beta, geometry.eps, geometry.in_dim)


def block_price(lattice: Lattice, columns: int, rates: CostModel, size: int) -> Price:
    """Seconds that blocks of given sides and counts cost in both passes."""
    entry = 4 * columns * rates.flop + 2 * rates.window
    row = 4 * columns * size * rates.row_byte

    def price(sides: Tensor, count: Tensor) -> Tensor:
        nodes = grown_volume(sides, lattice.reach) * lattice.density
        return 2 * rates.block + nodes * (count * entry + row)

    return price


class Window(NamedTuple):
    """S of one block, and its nodes."""

    S: Tensor  # (n, q)
    rows: Tensor  # (q,) int64: the rows of its nodes in the table
    u: Tensor  # (q, D_in + 2): see BlockSide


class BlockSide:
    """Points in blocks (the sources or the queries) and the nodes of each.

    S of a block is a small dense matrix, made when it is needed and kept where that costs little:
    S = exp(x' u'^T) with x' = [2 x, -|x|^2, -1] and u' = [u, 1, |u|^2], both times beta and about
    the center of the block.
    """

    def __init__(
        self,
        blocks: Blocks,
        nodes: Nodes,
        index: Tensor,
        lattice: Lattice,
        keep: bool,
        label: Callable[[str], str | None],  # names of progress bars
    ) -> None:
        self.blocks, self.lattice, self.keep, self.label = blocks, lattice, keep, label
        x, u = blocks.local * lattice.beta, nodes.local * lattice.beta
        one = torch.ones_like(x[:, :1])
        self.scaled = torch.cat([2 * x, -x.square().sum(1, keepdim=True), -one], 1)
        one = torch.ones_like(u[:, :1])
        table = torch.cat([u, one, u.square().sum(1, keepdim=True)], 1)
        count = nodes.count.tolist()
        self.nodes, self.index = list(table.split(count)), list(index.split(count))
        self.cut = _CUT * math.exp(-((lattice.beta * lattice.reach) ** 2))
        self.kept: dict[int, Window] = {}
        self.trimmed: set[int] = set()

    def window(self, block: int, own: slice) -> Window:
        """S of one block, without the nodes that no point of it reaches."""
        window = self.kept.get(block)
        if window is None:
            u, rows = self.nodes[block], self.index[block]
            S = torch.mm(self.scaled[own], u.t()).exp_()
            if block not in self.trimmed:
                used = (S.amax(0) >= self.cut).nonzero()[:, 0]
                if len(used) < 0.9 * len(u):
                    S, u, rows = S.index_select(1, used), u[used], rows[used]
                    self.nodes[block], self.index[block] = u, rows
                self.trimmed.add(block)
            window = Window(no_subnormals(S), rows, u)
            if self.keep:
                self.kept[block] = window
        return window

    def gather(self, table: Tensor) -> Tensor:  # (rows, C) -> (n, C)
        """S Q."""
        out = device.empty(len(self.blocks.order), table.shape[1], table)
        self.write(table, lambda: plain_writer(out, self.blocks))
        return out

    def write(
        self,
        table: Tensor,  # (rows, C)
        writer: Callable[[], Writer],
        wanted: Tensor | None = None,  # (n,) bool
    ) -> None:
        """S Q to the writers, group by group; all groups, or those with rows that are wanted."""
        groups = self.blocks.groups
        if wanted is not None:
            sorted_ = wanted[self.blocks.order]
            groups = [group for group in groups if bool(sorted_[group[0]].any())]

        def make(_: int) -> Callable[[Group], None]:
            write = writer()
            held = table.new_empty(self.blocks.largest_group, table.shape[1])
            return lambda group: write(group[0], self.sums(group, self.windows(group), table, held))

        share(groups, make, workers(table.device, len(groups)), self.label("gather"))

    def windows(self, group: Group) -> list[Window]:
        """S of the blocks of a group."""
        return [self.window(block, own) for block, own in group[1]]

    def add(
        self, group: Group, windows: list[Window], values: Tensor, table: Tensor, first: int = 0
    ) -> None:
        """table += S^T v for a run of sorted rows; rows of the table count from `first`."""
        for (_, own), (S, rows, _) in zip(group[1], windows, strict=True):
            part = torch.mm(S.t().to(values.dtype), values[within(own, group[0])])
            table.index_add_(0, rows - first if first else rows, part)

    def sums(
        self, group: Group, windows: list[Window], table: Tensor, held: Tensor, first: int = 0
    ) -> Tensor:
        """S Q for a run of sorted rows, (n, C), in the first rows of `held`."""
        for (_, own), (S, rows, _) in zip(group[1], windows, strict=True):
            Q = table.index_select(0, rows - first if first else rows)
            torch.mm(S.to(Q.dtype), Q, out=held[within(own, group[0])])
        return held[: group[0].stop - group[0].start]

    def position_grad(self, values: Tensor, table: Tensor) -> Tensor:
        """d/dx of <v, S Q>, (n, D_in): 2 beta^2 (T u - x sum_u T) with T = S * (v Q^T)."""
        in_dim, order = self.blocks.local.shape[1], self.blocks.order
        read = plain_reader(values, self.blocks)
        out = torch.empty_like(self.blocks.local)

        def work(group: Group) -> None:
            rows, members = group
            v = read(rows)
            for (_, own), (S, index, u) in zip(members, self.windows(group), strict=True):
                T = (v[within(own, rows)] @ table.index_select(0, index).t()).to(S.dtype) * S
                x = self.scaled[own, :in_dim]  # doubled already
                grad = 2 * (T @ u[:, :in_dim]) - x * T.sum(1, keepdim=True)
                out.index_copy_(0, order[own], self.lattice.beta * grad)

        groups = self.blocks.groups
        share(groups, lambda _: work, workers(table.device, len(groups)), self.label("gradient"))
        return out


class GridOperator(Factored[BlockSide]):
    """K by blocks on a CPU."""

    def __init__(
        self, geometry: Geometry, source: BlockSide, target: BlockSide, clouds: list[slice]
    ) -> None:
        super().__init__(geometry, source, target)
        self.clouds = clouds  # the rows of the table of each cloud

    @classmethod
    @one_thread()
    def of(
        cls,
        geometry: Geometry,
        lattice: Lattice,
        blocks: list[Blocks],  # of the points and, if they are others, of the queries
        columns: int,
        adapt: bool = True,
    ) -> GridOperator:
        """Find the nodes of all blocks; with `adapt` the reach suits the size of these blocks."""
        if adapt:
            lattice = lattice.for_blocks(min(b.mean_diagonal for b in blocks))
        _refuse_if_too_many(sum(candidates(b, lattice) for b in blocks), 200, geometry, columns)
        nodes = [reached_nodes(b, lattice) for b in blocks]
        index, rows = number(torch.cat([n.key for n in nodes]))
        _refuse_if_too_many(rows, columns * geometry.points.pos.element_size(), geometry, columns)
        entries = sum(int((n.count * b.count).sum()) for n, b in zip(nodes, blocks, strict=True))
        keep = entries < max(_KEEP_SHARE * len(geometry.queries) * columns, _KEEP_ENTRIES)
        parts = index.split([len(n.key) for n in nodes])
        made = [
            BlockSide(*a, lattice, keep, geometry.label)
            for a in zip(blocks, nodes, parts, strict=True)
        ]
        owner = torch.cat([n.key[:, 0] for n in nodes])  # nodes are numbered cloud by cloud
        last = torch.zeros(int(owner.max()) + 1, dtype=torch.int64)
        stop = last.scatter_reduce_(0, owner, index + 1, "amax").cummax(0).values.tolist()
        clouds = [slice(i, j) for i, j in zip([0, *stop[:-1]], stop, strict=True)]
        return cls(geometry, made[0], made[-1], clouds)

    def product(self, values: Tensor, wanted: Tensor | None = None) -> Tensor:
        """K v; where not all queries are `wanted` (M,), other rows may be undefined."""
        out = device.empty(len(self.geometry.queries), values.shape[1], values)
        read = plain_reader(values, self.source.blocks)
        write = plain_writer(out, self.target.blocks)
        self._run(lambda: read, lambda: write, values, wanted)
        return out

    def encode(self, modulation: Modulation, out: Tensor, wanted: Tensor | None = None) -> None:
        """The encodings; where not all queries are `wanted` (M,), other rows may be undefined."""
        points = Phasors(modulation, self.source.blocks)
        queries = points if self.geometry.same else Phasors(modulation, self.target.blocks)
        like = modulation.A.new_empty(0, 2 * modulation.width)
        self._run(points.reader, lambda: queries.writer(out), like, wanted)

    def _run(
        self,
        reader: Callable[[], Reader],
        writer: Callable[[], Writer],
        like: Tensor,
        wanted: Tensor | None = None,
    ) -> None:
        if wanted is None and self._many_clouds:
            self._cloud_by_cloud(reader, writer, like)
        else:
            self.target.write(self._spread(reader, like), writer, wanted)

    def spread(self, values: Tensor) -> Tensor:
        return self._spread(lambda: plain_reader(values, self.source.blocks), values)

    def _spread(self, reader: Callable[[], Reader], like: Tensor) -> Tensor:  # (rows, C)
        """c S^T v. Each thread has a table of its own, together no larger than the result."""
        source, rows = self.source, self.clouds[-1].stop
        threads = workers(like.device, len(source.blocks.groups))
        most = 1 + len(self.geometry.queries) // max(1, rows)
        tables = like.new_zeros(min(most, threads), rows, like.shape[1])

        def make(worker: int) -> Callable[[Group], None]:
            read, table = reader(), tables[worker]
            return lambda group: source.add(group, source.windows(group), read(group[0]), table)

        share(source.blocks.groups, make, len(tables), self.geometry.label("spread"))
        for other in tables[1:]:
            tables[0] += other
        return tables[0].mul_(source.lattice.scale)

    @property
    def _many_clouds(self) -> bool:
        """Whether there are enough clouds of like size to keep every thread busy with its own."""
        counts = self.geometry.queries.counts
        threads = workers(self.geometry.device, 4 * len(counts))
        return len(counts) > 1 and max(counts) * threads <= 1.5 * sum(counts)

    def _cloud_by_cloud(
        self, reader: Callable[[], Reader], writer: Callable[[], Writer], like: Tensor
    ) -> None:
        """Clouds do not see each other: a thread does one after the other, tables stay in cache."""
        source, target = self.source, self.target
        sources, targets = source.blocks.groups_of_clouds, target.blocks.groups_of_clouds
        most = max(rows.stop - rows.start for rows in self.clouds)

        def make(_: int) -> Callable[[int], None]:
            read, write = reader(), writer()
            table = like.new_empty(most, like.shape[1])
            held = table.new_empty(target.blocks.largest_group, table.shape[1])

            def work(cloud: int) -> None:
                nodes = self.clouds[cloud]
                Q, windows = table[: nodes.stop - nodes.start].zero_(), []
                for group in sources.get(cloud, []):
                    windows.append(source.windows(group))
                    source.add(group, windows[-1], read(group[0]), Q, nodes.start)
                Q *= source.lattice.scale
                for k, group in enumerate(targets.get(cloud, [])):
                    own = windows[k] if target is source else target.windows(group)
                    write(group[0], target.sums(group, own, Q, held, nodes.start))

            return work

        count = len(self.clouds)
        share(range(count), make, workers(like.device, 4 * count), self.geometry.label("sum"))


def _refuse_if_too_many(rows: float, row_bytes: float, geometry: Geometry, columns: int) -> None:
    result = len(geometry.queries) * columns * geometry.points.pos.element_size()
    needed = rows * row_bytes
    if needed > max(_MAX_BYTES, _MAX_TIMES_RESULT * result):
        assert isinstance(geometry.window, Gaussian)
        raise GridTooLarge(
            f"the grid for beta = {geometry.window.beta:g} would take {needed / 2**30:.1f} GiB for "
            f"{len(geometry.points)} points: the radius is too small for how thinly they lie. "
            "Use engine='neighbors' or 'auto', or a larger radius"
        )
