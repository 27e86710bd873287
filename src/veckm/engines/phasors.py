"""Phasors: what turns the operator K into the encoder, right to rounding at any coordinates.

    G(q) = [K (w E)](q) / E(q),       E(x) = exp(i x A)              (Eqn. 3 of the paper)

In float32 a phase of 1e4 rad is wrong by 1e-3. Where blocks of points are at hand, the phase is
split at the center c of the block: (x - c) A, which is small, and c A, which is computed in float64
and reduced to one turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from veckm.engines.blocks import Blocks
from veckm.engines.device import can_look

Norm = Literal["unit", "mean"] | None
Reader = Callable[[slice], Tensor]  # sorted rows of blocks -> values (n, C), real
Writer = Callable[[slice, Tensor], None]  # sorted rows of blocks, sums (n, C), real

#: Phases up to this many rad keep an absolute error of about 1e-4 in float32.
SAFE_PHASE = 2000.0


@dataclass(frozen=True)
class Modulation:
    """The values w E that go into K, and what becomes of the sums that come out."""

    A: Tensor  # (D_in, D), in the dtype of the points
    weights: Tensor | None  # (N,)
    norm: Norm

    @property
    def width(self) -> int:
        """C, the complex numbers that are summed for each query."""
        return self.A.shape[1] + (self.norm == "mean")

    def columns(self, A: Tensor) -> Tensor:  # (D_in, C)
        """A, and for norm="mean" a column of frequency zero, where E = 1: its sums are of w_j."""
        if self.norm != "mean":
            return A
        return torch.cat([A, A.new_zeros(A.shape[0], 1)], dim=1)

    def carrier(self, x: Tensor, A: Tensor) -> Tensor:  # (n, D_in) -> (n, C) complex
        """E(x)."""
        return phasors(phase(x, self.columns(A)))

    def values(self, E: Tensor, weights: Tensor | None) -> Tensor:  # (n, C), (n,) -> (n, 2C)
        """w E, real and imaginary parts in turn."""
        v = as_real(E)
        return v if weights is None else v * weights[:, None]

    def encodings(self, sums: Tensor, E: Tensor) -> Tensor:  # (n, 2C), (n, C) -> (n, D)
        """Demodulate by E of the queries, and normalize."""
        return self.normalized(as_complex(sums) * E.conj())

    def modulated(self, x: Tensor, weights: Tensor | None, A: Tensor) -> Tensor:
        """w E(x), (n, 2C)."""
        return self.values(self.carrier(x, A), weights)

    def demodulated(self, sums: Tensor, q: Tensor, A: Tensor) -> Tensor:
        """The encodings of sums (n, 2C) at queries q."""
        return self.encodings(sums, self.carrier(q, A))

    def normalized(self, sums: Tensor) -> Tensor:  # (..., C) complex -> (..., D) complex
        """Normalize sums, before or after dividing by E(q), |E| = 1. Zero stays zero, never NaN."""
        tiny = 1e6 * torch.finfo(self.A.dtype).tiny  # its reciprocal must still be finite
        if self.norm == "unit":
            parts = as_real(sums)  # torch's complex norm is 20 times slower
            length = torch.linalg.vector_norm(parts, dim=-1, keepdim=True).clamp_min(tiny)
            return as_complex(parts * (math.sqrt(sums.shape[-1]) / length))
        if self.norm == "mean":
            return sums[..., :-1] / sums[..., -1:].real.clamp_min(tiny)
        return sums


def phase(x: Tensor, A: Tensor) -> Tensor:  # (..., n, D_in), (D_in, C) -> (..., n, C)
    """x A; where float32 would lose digits, or cannot be read, in float64 reduced to one turn."""
    if x.dtype == torch.float64 or not x.numel():
        return x @ A
    if can_look(x):
        largest = float(x.detach().abs().amax()) * float(A.detach().abs().sum(0).amax())
        if largest <= SAFE_PHASE:
            return x @ A
    return torch.remainder(x.double() @ A.double(), 2 * math.pi).to(x.dtype)


def phasors(angle: Tensor) -> Tensor:
    """exp(i angle): cosine and sine separately, several times faster than torch's complex exp."""
    return torch.complex(torch.cos(angle), torch.sin(angle))


