"""Lemmas 1-3 of the paper: the error against the Gaussian kernel mixture falls like 1 / sqrt(D)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from clouds import volume
from torch import Tensor

from veckm import encode_neighborhood, kernel_mixture, reconstruct, similarity
from veckm.frequencies import standard_normal

ALPHA = 3.0
SIZES = [64, 128, 256, 512, 1024, 2048, 4096]
SEEDS = range(16)

Draw = Callable[[int, torch.Generator], Tensor]
Errors = Callable[[Tensor], Tensor]  # A (3, D) -> errors against the limit


def plain(dim: int, generator: torch.Generator) -> Tensor:
    return ALPHA * torch.randn(3, dim, generator=generator, dtype=torch.float64)


def ours(dim: int, generator: torch.Generator) -> Tensor:
    return ALPHA * standard_normal(3, dim, generator=generator)


def neighborhoods() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    return volume(8, 3, generator), volume(6, 3, generator)


def kernel(A: Tensor) -> Tensor:
    """Lemma 1: <E(x), E(y)> / D tends to exp(-alpha^2 |x - y|^2 / 2)."""
    x, y = neighborhoods()
    e, f = (encode_neighborhood(points[:, None], A) for points in (x, y))
    limit = torch.exp(-(ALPHA**2) * torch.cdist(x, y).square() / 2)
    return similarity(e[:, None], f[None]) - limit


def reconstruction(A: Tensor) -> Tensor:
    """Lemma 2: <E(x), g> / D tends to the kernel mixture at x."""
    points, at = neighborhoods()
    return reconstruct(encode_neighborhood(points, A), at, A) - kernel_mixture(points, at, ALPHA)


def preservation(A: Tensor) -> Tensor:
    """Lemma 3: <g1, g2> / D tends to the mean kernel over all pairs of their points."""
    x, y = neighborhoods()
    first = torch.stack([x, x + 0.1, x.flip(1), x / 2])
    second = torch.stack([y, y - 0.2, y * 0.7, y.flip(1)])
    g, h = encode_neighborhood(first, A), encode_neighborhood(second, A)
    limit = torch.exp(-(ALPHA**2) * torch.cdist(first, second).square() / 2).mean((1, 2))
    return similarity(g, h) - limit


@cache
def rms(errors: Errors, draw: Draw, dim: int) -> float:
    """Root mean square over seeds and places."""
    draws = [draw(dim, torch.Generator().manual_seed(seed)) for seed in SEEDS]
    return float(torch.stack([errors(A) for A in draws]).square().mean().sqrt())


lemmas = pytest.mark.parametrize("errors", [kernel, reconstruction, preservation])


@lemmas
def test_the_error_falls_like_one_over_the_root_of_d(errors: Errors) -> None:
    sizes = [rms(errors, plain, dim) for dim in SIZES]
    slope = np.polyfit(np.log(SIZES), np.log(sizes), 1)[0]
    assert -0.65 < slope < -0.35


@lemmas
@pytest.mark.parametrize("dim", SIZES)
def test_our_draw_is_not_worse_than_plain_normal_numbers(errors: Errors, dim: int) -> None:
    # The spread of a root mean square over the seeds is some ten percent.
    assert rms(errors, ours, dim) < 1.2 * rms(errors, plain, dim)


@lemmas
def test_the_error_is_that_of_a_mean_of_d_numbers(errors: Errors) -> None:
    # |cos| <= 1, so that the mean of D of them is off by at most 1 / sqrt(D).
    for dim in SIZES:
        assert rms(errors, plain, dim) < 1 / dim**0.5
