"""The grid engine: the paper's factorization with a sparse, exact feature map. Linear time.

    K ~ c S_q S_x^T,   S[j, u] = exp(-beta^2 |x_j - u|^2)  on the nodes u near x_j   (`lattice`)
    Q = c S_x^T v      spread: every point onto its nodes
    K v = S_q Q        gather: every query from its nodes

Besides the result there is only Q, a row for each node. Points are taken in blocks of an octree
(`blocks`, `sides`), each small enough for the cache; other devices have padded cells (`batched`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from veckm.engines import batched, device
from veckm.engines.blocks import Blocks, Price, grown_volume, octree
from veckm.engines.cost import CostModel
from veckm.engines.geometry import Geometry
from veckm.engines.lattice import GridTooLarge, Lattice, candidates, number, reached_nodes
from veckm.engines.operator import Engine, Factored, Proposal
from veckm.engines.phasors import (
    Modulation,
    Phasors,
    Reader,
    Writer,
    plain_reader,
    plain_writer,
)
from veckm.engines.sides import BlockSide
from veckm.engines.windows import Gaussian
from veckm.parallel import one_thread, share, workers

#: The grid may hold this many bytes, or this many times the result, whichever is more.
_MAX_BYTES = 1 << 29
_MAX_TIMES_RESULT = 4.0
#: S is kept in the plan when it is smaller than this share of a result.
_KEEP_SHARE = 0.3
#: Of the work on the nodes of a block, so much is left without those that no point reaches.
_TRIMMED = 0.85


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


class GridOperator(Factored[BlockSide]):
    """K by blocks on a CPU."""

    def __init__(
        self,
        geometry: Geometry,
        source: BlockSide,
        target: BlockSide,
        clouds: list[slice],  # the rows of the table of each cloud
    ) -> None:
        super().__init__(geometry, source, target)
        self.clouds = clouds

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
        """Find the nodes of all blocks; a clear error where there would be too many.

        With `adapt` the reach suits the blocks of this cloud; without, it is that of the lattice.
        """
        if adapt:
            lattice = lattice.for_blocks(min(b.mean_diagonal for b in blocks))
        _refuse_if_too_many(sum(candidates(b, lattice) for b in blocks), 200, geometry, columns)
        nodes = [reached_nodes(b, lattice) for b in blocks]
        index, rows = number(torch.cat([n.key for n in nodes]))
        _refuse_if_too_many(rows, columns * geometry.points.pos.element_size(), geometry, columns)
        entries = sum(int((n.count * b.count).sum()) for n, b in zip(nodes, blocks, strict=True))
        keep = entries < _KEEP_SHARE * len(geometry.queries) * columns
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
        if wanted is not None or not self._many_clouds:
            return self.target.gather(self.spread(values), wanted)
        out = device.empty(len(self.geometry.queries), values.shape[1], values)
        self._cloud_by_cloud(
            lambda: plain_reader(values, self.source.blocks),
            lambda: plain_writer(out, self.target.blocks),
            values,
        )
        return out

    def spread(self, values: Tensor) -> Tensor:
        return self._spread(lambda: plain_reader(values, self.source.blocks), values)

    def encode(self, modulation: Modulation, out: Tensor) -> None:
        points = Phasors(modulation, self.source.blocks)
        queries = points if self.geometry.same else Phasors(modulation, self.target.blocks)
        like = modulation.A.new_empty(0, 2 * modulation.width)
        if self._many_clouds:
            self._cloud_by_cloud(points.reader, lambda: queries.writer(out), like)
        else:
            self.target.write(self._spread(points.reader, like), lambda: queries.writer(out))

    def _spread(self, reader: Callable[[], Reader], like: Tensor) -> Tensor:  # (rows, C)
        """c S^T v. Each thread has a table of its own, together no larger than the result."""
        rows, queries = self.clouds[-1].stop, len(self.geometry.queries)
        threads = workers(like.device, len(self.source.blocks.groups))
        tables = like.new_zeros(min(1 + queries // max(1, rows), threads), rows, like.shape[1])
        return self.source.spread(reader, tables)

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

        def make(worker: int) -> Callable[[int], None]:  # noqa: ARG001 - all do the same
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