def as_complex(real: Tensor) -> Tensor:  # (..., 2C) -> (..., C) complex
    """Interleaved real and imaginary parts as complex numbers."""
    return torch.view_as_complex(real.unflatten(-1, (-1, 2)))


def as_real(values: Tensor) -> Tensor:  # (..., C) complex -> (..., 2C)
    """Complex numbers as interleaved real and imaginary parts; real numbers as they are."""
    return torch.view_as_real(values).flatten(-2) if values.is_complex() else values


class Phasors:
    """E of the sorted rows of blocks, made in the cache; a reader and a writer for each thread."""

    def __init__(self, modulation: Modulation, blocks: Blocks) -> None:
        self.modulation, self.blocks = modulation, blocks
        self.A = modulation.columns(modulation.A.detach())  # (D_in, C)
        turn = torch.remainder(blocks.center @ self.A.double(), 2 * math.pi)
        self.turn = turn.to(self.A.dtype)  # (K, C)
        largest = float(blocks.local.abs().sum(1).amax()) * float(self.A.abs().amax())
        self.double = self.A.dtype == torch.float32 and largest > SAFE_PHASE

    def carrier(self) -> Callable[[slice, int], Tensor]:
        """A function of rows that returns E, or with sign -1 its inverse, (n, C) complex."""
        rows, width = self.blocks.largest_group, self.A.shape[1]
        held = self.A.new_empty(3, rows, width)
        made = torch.empty(rows, width, dtype=self.A.dtype.to_complex())

        def carrier(rows: slice, sign: int = 1) -> Tensor:
            n = rows.stop - rows.start
            angle, cos, sin = held[:, :n]
            torch.index_select(self.turn, 0, self.blocks.of_row[rows], out=angle)
            if self.double:
                local = self.blocks.local[rows].double() @ self.A.double()
                angle += torch.remainder(local, 2 * math.pi).to(angle.dtype)
            else:
                angle.addmm_(self.blocks.local[rows], self.A)
            # NumPy's vectorized cosine and sine take a third of the time of torch's.
            np.cos(angle.numpy(), out=cos.numpy())
            np.sin(angle.numpy(), out=sin.numpy())
            return torch.complex(cos, sin if sign > 0 else sin.neg_(), out=made[:n])

        return carrier

    def reader(self) -> Reader:
        """w E of rows, for the points."""
        carrier, weights = self.carrier(), self.modulation.weights
        sorted_ = None if weights is None else weights.detach()[self.blocks.order]

        def read(rows: slice) -> Tensor:
            E = as_real(carrier(rows, 1))
            return E if sorted_ is None else E.mul_(sorted_[rows, None])

        return read

    def writer(self, out: Tensor) -> Writer:  # (M, D) complex
        """Sums of rows to encodings in the caller's order, for the queries."""
        carrier, order = self.carrier(), self.blocks.order
        width = out.shape[1]
        if out.stride(0) > width:  # columns of a wider result: its rows are several of ours
            times = out.stride(0) // width
            out = out.as_strided(((len(out) - 1) * times + 1, width), (width, 1))
            order = order * times

        def write(rows: slice, sums: Tensor) -> None:
            G = self.modulation.normalized(as_complex(sums))
            G.mul_(carrier(rows, -1)[:, : G.shape[1]])
            out.index_copy_(0, order[rows], G)

        return write


def plain_reader(values: Tensor, blocks: Blocks) -> Reader:
    """Rows of given values, (N, C) real, in the order of blocks."""
    return lambda rows: values.index_select(0, blocks.order[rows])


def plain_writer(out: Tensor, blocks: Blocks) -> Writer:
    """Sums as they are, (M, C) real, back in the caller's order."""

    def write(rows: slice, sums: Tensor) -> None:
        out.index_copy_(0, blocks.order[rows], sums)

    return write
