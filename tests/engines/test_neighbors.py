"""The neighbours engine: exact for the ball, within eps for the Gaussian."""

from __future__ import annotations

import torch
from conformance import EngineConformance
from tolerance import ROUNDING


class TestNeighbors(EngineConformance):
    name = "neighbors"
    accuracies = (5e-2, 1e-2, 1e-3, 1e-5, 1e-8)

    def error(self, eps: float, window: str) -> float:
        return eps if window == "gaussian" else ROUNDING[torch.float64]
