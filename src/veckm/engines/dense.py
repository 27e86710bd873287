"""The definition: all pairs. The truth that every other engine is compared with.

    K[q, j] = window(|x_j - q|)

As torch operations on whole stacks of clouds it has gradients of any order and can be traced,
exported and mapped; on a CPU without gradients the same in tiles that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from veckm.engines import device
from veckm.engines.autodiff import ByRows
from veckm.engines.device import traced
from veckm.engines.geometry import Geometry, Points
from veckm.engines.operator import Engine, Operator, Proposal
from veckm.engines.phasors import Modulation, as_complex
from veckm.engines.windows import Scratch
from veckm.parallel import one_thread, share, workers

#: Pairs held at once: in a tile, which stays in the cache, and in a stack.
_TILE_PAIRS, _STACK_PAIRS = 1 << 18, 1 << 26
#: Queries of a tile at least: a few rows against many points wait for the memory.
_LEAST_ROWS = 64


class Dense(Engine):
    """All pairs: N M C operations, exact to rounding, differentiable any number of times."""

    name = "dense"

    def propose(self, geometry: Geometry, columns: int) -> Proposal:
        rates = self.rates(geometry)
        flop = rates.flop if geometry.low is None else rates.low_flop
        pairs = geometry.pairs * (2 * columns * flop + rates.window)
        call = 0.0 if device.launches(geometry.device) else rates.call
        seconds = call + pairs + self.ends(geometry, columns)
        return Proposal(seconds, lambda: DenseOperator(geometry))

    def least(self, geometry: Geometry, columns: int) -> float:  # noqa: ARG002
        return 0.0  # there is nothing to plan


class DenseOperator(Operator):
    """The definition in torch operations; its encodings without gradients in tiles on a CPU."""

    shares = False  # large operations of torch's

    @property
    def T(self) -> Operator:
        return DenseOperator(self.geometry.swapped)

    def product(self, values: Tensor) -> Tensor:
        g = self.geometry
        x, q, n = g.points.pos, g.queries.pos, values.shape[-1]
        if g.points.batch is None:
            return self._stack(q, x, values.view(*x.shape[:-1], n)).reshape(-1, n)
        x, q = g.points.flat, g.queries.flat
        parts = [self._stack(q[rows], x[cloud], values[cloud]) for cloud, rows in g.clouds()]
        return torch.cat(parts) if parts else values

    def _stack(self, q: Tensor, x: Tensor, values: Tensor) -> Tensor:
        """(..., M, D_in), (..., N, D_in), (..., N, C) -> (..., M, C)."""
        rows = max(1, _STACK_PAIRS // max(1, x[..., 0].numel()))
        if traced(q, x) or q.shape[-2] <= rows:  # one graph for any number of points
            return self._weigh(q, x, values)
        return torch.cat([self._weigh(part, x, values) for part in q.split(rows, -2)], -2)

    def _weigh(self, q: Tensor, x: Tensor, values: Tensor) -> Tensor:
        """(..., M, D_in), (..., N, D_in), (..., N, C) -> (..., M, C)."""
        squared = (q[..., :, None, :] - x[..., None, :, :]).square().sum(-1)
        factor = self.geometry.low or values.dtype
        return (self.geometry.window(squared).to(factor) @ values.to(factor)).to(values.dtype)

    def query_grad(self, cotangent: Tensor, values: Tensor) -> Tensor:
        with torch.enable_grad():
            pos = self.geometry.queries.pos.detach().requires_grad_()
            moved = replace(self.geometry, queries=Points(pos, self.geometry.queries.batch))
            sums = DenseOperator(moved).product(values.detach())
            return torch.autograd.grad(sums, pos, cotangent)[0].reshape(-1, pos.shape[-1])

    def apply(self, values: Tensor) -> Tensor:
        return self.product(values)

    def encodings(self, modulation: Modulation) -> Tensor:
        m, g = modulation, self.geometry
        E = m.carrier(g.points.flat, m.A)
        at = E if g.same else m.carrier(g.queries.flat, m.A)
        return m.encodings(self.product(m.values(E, m.weights)), at)

    @one_thread()
    def encode(self, modulation: Modulation, out: Tensor) -> None:
        """On a CPU in tiles whose pairs stay in the cache."""
        g, m = self.geometry, modulation
        if device.launches(g.device):
            out.copy_(self.encodings(m))
            return
        x, q = g.points.flat.detach(), g.queries.flat.detach()
        tasks = list(_tiles(g))
        exact = ByRows(m.modulated, 2).value(x, m.weights, m.A)
        factor = g.low or exact.dtype
        values, known = exact.to(factor), g.same and m.weights is None

        def make(_: int) -> Callable[[tuple[slice, slice]], None]:
            scratch = Scratch(x)

            def work(task: tuple[slice, slice]) -> None:
                rows, cloud = task
                W = g.window(scratch.squared(q[rows], x[cloud]), inplace=True)
                sums = (W.to(factor) @ values[cloud]).to(W.dtype)
                E = as_complex(exact[rows]) if known else m.carrier(q[rows], m.A)
                out[rows] = m.encodings(sums, E)

            return work

        share(tasks, make, workers(g.device, 4 * len(tasks)), g.label("sum"))


def _tiles(geometry: Geometry) -> Iterator[tuple[slice, slice]]:
    """Runs of queries, each with all points of their cloud."""
    for cloud, queries in geometry.clouds():
        step = max(_LEAST_ROWS, _TILE_PAIRS // max(1, cloud.stop - cloud.start))
        for k in range(queries.start, queries.stop, step):
            yield slice(k, min(k + step, queries.stop)), cloud
