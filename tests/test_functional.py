"""The stateless maths: Theorem 1, Propositions 1 and 2, and the kernel mixture, by definition."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
from clouds import frequencies, surface, volume
from torch import Generator

from veckm import encode, encode_neighborhood, kernel_mixture, reconstruct, similarity


def test_a_ball_of_neighbors_encodes_as_theorem_1_says(generator: Generator) -> None:
    pos, A = surface(150, 3, generator), frequencies(3, 16, 9.0, generator)
    G = encode(pos, A, radius=0.5, window="ball", norm="mean", engine="dense")
    for k in range(0, 150, 7):
        offsets = pos - pos[k]
        near = offsets[offsets.norm(dim=1) < 0.5]
        torch.testing.assert_close(G[k], encode_neighborhood(near, A))


def test_weighted_neighbors_encode_as_the_weighted_mean(generator: Generator) -> None:
    pos, A = surface(80, 3, generator), frequencies(3, 16, 9.0, generator)
    weights = torch.rand(80, generator=generator, dtype=torch.float64)
    G = encode(pos, A, beta=2.0, norm="mean", weights=weights, engine="dense")
    offsets = pos[None] - pos[:, None]  # (80, 80, 3): a neighborhood for each point
    window = torch.exp(-2.0 * offsets.square().sum(-1))
    torch.testing.assert_close(G, encode_neighborhood(offsets, A, window * weights))


def test_a_neighborhood_encodes_as_its_characteristic_function(generator: Generator) -> None:
    offsets, A = volume(5, 2, generator), frequencies(2, 3, 2.0, generator)
    got = encode_neighborhood(offsets, A)
    for d in range(3):
        turns = [cmath.exp(1j * float(x @ A[:, d])) for x in offsets]
        assert complex(got[d]) == pytest.approx(sum(turns) / 5, abs=1e-14)


@pytest.mark.parametrize("shape", [(0, 3), (4, 2), (3,), (2, 0, 3)])
def test_neighbors_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"shape \(\.\.\., K, 3\) with K >= 1, got"):
        encode_neighborhood(torch.zeros(shape), torch.zeros(3, 8))


def test_radius_and_beta_are_two_names_of_one_window(generator: Generator) -> None:
    pos, A = surface(50, 3, generator), frequencies(3, 8, 9.0, generator)
    for window in ("gaussian", "ball"):
        first = encode(pos, A, radius=0.5, window=window, engine="dense")  # type: ignore[arg-type]
        second = encode(pos, A, beta=3.6, window=window, engine="dense")  # type: ignore[arg-type]
        torch.testing.assert_close(first, second)


def test_reconstruct_is_the_real_inner_product_with_the_carrier(generator: Generator) -> None:
    A, at = frequencies(3, 7, 2.0, generator), volume(4, 3, generator)
    G = torch.randn(2, 7, generator=generator, dtype=torch.complex128)
    got = reconstruct(G, at, A)
    assert got.shape == (2, 4)
    for g, row in zip(G, got, strict=True):
        for x, value in zip(at, row, strict=True):
            terms = [cmath.exp(-1j * float(x @ A[:, d])) * complex(g[d]) for d in range(7)]
            assert float(value) == pytest.approx(sum(terms).real / 7, abs=1e-14)


def test_similarity_is_the_real_inner_product_over_d(generator: Generator) -> None:
    G = torch.randn(6, 9, generator=generator, dtype=torch.complex128)
    pairs = similarity(G[:, None], G[None])
    assert pairs.shape == (6, 6)
    torch.testing.assert_close(pairs, (G.conj() @ G.mT).real / 9)
    torch.testing.assert_close(pairs, pairs.mT)


def test_equal_encodings_of_unit_norm_have_similarity_one_and_others_less(
    generator: Generator,
) -> None:
    pos, A = surface(60, 3, generator), frequencies(3, 32, 9.0, generator)
    G = encode(pos, A, beta=2.0, engine="dense")
    pairs = similarity(G[:, None], G[None])
    torch.testing.assert_close(pairs.diagonal(), torch.ones(60, dtype=torch.float64))
    assert float((pairs - 2 * torch.eye(60)).max()) < 1


def test_encodings_of_different_sizes_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="encodings of different sizes: 4 and 5"):
        similarity(torch.zeros(2, 4) + 0j, torch.zeros(2, 5) + 0j)


def test_the_kernel_mixture_is_the_mean_of_gaussians(generator: Generator) -> None:
    points, at = volume(5, 3, generator), volume(4, 3, generator)
    weights = torch.rand(5, generator=generator, dtype=torch.float64)
    plain, weighted = kernel_mixture(points, at, 1.7), kernel_mixture(points, at, 1.7, weights)
    for x, first, second in zip(at, plain, weighted, strict=True):
        values = [math.exp(-(1.7**2) * math.dist(x, p) ** 2 / 2) for p in points]
        assert float(first) == pytest.approx(sum(values) / 5, abs=1e-14)
        mean = sum(w * v for w, v in zip(weights.tolist(), values, strict=True)) / weights.sum()
        assert float(second) == pytest.approx(float(mean), abs=1e-14)


@pytest.mark.parametrize("alpha", [0.0, -1.0, torch.nan])
def test_a_mixture_needs_a_positive_alpha(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be positive"):
        kernel_mixture(torch.zeros(2, 3), torch.zeros(2, 3), alpha)


def test_reconstruct_and_similarity_pass_gradients_on(generator: Generator) -> None:
    G = torch.randn(3, 5, generator=generator, dtype=torch.complex128).requires_grad_()
    A, at = frequencies(2, 5, 2.0, generator), volume(4, 2, generator).requires_grad_()
    assert torch.autograd.gradcheck(lambda G, at: reconstruct(G, at, A), (G, at))
    assert torch.autograd.gradcheck(lambda G: similarity(G[0], G[1:]), (G,))
