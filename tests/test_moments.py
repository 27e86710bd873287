"""Local moments against their definition, on the grid and by all pairs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from clouds import CLOUDS, surface, volume
from tolerance import ROUNDING, whole_error
from torch import Generator, Tensor

from veckm import Moments, moments

EPS = 1e-4
engines = pytest.mark.parametrize("engine", ["dense", "grid"])


def by_definition(
    pos: Tensor, beta: float, queries: Tensor | None = None, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Weight, mean and covariance of x_j - q, the covariance from the deviations themselves."""
    z = pos[None] - (pos if queries is None else queries)[:, None]  # (M, N, D_in)
    w = torch.exp(-(beta**2) * z.square().sum(-1) / 2)
    w = w if weights is None else w * weights
    total = w.sum(1)
    mean = (w[..., None] * z).sum(1) / total[:, None]
    off = z - mean[:, None]
    covariance = (w[..., None, None] * off[..., :, None] * off[..., None, :]).sum(1)
    return total, mean, covariance / total[:, None, None]


def parts(got: Moments) -> tuple[Tensor, Tensor, Tensor]:
    return got.weight, got.mean, got.covariance


def allowed(engine: str, dtype: torch.dtype = torch.float64) -> float:
    return ROUNDING[dtype] + (5 * EPS if engine == "grid" else 0.0)


@engines
@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(("in_dim", "beta"), [(1, 6.0), (2, 4.0), (3, 3.0), (4, 1.5)])
def test_moments_are_those_of_the_definition(
    engine: str, cloud: str, in_dim: int, beta: float, generator: Generator
) -> None:
    pos = CLOUDS[cloud](150, in_dim, generator)
    weights = torch.rand(150, generator=generator, dtype=torch.float64)
    queries = pos[::3] + 0.05
    for given in ({}, {"queries": queries, "weights": weights}):
        got = moments(pos, beta=beta, engine=engine, eps=EPS, **given)  # type: ignore[arg-type]
        for mine, true in zip(parts(got), by_definition(pos, beta, **given), strict=True):
            assert whole_error(mine, true) <= allowed(engine)


@engines
def test_float32_is_enough_however_large_the_coordinates_are(
    engine: str, generator: Generator
) -> None:
    pos = (surface(300, 3, generator) + torch.tensor([2000.0, -3000.0, 500.0])).float()
    got = moments(pos, beta=3.0, engine=engine, eps=EPS)  # type: ignore[arg-type]
    assert got.mean.dtype == torch.float32
    for mine, true in zip(parts(got), by_definition(pos.double(), 3.0), strict=True):
        assert whole_error(mine, true) <= allowed(engine, torch.float32)


@engines
def test_the_covariance_is_symmetric_with_no_negative_variance(
    engine: str, generator: Generator
) -> None:
    covariance = moments(surface(300, 3, generator), beta=3.0, engine=engine).covariance  # type: ignore[arg-type]
    torch.testing.assert_close(covariance, covariance.mT)
    assert float(torch.linalg.eigvalsh(covariance).min()) > -1e-4


@engines
def test_on_a_plane_the_smallest_variance_is_along_the_normal(
    engine: str, generator: Generator
) -> None:
    normal = torch.nn.functional.normalize(torch.tensor([1.0, 2.0, -2.0]).double(), dim=0)
    pos = volume(400, 3, generator)
    pos -= (pos @ normal)[:, None] * normal
    covariance = moments(pos, beta=3.0, engine=engine, eps=1e-6).covariance  # type: ignore[arg-type]
    found = torch.linalg.eigh(covariance)[1][:, :, 0]
    assert float((found @ normal).abs().min()) > 1 - 1e-6


@engines
def test_the_density_of_an_even_volume_is_its_points_over_its_size(
    engine: str, generator: Generator
) -> None:
    pos, middle = volume(4000, 3, generator), torch.zeros(1, 3, dtype=torch.float64)
    got = moments(pos, beta=4.0, queries=middle, engine=engine)  # type: ignore[arg-type]
    expected = 4000 / 8
    neighbors = expected * (math.sqrt(math.pi) / 4.0) ** 3  # of the squared window
    assert float(got.density) == pytest.approx(expected, rel=4 / math.sqrt(neighbors))
    assert float(got.mean.abs().max()) < 4 * 0.25 / math.sqrt(neighbors)


@engines
def test_batches_are_loops_and_stacks_are_batches(engine: str, generator: Generator) -> None:
    pos = surface(120, 3, generator)
    batch = torch.tensor([0, 2, 3]).repeat_interleave(torch.tensor([40, 40, 40]))
    options: dict[str, Any] = {"beta": 3.0, "engine": engine, "eps": EPS}
    flat = moments(pos, batch=batch, **options)
    stack = moments(pos.view(3, 40, 3), **options)
    loop = [moments(x, **options) for x in pos.view(3, 40, 3)]
    for k, (mine, other) in enumerate(zip(parts(flat), parts(stack), strict=True)):
        alone = torch.stack([parts(each)[k] for each in loop])
        assert other.shape[:2] == (3, 40)
        assert whole_error(mine, alone.flatten(0, 1)) <= 2 * allowed(engine)
        assert whole_error(other, alone) <= 2 * allowed(engine)


def test_gradients_on_the_grid_are_those_of_the_definition(generator: Generator) -> None:
    pos = surface(150, 3, generator)
    leaves = [pos, pos[::2] + 0.03, 0.5 + torch.rand(150, generator=generator).double()]
    grads = []
    for engine in ("grid", "dense"):
        x, q, w = (leaf.clone().requires_grad_() for leaf in leaves)
        got = moments(x, beta=3.0, queries=q, weights=w, engine=engine, eps=1e-6)  # type: ignore[arg-type]
        loss = got.weight.square().mean() + got.mean.pow(3).sum() + got.covariance.pow(2).sum()
        grads.append(torch.autograd.grad(loss, (x, q, w)))
    for mine, true in zip(*grads, strict=True):
        assert whole_error(mine, true) <= 1e-4


@engines
def test_where_nothing_is_in_reach_all_moments_are_zero(engine: str) -> None:
    pos, far = torch.zeros(5, 3), torch.full((2, 3), 1e4)
    for got in (
        moments(pos, beta=3.0, queries=far, engine=engine),  # type: ignore[arg-type]
        moments(pos[:0], beta=3.0, queries=far, engine=engine),  # type: ignore[arg-type]
    ):
        assert not any(bool(part.any()) for part in parts(got))
    empty = moments(pos[:0], beta=3.0, engine=engine)  # type: ignore[arg-type]
    assert [tuple(part.shape) for part in parts(empty)] == [(0,), (0, 3), (0, 3, 3)]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"engine": "random"}, ValueError, "engine='random' needs B"),
        ({"beta": 0.0}, ValueError, "beta must be positive"),
        ({"radius": 1.0}, ValueError, "give either beta or radius, not both"),
        ({"pos": torch.zeros(5, 3).long()}, TypeError, "use float32 or float64"),
        ({"pos": torch.full((5, 3), torch.nan)}, ValueError, "NaN or infinite values in 5 of 5"),
        ({"weights": -torch.ones(5)}, ValueError, "weights must not be negative"),
        ({"eps": 1.0}, ValueError, "must be at most 0.5"),
    ],
)
def test_bad_input_says_what_is_wrong(
    options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        moments(**{"pos": torch.zeros(5, 3), "beta": 3.0, **options})
