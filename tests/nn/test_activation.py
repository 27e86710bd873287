"""ComplexReLU, part by part."""

import pytest
import torch

from veckm.nn import ComplexReLU


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
    with pytest.raises(TypeError, match=r"ComplexReLU takes a complex tensor, got torch.float32"):
        ComplexReLU()(torch.zeros(3))
