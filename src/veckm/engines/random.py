"""The random engine: Theorem 2 of the paper, Gaussian window by random features.

    J-hat ~ B B^H / p,   B = exp(i X B)        G = (B (B^H A)) ./ A          (Eqn. DLGE)

Linear in N, but noisy: the error falls like 1 / sqrt(p) and eps is not heeded. Here for parity
with the paper; the points pass in chunks, so that no N x 2p buffer exists.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from veckm.engines.base import Engine, Gaussian, Problem, Rates, Task, phase, phasors
from veckm.engines.dense import clouds
from veckm.progress import bar

_ROWS_AT_ONCE = 2048


class Random(Engine):
    """Random Fourier features for the window: N p D operations, error about 1 / sqrt(p)."""

    name = "random"
    windows = (Gaussian,)

    def prepare(self, problem: Problem) -> Task:
        if problem.B is None:
            raise ValueError(
                "engine='random' needs B, the (D_in, p) frequencies of Theorem 2 drawn from "
                "N(0, beta^2): pass B=..., or use veckm.VecKM, which draws it"
            )
        p, width = problem.B.shape[1], problem.columns.shape[1]
        rows = len(problem.pos) + len(problem.queries)
        seconds = rows * p * (8 * width * Rates.FLOP + Rates.PHASOR)
        return Task(seconds, lambda: self._encode(problem))

    def _encode(self, problem: Problem) -> Tensor:
        n, m = clouds(problem.cloud).tolist(), clouds(problem.query_cloud).tolist()
        n += [0] * (len(m) - len(n))
        parts, i, j = [], 0, 0
        for points, queries in zip(n, m, strict=False):
            table = self._project(problem, slice(i, i + points))
            parts.append(self._expand(problem, slice(j, j + queries), table))
            i, j = i + points, j + queries
        return torch.cat(parts)

    def _project(self, problem: Problem, points: slice) -> Tensor:  # (2p, 2C)
        """B^H (w A) / p, chunk by chunk."""
        assert problem.B is not None
        width = problem.columns.shape[1]
        table = problem.pos.new_zeros(2 * problem.B.shape[1], 2 * width)
        with bar(points.stop - points.start, problem.label("project")) as advance:
            for i in range(points.start, points.stop, _ROWS_AT_ONCE):
                rows = slice(i, min(i + _ROWS_AT_ONCE, points.stop))
                w = None if problem.weights is None else problem.weights[rows]
                table = table + _run(problem, _project, problem.pos[rows], w)
                advance(rows.stop - rows.start)
        return table / problem.B.shape[1]

    def _expand(self, problem: Problem, queries: slice, table: Tensor) -> Tensor:
        """B table ./ A, chunk by chunk, normalised."""
        out = []
        with bar(queries.stop - queries.start, problem.label("expand")) as advance:
            for i in range(queries.start, queries.stop, _ROWS_AT_ONCE):
                q = problem.queries[i : min(i + _ROWS_AT_ONCE, queries.stop)]
                out.append(problem.finish(_run(problem, _expand, q, table)))
                advance(len(q))
        empty = problem.A.new_zeros(0, problem.A.shape[1], dtype=problem.complex_dtype)
        return torch.cat(out) if out else empty


def _run(problem: Problem, step: object, *tensors: Tensor | None) -> Tensor:
    """Run a chunk; under autograd its N x 2p features are made again in the backward pass."""
    assert callable(step)
    if problem.needs_grad:
        out = checkpoint(step, problem, *tensors, use_reentrant=False)
    else:
        out = step(problem, *tensors)
    assert isinstance(out, Tensor)
    return out


def _features(problem: Problem, x: Tensor) -> Tensor:  # (n, 2p)
    assert problem.B is not None
    angle = phase(x, problem.B)
    return torch.cat([torch.cos(angle), torch.sin(angle)], dim=1)


def _project(problem: Problem, x: Tensor, weights: Tensor | None) -> Tensor:  # (2p, 2C)
    e = torch.view_as_real(phasors(phase(x, problem.columns))).flatten(1)
    if weights is not None:
        e = e * weights[:, None]
    return _features(problem, x).t() @ e


def _expand(problem: Problem, q: Tensor, table: Tensor) -> Tensor:  # (n, C) complex
    sums = (_features(problem, q) @ table).unflatten(1, (-1, 2))
    return torch.view_as_complex(sums) * phasors(-phase(q, problem.columns))
