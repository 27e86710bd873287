"""The random engine: Theorem 2 of the paper, Gaussian window by random features.

    J-hat ~ B B^H / p,   B = exp(i X B)        G = (B (B^H A)) ./ A          (Eqn. DLGE)

Linear in N, but noisy: the error decays as 1 / sqrt(p) and `eps` is ignored. Here for parity
with the paper; the points pass in chunks, so that no N x 2p buffer exists.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from veckm.engines.geometry import Geometry, Points
from veckm.engines.operator import Engine, Operator, Proposal
from veckm.engines.phasors import phase
from veckm.engines.windows import Gaussian
from veckm.progress import bar

_ROWS_AT_ONCE = 2048
#: Columns of B unless given.
_PAPER_P = 4096


class Random(Engine):
    """Random Fourier features for the window: N p C operations, error about 1 / sqrt(p)."""

    name = "random"
    windows = (Gaussian,)
    meets_eps = False

    def propose(self, geometry: Geometry, columns: int) -> Proposal:
        rates = self.rates(geometry)
        p = _PAPER_P if geometry.B is None else geometry.B.shape[1]
        seconds = geometry.size * p * (4 * columns * rates.flop + rates.phasor)
        return Proposal(seconds, lambda: RandomOperator(geometry))


class RandomOperator(Operator):
    """K ~ F(q) F(x)^T / p with F(x) = [cos x B, sin x B]."""

    shares = False  # large products of torch's

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        if geometry.B is None:
            raise ValueError(
                "engine='random' needs B, the (D_in, p) frequencies of Theorem 2 drawn from "
                "N(0, beta^2): pass B=..., or use veckm.VecKM, which draws it"
            )
        self.B = geometry.B

    @property
    def T(self) -> Operator:
        return RandomOperator(self.geometry.swapped)

    def product(self, values: Tensor) -> Tensor:
        out = values.new_zeros(len(self.geometry.queries), values.shape[1])
        for points, queries in self.geometry.clouds():
            table = self._project(values, points)
            for rows in _chunks(queries, self.geometry.label("expand")):
                out[rows] = self._features(self.geometry.queries, rows).to(out.dtype) @ table
        return out

    def query_grad(self, cotangent: Tensor, values: Tensor) -> Tensor:
        """d cos(q b) = -sin(q b) b dq and d sin(q b) = cos(q b) b dq."""
        out = torch.zeros_like(self.geometry.queries.flat, requires_grad=False)
        for points, queries in self.geometry.clouds():
            table = self._project(values, points)
            for rows in _chunks(queries, self.geometry.label("gradient")):
                cos, sin = self._features(self.geometry.queries, rows).chunk(2, dim=1)
                by_cos, by_sin = (cotangent[rows] @ table.t()).to(out.dtype).chunk(2, dim=1)
                out[rows] = (by_sin * cos - by_cos * sin) @ self.B.t()
        return out

    def _project(self, values: Tensor, points: slice) -> Tensor:  # (2p, C)
        """F(x)^T v / p of a cloud, chunk by chunk."""
        p = self.B.shape[1]
        table = values.new_zeros(2 * p, values.shape[1])
        for rows in _chunks(points, self.geometry.label("project")):
            features = self._features(self.geometry.points, rows).to(values.dtype)
            table.addmm_(features.t(), values[rows], alpha=1 / p)
        return table

    def _features(self, points: Points, rows: slice) -> Tensor:  # (n, 2p)
        angle = phase(points.flat[rows].detach(), self.B)
        return torch.cat([torch.cos(angle), torch.sin(angle)], dim=1)


def _chunks(rows: slice, label: str | None) -> Iterator[slice]:
    with bar(rows.stop - rows.start, label) as advance:
        for i in range(rows.start, rows.stop, _ROWS_AT_ONCE):
            chunk = slice(i, min(i + _ROWS_AT_ONCE, rows.stop))
            yield chunk
            advance(chunk.stop - chunk.start)
