"""The carrier E(x) = exp(i x A), right to rounding however large the coordinates are.

In float32 a phase of 1e4 rad is wrong by 1e-3. So the phase is split at the centre c of the block:
(x - c) A, which is small, and c A, which is computed in float64 and reduced to one turn.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from veckm.engines.base import SAFE_PHASE
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
