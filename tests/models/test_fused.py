"""Fused layers against their plain twins: values, gradients, running statistics."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from experiments.networks import dgcnn
from torch import Generator, Tensor, nn

from veckm.models import fused
from veckm.models.clouds import Clouds
from veckm.models.layers import LinearBN, Norm, head, mlp
from veckm.nn import ComplexLinear

TRAINING = pytest.mark.parametrize("training", [True, False])
CLOUDS = pytest.mark.parametrize("sizes", [(9, 9), (4, 11, 3)])


def mlp_with_global(layers: nn.Module, x: Tensor, clouds: Clouds, of_cloud: Tensor) -> Tensor:
    out: Tensor = layers(torch.cat((x, of_cloud[clouds.batch]), dim=-1))
    return out


def edge_maxpool(weight: Tensor, norm: Norm, slope: float, x: Tensor, near: Tensor) -> Tensor:
    own = x[:, None].expand(-1, near.shape[1], -1)
    edge = torch.cat((x[near] - own, own), dim=-1) @ weight.t()
    return nn.functional.leaky_relu(norm(edge), slope).amax(1)


def mlp_maxpool(layers: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = layers(x).amax(1)
    return out


def squared_norm_maxpool(layer: ComplexLinear, h: Tensor) -> Tensor:
    return torch.view_as_real(layer(h)).square().sum(-1).amax(1)


def random(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)


def learned(layer: nn.Module, generator: Generator) -> None:
    """Norms with statistics, scales of both signs and shifts."""
    for norm in layer.modules():
        if isinstance(norm, nn.BatchNorm1d):
            for value in (norm.running_mean, norm.weight, norm.bias):
                assert value is not None
                value.data = torch.randn(value.shape, generator=generator).double()
            norm.running_var = torch.rand(norm.num_features, generator=generator).double() + 0.5


def check(
    fast: Callable[..., Tensor], plain: Callable[..., Tensor], layers: nn.Module, *inputs: Tensor
) -> None:
    """Both functions of (layers, *inputs): equal values, gradients and statistics."""
    twin = copy.deepcopy(layers)
    a, b = fast(layers, *inputs), plain(twin, *inputs)
    torch.testing.assert_close(a, b)
    weight = torch.linspace(-1, 1, a.numel(), dtype=torch.float64).view_as(a)
    learn = [x for x in inputs if x.requires_grad]
    got = torch.autograd.grad((a * weight).sum(), [*learn, *layers.parameters()])
    expected = torch.autograd.grad((b * weight).sum(), [*learn, *twin.parameters()])
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x, y)
    for x, y in zip(layers.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
def test_a_folded_norm_is_the_norm(slope: float, bias: bool, generator: Generator) -> None:
    layer = LinearBN(5, 7, slope, bias=bias).double().eval()
    learned(layer, generator)

    def plain(layer: LinearBN, x: Tensor) -> Tensor:
        y = layer.norm(layer.linear(x))
        return y if slope == 1 else nn.functional.leaky_relu(y, slope)

    check(lambda layer, x: layer(x), plain, layer, random(generator, 2, 11, 5))


@CLOUDS
@TRAINING
@pytest.mark.parametrize("columns", [0, 4])
def test_layers_with_global_features_are_those_on_copies_at_the_points(
    training: bool, columns: int, sizes: tuple[int, ...], generator: Generator
) -> None:
    layers = head((5 + columns, 8, 6), 3, 0.0).double().train(training)
    learned(layers, generator)
    clouds = Clouds(torch.zeros(18, 3), sizes)
    of_cloud = random(generator, len(sizes), columns)
    check(
        lambda layers, x, c: fused.mlp_with_global(layers, x, clouds, c),
        lambda layers, x, c: mlp_with_global(layers, x, clouds, c),
        layers,
        random(generator, 18, 5),
        of_cloud if columns else of_cloud.detach(),
    )


class Edge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 8, generator=Generator().manual_seed(2)))
        self.norm = Norm(6)


@TRAINING
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_the_maximum_over_edges_needs_no_edges(
    training: bool, slope: float, generator: Generator
) -> None:
    layer = Edge().double().train(training)
    learned(layer, generator)
    near = torch.stack([torch.randperm(15, generator=generator)[:4] for _ in range(15)])
    check(
        lambda m, x: dgcnn.edge_maxpool(m.weight, m.norm, slope, x, near),
        lambda m, x: edge_maxpool(m.weight, m.norm, slope, x, near),
        layer,
        random(generator, 15, 4),
    )


@TRAINING
@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("held", [1, 60, 1 << 20])
def test_mlp_maxpool_is_the_maximum_of_the_layers(
    slope: float, held: int, training: bool, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "_HELD", held)
    layers = mlp((4, 6, 9), slope).double().train(training)
    learned(layers, generator)
    x = random(generator, 3, 11, 4)
    check(fused.mlp_maxpool, mlp_maxpool, layers, x)
    with torch.no_grad():  # in evaluation, a few clouds at a time
        torch.testing.assert_close(fused.mlp_maxpool(layers, x), mlp_maxpool(layers, x))


@CLOUDS
def test_mlp_maxpool_of_clouds_has_the_statistics_of_all_points(
    sizes: tuple[int, ...], generator: Generator
) -> None:
    clouds = Clouds(torch.zeros(18, 3), sizes)
    check(
        lambda layers, x: fused.mlp_maxpool(layers, x, clouds),
        lambda layers, x: torch.stack([y.amax(0) for y in layers(x).split(sizes)]),
        mlp((4, 6, 9)).double(),
        random(generator, 18, 4),
    )


def test_mlp_maxpool_passes_gradcheck(generator: Generator) -> None:
    layers = mlp((3, 5)).double().train()
    x = random(generator, 2, 6, 3)
    assert torch.autograd.gradcheck(lambda x: fused.mlp_maxpool(layers, x), (x,))


def test_one_row_has_no_statistics(generator: Generator) -> None:
    with pytest.raises(ValueError, match="got a single row"):
        fused.mlp_maxpool(mlp((4, 9)).train(), torch.randn(1, 1, 4, generator=generator))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("held", [1, 60, 1 << 20])
def test_the_maximum_of_squared_norms_is_that_of_the_layer(
    bias: bool, held: int, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "_HELD", held)
    layer = ComplexLinear(4, 9, bias).double()
    h = torch.randn(3, 11, 4, generator=generator, dtype=torch.complex128, requires_grad=True)
    check(fused.squared_norm_maxpool, squared_norm_maxpool, layer, h)


def test_the_maximum_of_squared_norms_passes_gradcheck(generator: Generator) -> None:
    layer = ComplexLinear(3, 5).double()
    h = torch.randn(2, 6, 3, generator=generator, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: fused.squared_norm_maxpool(layer, h), (h,))


def in_bfloat16(
    layers: nn.Module, fast: Callable[..., Tensor], plain: Callable[..., Tensor], x: Tensor
) -> None:
    """Under autocast both are as far from float64: values, gradients and statistics."""
    exact = copy.deepcopy(layers).double()
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float64)).requires_grad_()
    errors = []
    expected = run(exact, plain, wide)
    for f in (fast, plain):
        twin, given = copy.deepcopy(layers), x.detach().clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = run(twin, f, given)
        assert found[1].dtype == given.dtype
        errors.append(
            [float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]
        )
    for mine, its in zip(*errors, strict=True):
        assert mine < max(1.5 * its, 0.01)


def run(layers: nn.Module, f: Callable[..., Tensor], x: Tensor) -> list[Tensor]:
    y = f(layers, x)
    y = y.to(torch.promote_types(y.dtype, torch.float32))
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    found = [y.detach(), *torch.autograd.grad((y * weight).sum(), [x, *layers.parameters()])]
    return found + [b for b in layers.buffers() if b.is_floating_point()]


@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_mlp_maxpool_in_bfloat16_is_as_exact_as_its_definition(
    slope: float, generator: Generator
) -> None:
    x = torch.randn(3, 200, 16, generator=generator)
    in_bfloat16(mlp((16, 64), slope), fused.mlp_maxpool, mlp_maxpool, x)


def test_the_maximum_of_squared_norms_in_bfloat16_is_as_exact_as_its_definition(
    generator: Generator,
) -> None:
    h = torch.randn(3, 200, 16, generator=generator, dtype=torch.complex64)
    layer = ComplexLinear(16, 64)
    nn.init.normal_(layer.bias_parts)
    in_bfloat16(layer, fused.squared_norm_maxpool, squared_norm_maxpool, h)
