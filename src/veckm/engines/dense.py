"""The definition, a few lines: all pairs. The truth that every other engine is compared with.

G = [J (w E)] ./ E(q),  J[q, j] = window(|x_j - q|)        (Eqn. 3 of the paper)
"""

from __future__ import annotations

from collections.abc import Iterator

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
_PAIRS_AT_ONCE = 1 << 16


class Dense(Engine):
    """All pairs: N M D operations, exact to rounding, differentiable any number of times."""

    name = "dense"

    def prepare(self, problem: Problem) -> Task:
        n, m = clouds(problem.cloud), clouds(problem.query_cloud)
        pairs = float((n[: len(m)].double() * m[: len(n)].double()).sum())
        width = problem.columns.shape[1]
        flop = Rates.FLOP if problem.pos.dtype == torch.float32 else 2 * Rates.FLOP
        phasor = (len(problem.pos) + len(problem.queries)) * width * Rates.PHASOR
        rows = len(problem.queries) * Rates.ROW + 1e-4 * len(m)
        seconds = pairs * (4 * width * flop + Rates.DISTANCE) + phasor + rows
        return Task(Rates.EVEN * seconds, lambda: self._encode(problem))

    def _encode(self, problem: Problem) -> Tensor:
        f = as_real(phasors(phase(problem.pos, problem.columns)))  # (N, 2C): J is real, so is J f
        if problem.weights is not None:
            f = f * problem.weights[:, None]
        parts = list(_parts(problem))
        if problem.needs_grad:
            return torch.cat([_rows(problem, f, *part) for part in parts])
        out = empty_result(problem)

        def work(part: tuple[slice, slice]) -> None:
            out[part[1]] = _rows(problem, f, *part)

        share(parts, lambda _: work, workers(f.device, 4 * len(parts)), problem.label("encode"))
        return out


def _rows(problem: Problem, f: Tensor, points: slice, queries: slice) -> Tensor:  # (m, D)
    """[J f] ./ E(q) for some queries and all the points of their cloud."""
    x, q = problem.pos[points], problem.queries[queries]
    axes = zip(q.unbind(1), x.unbind(1), strict=True)
    squared = sum((a[:, None] - b[None]).square() for a, b in axes)  # (m, n)
    assert isinstance(squared, Tensor)
    sums = as_complex(problem.window(squared) @ f[points])
    return problem.finish(sums * phasors(-phase(q, problem.columns)))


def _parts(problem: Problem) -> Iterator[tuple[slice, slice]]:
    """(points, queries) of each cloud, the queries in runs."""
    n, m = clouds(problem.cloud).tolist(), clouds(problem.query_cloud).tolist()
    n += [0] * (len(m) - len(n))  # a query of a cloud without points encodes nothing: zero
    i = j = 0
    for points, queries in zip(n, m, strict=False):
        step = max(64, _PAIRS_AT_ONCE // max(1, points))
        for first in range(j, j + queries, step):
            yield slice(i, i + points), slice(first, min(first + step, j + queries))
        i, j = i + points, j + queries


def clouds(index: Tensor) -> Tensor:
    """(B,) int64: how many points each cloud has."""
    return torch.bincount(index) if len(index) else index.new_zeros(0)
