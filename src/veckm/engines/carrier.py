"""The carrier E(x) = exp(i x A), right to rounding however large the coordinates are.

In float32 a phase of 1e4 rad is wrong by 1e-3. So the phase is split at the centre c of the block:
(x - c) A, which is small, and c A, which is computed in float64 and reduced to one turn.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from veckm.engines.base import SAFE_PHASE, Problem
from veckm.engines.blocks import Blocks


class Carrier:
    """E or, with sign = -1, its conjugate 1 / E, for runs of sorted rows."""

    def __init__(self, blocks: Blocks, A: Tensor, sign: int = 1) -> None:
        self.A = sign * A.detach()  # (D_in, C)
        turn = torch.remainder(blocks.centre @ self.A.double(), 2 * math.pi)
        self.turn = turn.to(A.dtype)  # (K, C)
        self.blocks = blocks
        largest = float(blocks.local.abs().sum(1).amax()) * float(A.abs().amax())
        self.double = A.dtype == torch.float32 and largest > SAFE_PHASE
        rows = blocks.largest_group
        self.phase = A.new_empty(rows, A.shape[1])
        self.parts = A.new_empty(2, rows, A.shape[1])

    def __call__(self, rows: slice, width: int | None = None) -> Tensor:  # (n, width) complex
        """A fresh tensor with the first `width` columns, all of them unless said otherwise."""
        n = rows.stop - rows.start
        phase, cos, sin = self.phase[:n], self.parts[0, :n], self.parts[1, :n]
        torch.index_select(self.turn, 0, self.blocks.of_row[rows], out=phase)
        if self.double:
            local = self.blocks.local[rows].double() @ self.A.double()
            phase += torch.remainder(local, 2 * math.pi).to(phase.dtype)
        else:
            phase.addmm_(self.blocks.local[rows], self.A)
        torch.cos(phase, out=cos)
        torch.sin(phase, out=sin)
        return torch.complex(cos[:, :width], sin[:, :width])


def empty_result(problem: Problem) -> Tensor:
    """(M, D) complex, uninitialised, for the caller's result.

    On the CPU the memory comes from NumPy, which asks Linux for huge pages as torch does not:
    touching a fresh result for the first time is then several times faster.
    """
    shape = (len(problem.queries), problem.A.shape[1])
    if problem.pos.device.type != "cpu":
        return torch.empty(shape, dtype=problem.complex_dtype, device=problem.pos.device)
    dtype = np.complex128 if problem.pos.dtype == torch.float64 else np.complex64
    return torch.from_numpy(np.empty(shape, dtype))


def as_complex(real: Tensor) -> Tensor:  # (n, 2C) -> (n, C) complex, the same memory
    """Interleaved real and imaginary parts as complex numbers."""
    return torch.view_as_complex(real.view(real.shape[0], -1, 2))


def as_real(values: Tensor) -> Tensor:  # (n, C) complex -> (n, 2C), the same memory
    """Complex numbers as interleaved real and imaginary parts."""
    return torch.view_as_real(values).flatten(1)
