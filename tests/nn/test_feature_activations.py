"""ComplexReLU, part by part, and SquaredNorm against |z|^2."""

import pytest
import torch

from veckm.nn import ComplexReLU, SquaredNorm


def test_both_parts_are_clamped_at_zero() -> None:
    z = torch.tensor([1 + 2j, -1 + 2j, 1 - 2j, -1 - 2j])
    assert ComplexReLU()(z).tolist() == [1 + 2j, 2j, 1, 0]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(), (7,), (5, 4), (2, 5, 4)])
def test_the_output_is_the_relu_of_each_part(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    z = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    out = ComplexReLU()(z)
    assert out.dtype == dtype
    assert torch.equal(out, torch.complex(z.real.clamp_min(0), z.imag.clamp_min(0)))


def test_a_lazily_conjugated_input_is_conjugated_first() -> None:
    z = torch.tensor([1 + 2j, 1 - 2j])
    assert ComplexReLU()(z.conj()).tolist() == [1, 1 + 2j]


def test_the_input_is_left_as_it_was() -> None:
    z = torch.tensor([-1 - 2j])
    ComplexReLU()(z)
    assert z.tolist() == [-1 - 2j]


def test_the_gradient_matches_finite_differences_away_from_zero() -> None:
    z = torch.tensor([1 + 2j, -1 + 2j, 1 - 2j, -1 - 2j], dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(ComplexReLU(), (z,))


def test_a_real_input_is_refused() -> None:
    with pytest.raises(TypeError, match=r"ComplexReLU expects a complex tensor, got torch.float32"):
        ComplexReLU()(torch.zeros(3))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(), (7,), (5, 4), (2, 5, 4)])
def test_the_output_is_real_and_the_square_of_the_magnitude(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    z = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    out = SquaredNorm()(z)
    assert out.dtype == dtype.to_real()
    torch.testing.assert_close(out, z.abs().square())


def test_the_phase_does_not_matter() -> None:
    z = torch.randn(9, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    turned = z * torch.polar(torch.ones(9).double(), torch.arange(9).double())
    torch.testing.assert_close(SquaredNorm()(turned), SquaredNorm()(z))


def test_the_gradient_of_the_squared_norm_is_zero_at_zero() -> None:
    z = torch.tensor([0j, 1 + 2j, -3j], dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(SquaredNorm(), (z,))
    (grad,) = torch.autograd.grad(SquaredNorm()(z)[0], z)
    assert grad[0] == 0


def test_the_squared_norm_refuses_a_real_input() -> None:
    with pytest.raises(TypeError, match=r"SquaredNorm expects a complex tensor, got torch.float64"):
        SquaredNorm()(torch.zeros(3).double())
