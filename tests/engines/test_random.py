"""The random engine against its own formula written out, and against the window it stands for."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from clouds import CLOUDS, frequencies
from conformance import EngineConformance
from tolerance import mean_error
from torch import Generator, Tensor
from twins import by_random_features, over_clouds

from veckm import encode
from veckm.engines import random

P = 512


class TestRandom(EngineConformance):
    name = "random"
    windows = ("gaussian",)

    def extra(self, in_dim: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(5)
        return {"B": frequencies(in_dim, P, 3.0, generator)}

    def tile_error(self, window: str) -> float:
        return 0.5  # far points are noise, and a tile has fewer of them

    def truth(self, pos: Tensor, A: Tensor, **options: Any) -> Tensor:
        known = {k: v for k, v in options.items() if k not in ("beta", "radius", "window", "eps")}
        B = self.extra(pos.shape[-1])["B"]
        return over_clouds(by_random_features, pos, A, B, **known)


def noise(pos: Tensor, beta: float, p: int) -> Tensor:
    """Mean square of |G_random - G| for each point: var cos(b.z) = (1 - J^2)^2 / 2, over p."""
    J = torch.exp(-(beta**2) * torch.cdist(pos, pos).square() / 2)
    return (1 - J**2).square().sum(1) / (2 * p)


@pytest.mark.parametrize("p", [64, 512, 4096])
def test_the_noise_falls_like_one_over_the_root_of_p(p: int, generator: Generator) -> None:
    pos, A = CLOUDS["volume"](150, 3, generator), frequencies(3, 256, 60.0, generator)
    truth, got = encode(pos, A, beta=3.0, engine="dense", norm=None), []
    for _ in range(4):
        B = frequencies(3, p, 3.0, generator)
        G = encode(pos, A, beta=3.0, engine="random", B=B, norm=None)
        got.append((G - truth).abs().square().mean())
    expected = noise(pos, 3.0, p).mean()
    assert float(torch.stack(got).mean() / expected) == pytest.approx(1, abs=0.2)


def test_enough_columns_come_close_to_the_definition(generator: Generator) -> None:
    pos, A = CLOUDS["surface"](200, 3, generator), frequencies(3, 32, 6.0, generator)
    B = frequencies(3, 8192, 1.0, generator)
    G = encode(pos, A, beta=1.0, engine="random", B=B)
    truth = encode(pos, A, beta=1.0, engine="dense")
    assert mean_error(G, truth) < 5 / math.sqrt(8192)


def test_chunks_of_rows_are_the_whole(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pos, A = CLOUDS["surface"](150, 3, generator), frequencies(3, 8, 9.0, generator)
    B = frequencies(3, 64, 3.0, generator)
    whole = encode(pos, A, beta=3.0, engine="random", B=B)
    monkeypatch.setattr(random, "_ROWS_AT_ONCE", 40)
    torch.testing.assert_close(encode(pos, A, beta=3.0, engine="random", B=B), whole)
