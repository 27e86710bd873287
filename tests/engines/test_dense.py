"""The dense engine against the definition written out pair by pair, without any factorization."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from clouds import CLOUDS, frequencies
from conformance import EngineConformance
from torch import Generator, Tensor
from twins import by_definition, over_clouds

from veckm import encode
from veckm.engines import dense
from veckm.sizes import make_window


class TestDense(EngineConformance):
    name = "dense"
    size = 300  # its twin takes N^2 D memory

    def truth(self, pos: Tensor, A: Tensor, **options: Any) -> Tensor:
        options.pop("eps", None)
        return over_clouds(by_definition, pos, A, **options)


def test_dense_can_be_differentiated_twice(generator: Generator) -> None:
    pos = CLOUDS["volume"](4, 2, generator).requires_grad_()
    A = frequencies(2, 3, 2.0, generator)

    def power(pos: Tensor) -> Tensor:
        return encode(pos, A, beta=1.0, engine="dense", norm="mean").abs().square()

    assert torch.autograd.gradgradcheck(power, (pos,))


@pytest.mark.parametrize("limit", ["_TILE_PAIRS", "_STACK_PAIRS"])
@pytest.mark.parametrize("grad", [False, True])
def test_rows_in_pieces_are_the_whole(
    limit: str, grad: bool, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pos, A = CLOUDS["surface"](100, 3, generator), frequencies(3, 8, 9.0, generator)
    pos.requires_grad_(grad)
    whole = encode(pos, A, beta=3.0, engine="dense")
    monkeypatch.setattr(dense, limit, 700)  # seven rows
    monkeypatch.setattr(dense, "_LEAST_ROWS", 1)
    torch.testing.assert_close(encode(pos, A, beta=3.0, engine="dense"), whole)


def test_the_windows_are_those_of_the_paper() -> None:
    squared = torch.tensor([0.0, 0.25, 1.0, 4.0], dtype=torch.float64)
    gaussian, ball = (make_window(name, 2.0, None) for name in ("gaussian", "ball"))
    assert torch.equal(gaussian(squared), torch.exp(-2.0 * squared))
    assert torch.equal(ball(squared), torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    assert ball.reach(1e-2, 3) == 0.9


@pytest.mark.parametrize("in_dim", [1, 2, 3, 4])
@pytest.mark.parametrize("eps", [0.3, 1e-2, 1e-4])
def test_outside_the_reach_of_a_gaussian_lies_the_share_eps_of_its_mass(
    in_dim: int, eps: float, generator: Generator
) -> None:
    reach = make_window("gaussian", 2.0, None).reach(eps, in_dim)
    draws = torch.randn(400_000, in_dim, generator=generator) / 2.0
    outside = float((draws.norm(dim=1) > reach).double().mean())
    assert outside == pytest.approx(eps, abs=5 * (eps / 400_000) ** 0.5)
