"""ComplexLinear against the product written out in real and imaginary parts."""

import io

import pytest
import torch
from torch import Tensor, nn

from veckm.nn import ComplexLinear

DTYPES = [torch.complex64, torch.complex128]


def normal(*shape: int, dtype: torch.dtype = torch.complex128, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator)


def filled(layer: ComplexLinear) -> ComplexLinear:
    """The layer with a bias that is not zero, so that a test sees it."""
    if layer.bias_parts is not None:
        layer.bias_parts.data.copy_(torch.view_as_real(normal(layer.out_features, seed=7)))
    return layer


def by_definition(layer: ComplexLinear, z: Tensor) -> Tensor:
    """W z + b, one real product for each pair of parts."""
    re = z.real @ layer.weight.real.T - z.imag @ layer.weight.imag.T
    im = z.real @ layer.weight.imag.T + z.imag @ layer.weight.real.T
    out = torch.complex(re, im)
    return out if layer.bias is None else out + layer.bias


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 5, 4), (0, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_the_output_is_the_complex_product_plus_the_bias(
    dtype: torch.dtype, shape: tuple[int, ...], bias: bool
) -> None:
    layer = filled(ComplexLinear(4, 3, bias=bias).to(dtype.to_real()))
    z = normal(*shape, dtype=dtype)
    out = layer(z)
    assert out.dtype == dtype
    torch.testing.assert_close(out, by_definition(layer, z))


def test_the_map_is_complex_linear_and_not_just_real_linear() -> None:
    layer = ComplexLinear(4, 3, bias=False).double()
    z = normal(5, 4)
    torch.testing.assert_close(layer(1j * z), 1j * layer(z))


def test_a_lazily_conjugated_or_strided_input_gives_the_same_as_its_copy() -> None:
    layer = filled(ComplexLinear(4, 3).double())
    z = normal(4, 5)
    torch.testing.assert_close(layer(z.mT.conj()), layer(z.mT.conj().resolve_conj().contiguous()))


def test_gradients_of_input_weight_and_bias_match_finite_differences() -> None:
    layer = filled(ComplexLinear(3, 2).double())
    z = normal(4, 3).requires_grad_()
    names = [name for name, _ in layer.named_parameters()]

    def call(z: Tensor, *values: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(layer, dict(zip(names, values, strict=True)), z)
        return out

    assert torch.autograd.gradcheck(call, (z, *layer.parameters()))


@pytest.mark.parametrize(("inputs", "outputs"), [(256, 256), (256, 128), (64, 256)])
def test_the_start_is_the_glorot_draw_with_equal_parts_and_no_bias(
    inputs: int, outputs: int
) -> None:
    layer = ComplexLinear(inputs, outputs)
    assert layer.bias is not None
    weight, expected = layer.weight.detach(), torch.tensor(1 / (inputs + outputs))
    for part in (weight.real, weight.imag):
        torch.testing.assert_close(part.var(), expected, rtol=0.06, atol=0)
    assert abs(float((weight.real * weight.imag).mean() / expected)) < 0.05
    assert not layer.bias.any()


def test_the_start_keeps_the_variance_where_the_sizes_are_equal() -> None:
    layer = ComplexLinear(400, 400)
    z = normal(2000, 400, dtype=torch.complex64)
    ratio = layer(z).detach().abs().square().mean() / z.abs().square().mean()
    assert 0.95 < float(ratio) < 1.05  # the spread over draws is 0.003


def test_torch_manual_seed_decides_the_start() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        first = ComplexLinear(4, 3).weight
        torch.manual_seed(3)
        assert torch.equal(first, ComplexLinear(4, 3).weight)


def test_the_state_dict_has_stable_keys_and_survives_a_round_trip() -> None:
    layer, other = filled(ComplexLinear(4, 3)), ComplexLinear(4, 3)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert list(layer.state_dict()) == ["weight_parts", "bias_parts"]
    z = normal(5, 4, dtype=torch.complex64)
    assert torch.equal(layer(z), other(z))


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_a_gradient_scaler_and_a_fused_optimizer_take_its_parameters(kind: type) -> None:
    layer = ComplexLinear(4, 3)
    before = layer.weight.detach().clone()
    optimizer, scaler = kind(layer.parameters(), lr=0.1, fused=True), torch.amp.GradScaler("cpu")
    scaler.scale(layer(normal(5, 4, dtype=torch.complex64)).abs().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert bool((layer.weight.detach() != before).all())


def test_moving_to_double_precision_keeps_the_imaginary_part() -> None:
    layer = filled(ComplexLinear(4, 3))
    before = layer.weight.detach().clone()
    layer.to(torch.float64)
    assert layer.weight.dtype == torch.complex128
    assert torch.equal(layer.weight, before.to(torch.complex128))
    assert layer(normal(5, 4)).dtype == torch.complex128


def test_double_on_a_network_reaches_its_complex_layers_and_float_undoes_it() -> None:
    net = nn.Sequential(ComplexLinear(4, 3), nn.Linear(3, 2))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    assert {v.dtype for v in net.double().parameters()} == {torch.float64}
    for key, value in net.float().state_dict().items():
        assert torch.equal(value, before[key])


def test_gradients_follow_the_layer_to_another_dtype() -> None:
    layer = ComplexLinear(4, 3)
    layer(normal(5, 4, dtype=torch.complex64)).abs().sum().backward()
    layer.double()
    assert layer.weight_parts.grad is not None
    assert layer.weight_parts.grad.dtype == torch.float64


def test_the_layer_can_be_made_on_the_meta_device_and_filled_later() -> None:
    with torch.device("meta"):
        layer = ComplexLinear(4, 3)
    layer.to_empty(device="cpu").reset_parameters()
    assert layer(normal(5, 4, dtype=torch.complex64)).shape == (5, 3)


def test_autocast_lowers_the_precision_and_keeps_the_result_complex() -> None:
    layer = filled(ComplexLinear(64, 32))
    z = normal(5, 64, dtype=torch.complex64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(z)
    assert out.dtype == torch.complex64
    torch.testing.assert_close(out, layer(z), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_dtype_that_cannot_store_the_parts_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"cannot be stored in .*; use float32 or float64"):
        ComplexLinear(4, 3).to(dtype)


def test_a_real_input_says_what_to_pass_instead() -> None:
    with pytest.raises(TypeError, match=r"expects a complex tensor, got torch.float32; pass"):
        ComplexLinear(4, 3)(torch.zeros(5, 4))


def test_a_wrong_last_dimension_says_what_was_got() -> None:
    with pytest.raises(ValueError, match=r"expects \(\.\.\., 4\), channels last, got \(4, 5\)"):
        ComplexLinear(4, 3)(normal(4, 5, dtype=torch.complex64))


def test_a_wrong_precision_says_which_cast_to_make() -> None:
    with pytest.raises(TypeError, match=r"has torch.float32 parameters and got .*; call .*float64"):
        ComplexLinear(4, 3)(normal(5, 4))


def test_a_size_of_zero_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="out_features must be at least 1, got 0"):
        ComplexLinear(4, 0)
