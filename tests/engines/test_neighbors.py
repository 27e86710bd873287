"""The neighbors engine: exact for the ball, within eps for the Gaussian."""

from __future__ import annotations

import torch
from conformance import EngineConformance
from tolerance import ROUNDING

from veckm import encode


class TestNeighbors(EngineConformance):
    name = "neighbors"
    accuracies = (5e-2, 1e-2, 1e-3, 1e-5, 1e-8)

    def error(self, eps: float, window: str) -> float:
        return eps if window == "gaussian" else ROUNDING[torch.float64]


def test_a_wide_block_in_float32_still_finds_its_own_points() -> None:
    # Coordinates of a million have steps of 0.06, several times the window.
    for extent in (1e5, 1e6, 3e6):
        pos = torch.tensor([[0.042, 0.205], [-0.2 * extent, -extent]])
        G = encode(pos, torch.full((2, 4), 50.0), beta=200.0, engine="neighbors", norm=None)
        torch.testing.assert_close(G, torch.ones_like(G))
