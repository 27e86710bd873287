"""The definition: all pairs. The truth that every other engine is compared with.

G = [J (w E)] ./ E(q),  J[q, j] = window(|x_j - q|)        (Eqn. 3 of the paper)
"""

from __future__ import annotations

import torch
from torch import Tensor

from veckm.engines.base import (
    Engine,
    Problem,
    Rates,
    Task,
    as_complex,
    as_real,
    empty_result,
    phase,
    phasors,
)
from veckm.parallel import share, workers

#: Entries of J held at once: they stay in the cache.
_PAIRS_AT_ONCE = 1 << 18
#: Queries of a product at least: a few rows against many points wait for the memory.
_LEAST_ROWS = 64

#: The points of a cloud, and its queries in runs.
_Part = tuple[slice, list[slice]]


class Dense(Engine):
    """All pairs: N M D operations, exact to rounding, differentiable any number of times."""

    name = "dense"

    def prepare(self, problem: Problem) -> Task:
        n, m = clouds(problem.cloud), clouds(problem.query_cloud)
        pairs = float((n[: len(m)].double() * m[: len(n)].double()).sum())
        width = problem.columns.shape[1]
        flop = Rates.FLOP if problem.pos.dtype == torch.float32 else 2 * Rates.FLOP
        turned = len(problem.pos) + (0 if problem.same else len(problem.queries))
        phasor = turned * width * Rates.PHASOR
        rows = len(problem.queries) * Rates.ROW + 1e-4 * len(m)
        seconds = pairs * (4 * width * flop + Rates.DISTANCE) + phasor + rows
        return Task(Rates.EVEN * seconds, lambda: self._encode(problem))

    def _encode(self, problem: Problem) -> Tensor:
        parts = _parts(problem)
        if problem.needs_grad:
            return _differentiable(problem, parts)
        out = empty_result(problem)
        count = workers(out.device, 4 * sum(len(runs) for _, runs in parts))
        shared = None
        if len(parts) < count:  # then several threads are at one cloud
            E = _beside(phase(problem.pos, problem.columns))
            shared = E, _weighted(E, problem.weights)
            parts = [(points, [run]) for points, runs in parts for run in runs]
        share(parts, lambda _: _Thread(problem, shared, out), count, problem.label("encode"))
        return out


def _differentiable(problem: Problem, parts: list[_Part]) -> Tensor:  # (M, D)
    """The formula as it is written, by operations that can be differentiated."""
    f = as_real(phasors(phase(problem.pos, problem.columns)))  # (N, 2C): J is real, so is J f
    if problem.weights is not None:
        f = f * problem.weights[:, None]
    out = []
    for points, queries in ((points, run) for points, runs in parts for run in runs):
        x, q = problem.pos[points], problem.queries[queries]
        axes = zip(q.unbind(1), x.unbind(1), strict=True)
        squared = sum((a[:, None] - b[None]).square() for a, b in axes)  # (m, n)
        assert isinstance(squared, Tensor)
        sums = as_complex(problem.window(squared) @ f[points])
        out.append(problem.finish(sums * phasors(-phase(q, problem.columns))))
    return torch.cat(out)


class _Thread:
    """The same numbers by one thread, in memory that it holds: fresh memory costs more than they.

    Args:
        problem: what to compute, without gradients.
        shared: E and w E of all points, (N, 2C); None where each cloud makes its own.
        out: (M, D) complex, for the result.
    """

    def __init__(self, problem: Problem, shared: tuple[Tensor, Tensor] | None, out: Tensor) -> None:
        self.problem, self.shared, self.out = problem, shared, out
        self.axes = problem.pos.detach().t().contiguous()  # (D_in, N): passes go along rows
        self.E = self.axes.new_empty(0, 2 * problem.columns.shape[1])
        self.squared = self.step = self.axes.new_empty(0)

    def __call__(self, part: _Part) -> None:
        """The rows of one cloud's queries."""
        points, runs = part
        E, f = self._phasors(points)
        for queries in runs:
            sums = self._window(points, queries) @ f  # (m, 2C)
            if self.problem.same:
                own = E[queries.start - points.start : queries.stop - points.start]
            else:
                own = _beside(phase(self.problem.queries[queries], self.problem.columns))
            self.out[queries] = self.problem.finish(_quotient(sums, own))

    def _phasors(self, points: slice) -> tuple[Tensor, Tensor]:  # (n, 2C), (n, 2C)
        """E and w E of a cloud."""
        if self.shared is not None:
            E, f = self.shared
            return E[points], f[points]
        angle = phase(self.problem.pos[points], self.problem.columns)
        if len(self.E) < len(angle):
            self.E = self.E.new_empty(len(angle), self.E.shape[1])
        E = _beside(angle, self.E[: len(angle)])
        weights = self.problem.weights
        return E, _weighted(E, None if weights is None else weights[points])

    def _window(self, points: slice, queries: slice) -> Tensor:  # (m, n)
        """J of some queries and the points of their cloud."""
        x, q = self.axes[:, points], self.problem.queries[queries]
        m, n = len(q), x.shape[1]
        if len(self.squared) < m * n:
            self.squared, self.step = x.new_empty(m * n), x.new_empty(m * n)
        squared, step = (held[: m * n].view(m, n) for held in (self.squared, self.step))
        squared.zero_()
        for axis, along in enumerate(x):
            torch.sub(q[:, axis, None], along, out=step)
            squared.addcmul_(step, step)
        return self.problem.window(squared, inplace=True)


def _beside(angle: Tensor, out: Tensor | None = None) -> Tensor:  # (n, C) -> (n, 2C)
    """Cosines beside sines: exp(i angle) without interleaving its parts."""
    n, wide = angle.shape
    out = angle.new_empty(n, 2 * wide) if out is None else out
    torch.cos(angle, out=out[:, :wide])
    torch.sin(angle, out=out[:, wide:])
    return out


def _weighted(E: Tensor, weights: Tensor | None) -> Tensor:  # (n, 2C)
    return E if weights is None else E * weights[:, None]


def _quotient(sums: Tensor, phasor: Tensor) -> Tensor:  # (m, 2C), (m, 2C) -> (m, C) complex
    """(a + ib) / e^(it), parts beside each other, as complex numbers."""
    (a, b), (cos, sin) = (parts.chunk(2, dim=1) for parts in (sums, phasor))
    return torch.complex(a * cos + b * sin, b * cos - a * sin)


def _parts(problem: Problem) -> list[_Part]:
    """The clouds that have queries."""
    n, m = clouds(problem.cloud).tolist(), clouds(problem.query_cloud).tolist()
    n += [0] * (len(m) - len(n))  # a query of a cloud without points encodes nothing: zero
    out = []
    i = j = 0
    for points, queries in zip(n, m, strict=False):
        step = max(_LEAST_ROWS, _PAIRS_AT_ONCE // max(1, points))
        firsts = range(j, j + queries, step)
        runs = [slice(first, min(first + step, j + queries)) for first in firsts]
        if runs:
            out.append((slice(i, i + points), runs))
        i, j = i + points, j + queries
    return out


def clouds(index: Tensor) -> Tensor:
    """(B,) int64: how many points each cloud has."""
    return torch.bincount(index) if len(index) else index.new_zeros(0)
