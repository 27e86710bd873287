"""Pairs on a CPU, tile by tile: a block of queries, the points near it, one dense product.

    S_block = W v_near,      W[q, j] = window(|x_j - q|)

`neighbors` has tiles of nearby points, `dense` of all points of a cloud.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from veckm.engines.blocks import Blocks, Group, within
from veckm.engines.geometry import Geometry
from veckm.engines.operator import Operator
from veckm.engines.phasors import (
    Modulation,
    Phasors,
    Reader,
    Writer,
    plain_reader,
    plain_writer,
)
from veckm.parallel import share, workers

Near = Tensor | slice  # sorted rows of the points


class Tiles(Operator):
    """K in tiles; a subclass says which points are near a block, and what a pair weighs."""

    def __init__(self, geometry: Geometry, source: Blocks, target: Blocks) -> None:
        super().__init__(geometry)
        self.source, self.target = source, target

    @abstractmethod
    def tasks(self) -> Sequence[list[Group]]:
        """Runs of groups of queries that a thread takes at once."""

    @abstractmethod
    def near(self, task: list[Group]) -> list[list[Near]]:
        """For each group of a task and each of its blocks, the points in reach."""

    @abstractmethod
    def local(self, block: int, near: Near) -> Tensor:
        """(m, D_in): points about the center of a block of queries."""

    @abstractmethod
    def weigh(self, squared: Tensor) -> Tensor:
        """The window of squared distances, which may be overwritten."""

    def product(self, values: Tensor) -> Tensor:
        out = values.new_empty(len(self.geometry.queries), values.shape[1])
        read = plain_reader(values, self.source)
        self._run(self._table(read, values), lambda: plain_writer(out, self.target))
        return out

    def encode(self, modulation: Modulation, out: Tensor) -> None:
        points = Phasors(modulation, self.source)
        queries = points if self.geometry.same else Phasors(modulation, self.target)
        like = modulation.A.new_empty(0, 2 * modulation.width)
        self._run(self._table(points.reader(), like), lambda: queries.writer(out))

    def _table(self, read: Reader, like: Tensor) -> Tensor:  # (N, C)
        """The values of all points, sorted."""
        table = like.new_empty(len(self.geometry.points), like.shape[1])
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
                for (rows, members), found in zip(task, self.near(task), strict=True):
                    for (block, own), near in zip(members, found, strict=True):
                        W = self._tile(block, own, near, scratch).to(table.dtype)
                        torch.mm(W, _select(table, near), out=sums[within(own, rows)])
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
                for (rows, members), found in zip(task, self.near(task), strict=True):
                    u = read(rows)
                    for (block, own), near in zip(members, found, strict=True):
                        T = u[within(own, rows)] @ _select(table, near).t()
                        T = T.to(out.dtype) * self._tile(block, own, near, scratch)
                        q, x = self.target.local[own], self.local(block, near)
                        pulled = rate * (T @ x - q * T.sum(1, keepdim=True))
                        out.index_copy_(0, self.target.order[own], pulled)

            return work

        self._share(make)
        return out

    def _tile(self, block: int, own: slice, near: Near, scratch: Scratch) -> Tensor:  # (n, m)
        return self.weigh(scratch.squared(self.target.local[own], self.local(block, near)))

    def _share(self, make: Callable[[int], Callable[[list[Group]], None]]) -> None:
        tasks = self.tasks()
        count = workers(self.geometry.device, 4 * len(tasks))
        share(tasks, make, count, self.geometry.label("sum"))


class Scratch:
    """Memory of one thread for squared distances: fresh memory costs more than they do."""

    def __init__(self, like: Tensor) -> None:
        self.held = like.new_empty(2, 0)

    def squared(self, y: Tensor, x: Tensor) -> Tensor:  # (n, D_in), (m, D_in) -> (n, m)
        """|y - x|^2 for all pairs, by differences: no cancellation. Valid until the next call."""
        n, m = len(y), len(x)
        if self.held.shape[1] < n * m:
            self.held = self.held.new_empty(2, n * m)
        out, step = self.held[:, : n * m].view(2, n, m).unbind()
        out.zero_()
        for b, a in zip(x.t().contiguous(), y.t(), strict=True):
            torch.sub(a[:, None], b, out=step)
            out.addcmul_(step, step)
        return out


def _select(table: Tensor, near: Near) -> Tensor:
    return table[near] if isinstance(near, slice) else table.index_select(0, near)
