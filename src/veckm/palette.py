"""Encodings as colors: their three main directions are red, green and blue."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veckm.components import Components, principal_components
from veckm.engines.phasors import as_real

#: Rows that are projected at a time, so that they stay in the cache.
_ROWS = 16_384
#: Share of the sample beyond either end of the colors.
_BEYOND = 0.02


@dataclass(frozen=True, eq=False)
class Palette:
    """Colors for encodings of the same encoder, so that like colors mean like neighborhoods.

    There is no randomness in it: the same encodings have the same colors in every run.
    """

    components: Components  # the three directions of largest variance
    low: Tensor  # (3,) the coordinates along them that get the darkest color
    high: Tensor  # (3,) and the lightest

    @staticmethod
    def of(sample: Tensor) -> Palette:  # (n, D) complex
        """From a sample of the encodings, some thousands."""
        components = principal_components([sample], 3)
        share = torch.tensor([_BEYOND, 1 - _BEYOND])
        ends = torch.quantile(components.project(sample), share, dim=0)
        return Palette(components, ends[0], ends[1])

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the variance along each direction."""
        total = max(self.components.total, 1e-12)
        return tuple((self.components.variance / total).tolist())

    def colors(self, encodings: Tensor) -> Tensor:  # (N, D) complex -> (N, 3) uint8
        """Red, green and blue of each."""
        # A byte needs no float64, in which components.project takes ten times as long.
        scale = 255 / (self.high - self.low).clamp_min(1e-12)
        basis = (self.components.basis * scale).float()
        start = (self.components.mean @ self.components.basis + self.low) * scale
        out = torch.empty(len(encodings), 3, dtype=torch.uint8)
        for rows, part in zip(out.split(_ROWS), encodings.split(_ROWS), strict=True):
            rows.copy_((as_real(part).float() @ basis - start.float()).clamp(0, 255).round())
        return out
