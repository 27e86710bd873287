"""Eigenvectors by squaring against torch's eigh, and where there is none to find."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from veckm.tasks.normals import eigen


def packed(m: Tensor) -> Tensor:  # (..., 3, 3) -> (6, ...)
    rows, columns = (0, 1, 2, 0, 0, 1), (0, 1, 2, 1, 2, 2)
    return torch.stack([m[..., r, c] for r, c in zip(rows, columns, strict=True)])


def random_matrices(count: int, values: tuple[float, float, float]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(count, 3, 3, generator=generator, dtype=torch.float64))[0]
    return (turn * torch.tensor(values)) @ turn.transpose(1, 2)


def test_algebra() -> None:
    a = random_matrices(50, (0.3, 1.0, 2.0))
    v = torch.randn(3, 50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(eigen.squared(packed(a)), packed(a @ a))
    torch.testing.assert_close(eigen.times(packed(a), v), (a @ v.t()[..., None])[..., 0].t())
    torch.testing.assert_close(
        eigen.adjugate(packed(a)), packed(a.inverse() * a.det()[:, None, None])
    )
    torch.testing.assert_close(eigen.outer(v), packed(v.t()[:, :, None] * v.t()[:, None]))


@pytest.mark.parametrize("values", [(1e-6, 1.0, 1.5), (0.1, 1.0, 1.0), (0.0, 0.4, 3.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_smallest_and_spectrum(values: tuple[float, float, float], dtype: torch.dtype) -> None:
    a = random_matrices(200, values)
    m = packed(a).to(dtype)
    n = eigen.smallest(m)
    expected = torch.linalg.eigh(a)
    cosine = (n.t().double() * expected.eigenvectors[..., 0]).sum(-1).abs()
    assert float(cosine.clamp(max=1).acos().max()) < 2e-3
    found = eigen.spectrum(m, n).t().double()
    torch.testing.assert_close(found, expected.eigenvalues.clamp_min(0), atol=2e-3, rtol=2e-3)


def test_dominant_is_the_largest() -> None:
    a = random_matrices(200, (0.1, 0.5, 1.0))
    cosine = (
        (eigen.dominant(packed(a)).t() * torch.linalg.eigh(a).eigenvectors[..., 2]).sum(-1).abs()
    )
    assert float(cosine.min()) > 1 - 1e-9


def test_line_and_nothing_have_a_fixed_answer() -> None:
    line = torch.tensor([[3.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    n = eigen.smallest(eigen.outer(line.t()))
    torch.testing.assert_close(n.norm(dim=0), torch.ones(3))
    torch.testing.assert_close((n * line.t()).sum(0), torch.zeros(3), atol=1e-5, rtol=0)
    nothing = eigen.smallest(torch.zeros(6, 4))
    torch.testing.assert_close(nothing.norm(dim=0), torch.ones(4))


def test_gradient_is_finite_where_eigenvalues_coincide() -> None:
    m = packed(torch.eye(3, dtype=torch.float64).repeat(2, 1, 1)).requires_grad_()
    eigen.dominant(m).sum().backward()
    assert m.grad is not None
    assert torch.isfinite(m.grad).all()


def test_gradient_of_the_smallest() -> None:
    m = packed(random_matrices(4, (0.05, 1.0, 2.0))).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: eigen.outer(eigen.smallest(x)), (m,), atol=1e-5)


def test_rounding_of_a_lone_point_is_no_matrix() -> None:
    """Moments of one point are zero but for rounding, and may have a negative trace."""
    m = torch.tensor([[-6e-5], [-1e-11], [6e-7], [-4.8e-4], [2e-8], [1e-6]])
    for found in (eigen.smallest(m), eigen.dominant(m)):
        torch.testing.assert_close(found.norm(dim=0), torch.ones(1))
