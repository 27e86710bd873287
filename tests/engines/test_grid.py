"""The grid engine: within eps, in linear time."""

from __future__ import annotations

import pytest
from conformance import EngineConformance

from veckm.engines import device


class TestGrid(EngineConformance):
    name = "grid"
    windows = ("gaussian",)
    accuracies = (5e-2, 1e-2, 1e-3, 1e-5, 1e-8)

    def error(self, eps: float, window: str) -> float:
        return eps


class TestBatchedGrid(TestGrid):
    """The form that other devices than the CPU take, on the CPU."""

    @pytest.fixture(autouse=True)
    def _as_on_a_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(device, "launches", lambda device: True)
