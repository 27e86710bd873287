"""FeatureBlock against Appendix B of the paper, written out."""

import pytest
import torch
from torch import Tensor

from veckm.nn import ComplexLinear, FeatureBlock


def normal(*shape: int, dtype: torch.dtype = torch.complex128) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def by_appendix_b(block: FeatureBlock, G: Tensor) -> Tensor:
    """Linear, ReLU of both parts, linear, re^2 + im^2."""
    first, second = (layer for layer in block.modules() if isinstance(layer, ComplexLinear))
    assert first.bias is not None
    assert second.bias is not None
    z = G @ first.weight.T + first.bias
    z = torch.complex(z.real.relu(), z.imag.relu())
    z = z @ second.weight.T + second.bias
    return z.real**2 + z.imag**2


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(16,), (5, 16), (2, 5, 16)])
def test_the_output_is_that_of_appendix_b(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    block = FeatureBlock(16, 8, 4).to(dtype.to_real())
    G = normal(*shape, dtype=dtype)
    out = block(G)
    assert out.dtype == dtype.to_real()
    torch.testing.assert_close(out, by_appendix_b(block, G))


def test_the_default_sizes_are_those_of_the_paper() -> None:
    shapes = {name: tuple(value.shape) for name, value in FeatureBlock().state_dict().items()}
    assert shapes == {
        "linear1.weight_parts": (128, 256, 2),
        "linear1.bias_parts": (128, 2),
        "linear2.weight_parts": (128, 128, 2),
        "linear2.bias_parts": (128, 2),
    }


@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_gradient_matches_finite_differences(batch_norm: bool) -> None:
    block = FeatureBlock(4, 3, 2, batch_norm=batch_norm).double()
    assert torch.autograd.gradcheck(block, (normal(5, 4).requires_grad_(),))


def test_with_norm_the_scale_and_shift_of_the_first_layer_do_not_matter() -> None:
    block = FeatureBlock(16, 8, 4, batch_norm=True).double()
    G = normal(50, 16)
    torch.testing.assert_close(block(100 * G + 3j), block(G), rtol=1e-4, atol=1e-5)


def test_with_norm_the_state_dict_round_trip_carries_the_running_statistics() -> None:
    block, other = (FeatureBlock(16, 8, 4, batch_norm=True).double() for _ in range(2))
    block(normal(50, 16))
    other.load_state_dict(block.state_dict())
    G = normal(3, 16)
    assert torch.equal(block.eval()(G), other.eval()(G))


@pytest.mark.parametrize("batch_norm", [False, True])
def test_a_few_steps_of_gradient_descent_lower_a_loss(batch_norm: bool) -> None:
    block = FeatureBlock(16, 8, 4, batch_norm=batch_norm)
    optimizer = torch.optim.Adam(block.parameters(), lr=1e-2)
    G = normal(50, 16, dtype=torch.complex64)
    losses = []
    for _ in range(30):
        loss = (block(G) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


def test_moving_to_double_precision_moves_every_tensor() -> None:
    block = FeatureBlock(16, 8, 4, batch_norm=True).to("cpu", torch.float64)
    kinds = {value.dtype for value in block.state_dict().values()}
    assert kinds == {torch.float64, torch.int64}
    assert block(normal(5, 16)).dtype == torch.float64


def test_a_real_input_is_refused() -> None:
    with pytest.raises(TypeError, match="expects a complex tensor"):
        FeatureBlock(16, 8, 4)(torch.zeros(5, 16))
