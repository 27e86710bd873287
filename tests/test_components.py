"""Principal components of encodings: those of NumPy, from pieces of any size, with fixed signs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from veckm.components import principal_components
from veckm.engines.phasors import as_real


@pytest.fixture
def features(generator: torch.Generator) -> torch.Tensor:
    """(200, 4) complex, far from zero, with unequal spread."""
    real = torch.randn(200, 8, generator=generator, dtype=torch.float64) * torch.arange(1.0, 9)
    return torch.view_as_complex(real.view(200, 4, 2).contiguous()) + 1000


def test_directions_are_those_of_a_singular_value_decomposition(features: torch.Tensor) -> None:
    found = principal_components([features], 3)
    x = as_real(features).numpy()
    _, values, rows = np.linalg.svd(x - x.mean(0), full_matrices=False)
    np.testing.assert_allclose(found.variance.numpy(), values[:3] ** 2 / 200, rtol=1e-6)
    np.testing.assert_allclose(np.abs(found.basis.numpy().T), np.abs(rows[:3]), atol=1e-5)
    assert found.total == pytest.approx((values**2).sum() / 200)


def test_pieces_and_order_do_not_matter(features: torch.Tensor) -> None:
    whole = principal_components([features], 2)
    pieces = principal_components(features.flip(0).split(7), 2)
    torch.testing.assert_close(whole.project(features), pieces.project(features))


def test_projection_has_the_variance_it_says(features: torch.Tensor) -> None:
    found = principal_components([features.to(torch.complex64)], 2)
    projected = found.project(features)
    assert projected.dtype == torch.float32
    torch.testing.assert_close(
        projected.double().var(0, correction=0), found.variance, rtol=1e-3, atol=0
    )
    torch.testing.assert_close(projected.mean(0), torch.zeros(2), atol=1e-2, rtol=0)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="from 1 to 4"):
        principal_components([torch.zeros(3, 2, dtype=torch.complex64)], 5)
    with pytest.raises(ValueError, match="no encodings"):
        principal_components([torch.zeros(0, 2)], 1)
