"""ComplexBatchNorm against the whitening written out with torch.linalg."""

import pytest
import torch
from torch import Tensor

from veckm.nn import ComplexBatchNorm

DTYPES = [torch.complex64, torch.complex128]


def skewed(*shape: int, dtype: torch.dtype = torch.complex128, seed: int = 0) -> Tensor:
    """Channels whose parts differ in scale, are correlated and sit away from zero."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, *shape, dtype=dtype.to_real(), generator=generator)
    return torch.complex(3 * x + 1, x + 0.5 * y - 2)


def parts(z: Tensor) -> Tensor:
    """(..., C) complex to (C, 2, N) real."""
    return torch.view_as_real(z).flatten(0, -3).permute(1, 2, 0)


def covariances(z: Tensor) -> Tensor:
    return torch.stack([torch.cov(channel, correction=0) for channel in parts(z)])


def by_definition(layer: ComplexBatchNorm, z: Tensor, mean: Tensor, cov: Tensor) -> Tensor:
    """Gamma V^{-1/2} (z - mu) + beta, from an eigendecomposition; cov is (C, 2, 2)."""
    values, vectors = torch.linalg.eigh(cov + layer.eps * torch.eye(2, dtype=cov.dtype))
    root = vectors @ torch.diag_embed(values.rsqrt()) @ vectors.mT
    gamma = layer.weight[:, [0, 1, 1, 2]].unflatten(1, (2, 2))
    pairs = torch.view_as_real(z - mean)  # (..., C, 2)
    out = torch.einsum("cij,...cj->...ci", gamma @ root, pairs)
    return torch.view_as_complex(out.contiguous()) + layer.bias


def moved(layer: ComplexBatchNorm, seed: int = 1) -> ComplexBatchNorm:
    """The layer with an affine part away from its start."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in (layer.weight, layer.bias_parts):
        noise = torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)
        parameter.data.add_(0.3 * noise)
    return layer


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(50, 3), (4, 20, 3), (2, 3, 10, 3)])
def test_training_whitens_by_the_batch(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    layer = moved(ComplexBatchNorm(3).to(dtype.to_real()))
    z = skewed(*shape, dtype=dtype)
    expected = by_definition(layer, z, z.flatten(0, -2).mean(0), covariances(z))
    torch.testing.assert_close(layer(z), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(50, 3), (4, 20, 3)])
def test_whitening_gives_mean_zero_and_the_identity_as_covariance(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    out = ComplexBatchNorm(3, eps=0.0).to(dtype.to_real())(skewed(*shape, dtype=dtype)).detach()
    eye = torch.eye(2, dtype=dtype.to_real()).expand(3, 2, 2) / 2  # Gamma starts at I / sqrt(2)
    torch.testing.assert_close(covariances(out), eye, rtol=1e-4, atol=1e-4)
    assert float(out.flatten(0, -2).mean(0).abs().max()) < 1e-5


def test_the_affine_start_gives_each_channel_a_mean_square_of_one() -> None:
    out = ComplexBatchNorm(3)(skewed(200, 3, dtype=torch.complex64))
    torch.testing.assert_close(out.abs().square().mean(0), torch.ones(3), rtol=1e-3, atol=0)


def test_evaluation_uses_the_running_statistics_with_an_unbiased_covariance() -> None:
    layer = moved(ComplexBatchNorm(3, momentum=0.3).double())
    mean, cov = torch.zeros(3, dtype=torch.complex128), 0.5 * torch.eye(2).double().expand(3, 2, 2)
    for seed in range(4):
        z = skewed(10, 3, seed=seed)
        layer(z)
        mean = 0.7 * mean + 0.3 * z.mean(0)
        cov = 0.7 * cov + 0.3 * covariances(z) * 10 / 9
    new = skewed(1, 3, seed=9)
    torch.testing.assert_close(layer.eval()(new), by_definition(layer, new, mean, cov))


def test_evaluation_does_not_move_the_running_statistics() -> None:
    layer = ComplexBatchNorm(3).eval()
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    layer(skewed(10, 3, dtype=torch.complex64))
    assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items())


def test_an_untrained_layer_in_evaluation_passes_its_input_through() -> None:
    z = skewed(10, 3)
    torch.testing.assert_close(ComplexBatchNorm(3, eps=0.0).double().eval()(z), z)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_match_finite_differences(training: bool) -> None:
    layer = moved(ComplexBatchNorm(2).double()).train(training)
    names = [name for name, _ in layer.named_parameters()]

    def call(z: Tensor, *values: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(layer, dict(zip(names, values, strict=True)), z)
        return out

    z = skewed(5, 2).requires_grad_()
    assert torch.autograd.gradcheck(call, (z, *layer.parameters()))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_parts_that_are_proportional_give_finite_values_and_gradients(scale: float) -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    z = (scale * torch.complex(x, 2 * x)).requires_grad_()
    out = ComplexBatchNorm(3)(z)
    out.abs().square().sum().backward()
    assert bool(out.isfinite().all())
    assert z.grad is not None
    assert bool(z.grad.isfinite().all())


def test_a_constant_channel_becomes_the_bias() -> None:
    layer = moved(ComplexBatchNorm(3))
    out = layer(torch.full((10, 3), 2 + 1j))
    torch.testing.assert_close(out, layer.bias.expand(10, 3))


def test_the_state_dict_has_stable_keys_and_survives_a_round_trip() -> None:
    layer, other = moved(ComplexBatchNorm(3)), ComplexBatchNorm(3)
    layer(skewed(10, 3, dtype=torch.complex64))
    keys = ["weight", "bias_parts", "running_mean_parts", "running_cov", "num_batches_tracked"]
    assert list(layer.state_dict()) == keys
    other.load_state_dict(layer.state_dict())
    z = skewed(4, 3, dtype=torch.complex64)
    assert torch.equal(layer.eval()(z), other.eval()(z))


def test_moving_to_double_precision_moves_every_part() -> None:
    layer = moved(ComplexBatchNorm(3)).to(torch.float64)
    kinds = [value.dtype for value in layer.state_dict().values()]
    assert kinds == [torch.float64] * 4 + [torch.int64]
    assert layer(skewed(10, 3)).dtype == torch.complex128


@pytest.mark.parametrize("shape", [(1, 3), (1, 1, 3), (0, 3)])
def test_training_with_fewer_than_two_vectors_says_what_to_do(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"more than one vector.*call eval\(\)"):
        ComplexBatchNorm(3)(skewed(*shape, dtype=torch.complex64))


def test_one_vector_is_enough_in_evaluation() -> None:
    assert ComplexBatchNorm(3).eval()(skewed(1, 3, dtype=torch.complex64)).shape == (1, 3)


def test_a_single_vector_without_a_batch_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs \(N, C\) or \(B, N, C\) .*, got \(3,\)"):
        ComplexBatchNorm(3)(skewed(3, dtype=torch.complex64))


def test_channels_first_says_that_channels_come_last() -> None:
    with pytest.raises(ValueError, match=r"channels last, got \(2, 3, 10\)"):
        ComplexBatchNorm(3)(skewed(2, 3, 10, dtype=torch.complex64))


def test_a_real_input_is_refused() -> None:
    with pytest.raises(TypeError, match="ComplexBatchNorm expects a complex tensor"):
        ComplexBatchNorm(3)(torch.zeros(5, 3))
