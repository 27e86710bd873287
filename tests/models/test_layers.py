"""Layers that are computed another way than they are written: the same values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor, nn

from veckm.models.layers import Dense, beside, head
from veckm.models.ops import gather


def random(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)


def learned(layer: nn.Module, generator: Generator) -> None:
    """Norms that have seen something."""
    for norm in layer.modules():
        if isinstance(norm, nn.BatchNorm1d):
            for value in (norm.running_mean, norm.weight, norm.bias):
                assert value is not None
                value.data = torch.randn(value.shape, generator=generator).double()
            norm.running_var = torch.rand(norm.num_features, generator=generator).double() + 0.5


def same(a: Tensor, b: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(a, b)
    weight = torch.linspace(-1, 1, a.numel(), dtype=torch.float64).view_as(a)
    for x, y in zip(
        torch.autograd.grad((a * weight).sum(), inputs),
        torch.autograd.grad((b * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
def test_the_folded_norm_is_the_norm(slope: float, generator: Generator) -> None:
    layer = Dense(5, 7, slope).double().eval()
    learned(layer, generator)
    x = random(generator, 2, 11, 5)
    plain = layer.norm(layer.linear(x))
    plain = plain if slope == 1 else nn.functional.leaky_relu(plain, slope)
    same(layer(x), plain, [x, *layer.parameters()])


@pytest.mark.parametrize("training", [True, False])
def test_grouped_is_the_layer_on_offsets_and_features(training: bool, generator: Generator) -> None:
    layer = Dense(3 + 4, 6).double().train(training)
    learned(layer, generator)
    pos, features = random(generator, 2, 9, 3), random(generator, 2, 9, 4)
    near = torch.randint(9, (2, 5, 3), generator=generator)
    center = pos[:, :5]
    offset = gather(pos, near) - center[:, :, None]
    slow = layer(torch.cat((offset, gather(features, near)), dim=-1))
    layer.norm.norm.momentum = 0.0
    inputs = [pos, features, *layer.parameters()]
    same(layer.grouped(pos, features, center, near), slow, inputs)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("columns", [0, 4])
def test_beside_is_the_layers_on_what_was_copied_to_the_points(
    training: bool, columns: int, generator: Generator
) -> None:
    layers = head((5 + columns, 8, 6), 3, 0.0).double().train(training)
    learned(layers, generator)
    x, cloud = random(generator, 2, 9, 5), random(generator, 2, columns)
    slow = layers(torch.cat((x, cloud[:, None].expand(-1, 9, -1)), dim=-1))
    inputs = [x, *([cloud] if columns else []), *layers.parameters()]
    same(beside(layers, x, cloud), slow, inputs)
