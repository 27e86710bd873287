"""The definition, a few lines: all pairs. The truth that every other engine is compared with.

G = [J (w E)] ./ E(q),  J[q, j] = window(|x_j - q|)        (Eqn. 3 of the paper)
"""

from __future__ import annotations

import torch
from torch import Tensor

from veckm.engines.base import Engine, Problem, Rates, Task, phase, phasors

#: Entries of J held at once when no gradient is asked for.
_PAIRS_AT_ONCE = 1 << 23


class Dense(Engine):
    """All pairs: N M D operations, exact to rounding, differentiable any number of times."""

    name = "dense"

    def prepare(self, problem: Problem) -> Task:
        n, m = clouds(problem.cloud), clouds(problem.query_cloud)
        pairs = float((n[: len(m)].double() * m[: len(n)].double()).sum())
        width = problem.columns.shape[1]
        flop = Rates.FLOP if problem.pos.dtype == torch.float32 else 2 * Rates.FLOP
        phasor = (len(problem.pos) + len(problem.queries)) * width * Rates.PHASOR
        seconds = pairs * (4 * width * flop + 2 * Rates.WINDOW) + phasor + 1e-3 * len(m)
        return Task(seconds, lambda: self._encode(problem))

    def _encode(self, problem: Problem) -> Tensor:
        n, m = clouds(problem.cloud).tolist(), clouds(problem.query_cloud).tolist()
        n += [0] * (len(m) - len(n))  # a query of a cloud without points encodes nothing: zero
        parts, i, j = [], 0, 0
        for points, queries in zip(n, m, strict=False):
            parts.append(self._cloud(problem, slice(i, i + points), slice(j, j + queries)))
            i, j = i + points, j + queries
        return torch.cat(parts)

    def _cloud(self, problem: Problem, points: slice, queries: slice) -> Tensor:
        x = problem.pos[points]  # (n, D_in)
        e = phasors(phase(x, problem.columns))  # (n, C)
        if problem.weights is not None:
            e = e * problem.weights[points, None]
        strength = torch.view_as_real(e).flatten(1)  # (n, 2C): J is real, so is the product
        rows = max(1, _PAIRS_AT_ONCE // max(1, len(x)))
        out = []
        for q in problem.queries[queries].split(rows):  # (m, D_in)
            axes = zip(q.unbind(1), x.unbind(1), strict=True)
            squared = sum((a[:, None] - b[None]).square() for a, b in axes)  # (m, n)
            assert isinstance(squared, Tensor)
            sums = (problem.window(squared) @ strength).unflatten(1, (-1, 2)).contiguous()
            demodulated = torch.view_as_complex(sums) * phasors(-phase(q, problem.columns))
            out.append(problem.finish(demodulated))
        return torch.cat(out) if out else e.new_zeros(0, problem.A.shape[1])


def clouds(index: Tensor) -> Tensor:
    """(B,) int64: how many points each cloud has."""
    return torch.bincount(index) if len(index) else index.new_zeros(0)
