"""The grid engine: within eps, in linear time."""

from __future__ import annotations

from conformance import EngineConformance


class TestGrid(EngineConformance):
    name = "grid"
    windows = ("gaussian",)
    accuracies = (5e-2, 1e-2, 1e-3, 1e-5, 1e-8)

    def error(self, eps: float, window: str) -> float:
        return eps
