"""The layer before a maximum, against the layers written out: values, gradients, statistics."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Generator, Tensor

from veckm.models import pooling
from veckm.models.layers import perceptron
from veckm.nn import ComplexLinear


def same_gradients(
    fast: Tensor, of: list[Tensor], slow: Tensor, to: list[Tensor], generator: Generator
) -> None:
    weight = torch.randn(fast.shape, generator=generator, dtype=torch.float64)
    got = torch.autograd.grad((fast * weight).sum(), of)
    want = torch.autograd.grad((slow * weight).sum(), to)
    for first, second in zip(got, want, strict=True):
        torch.testing.assert_close(first, second)


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("held", [1, 60, 1 << 20])
def test_pooled_is_the_maximum_of_the_layers(
    slope: float, held: int, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooling, "_HELD", held)
    fast = perceptron((4, 6, 9), slope).double().train()
    norm = fast[-1].norm.norm
    with torch.no_grad():
        norm.weight.copy_(torch.randn(9, generator=generator))  # also below zero: a minimum there
        norm.bias.copy_(torch.randn(9, generator=generator))
    slow = copy.deepcopy(fast)
    x = torch.randn(3, 11, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    a, b = pooling.pooled(fast, x), slow(x).amax(1)
    torch.testing.assert_close(a, b)
    same_gradients(a, [x, *fast.parameters()], b, [x, *slow.parameters()], generator)
    for first, second in zip(fast.buffers(), slow.buffers(), strict=True):
        torch.testing.assert_close(first, second)


def test_gradients_are_those_of_differences(generator: Generator) -> None:
    layers = perceptron((3, 5)).double().train()
    x = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: pooling.pooled(layers, x), (x,))


def test_without_gradients_it_is_the_plain_maximum(generator: Generator) -> None:
    layers = perceptron((4, 6, 9)).eval()
    x = torch.randn(3, 11, 4, generator=generator)
    torch.testing.assert_close(pooling.pooled(layers, x), layers(x).amax(1))
    with torch.no_grad():
        torch.testing.assert_close(pooling.pooled(layers, x), layers(x).amax(1))


def test_one_row_has_no_statistics(generator: Generator) -> None:
    with pytest.raises(ValueError, match="one row to learn from"):
        pooling.pooled(perceptron((4, 9)).train(), torch.randn(1, 1, 4, generator=generator))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("held", [1, 60, 1 << 20])
def test_the_largest_norm_is_that_of_the_layer(
    bias: bool, held: int, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooling, "_HELD", held)
    layer = ComplexLinear(4, 9, bias, dtype=torch.complex128)
    h = torch.randn(3, 11, 4, generator=generator, dtype=torch.complex128, requires_grad=True)
    fast, slow = pooling.largest_norm(layer, h), layer(h).abs().square().amax(1)
    torch.testing.assert_close(fast, slow)
    inputs = [h, *layer.parameters()]
    same_gradients(fast, inputs, slow, inputs, generator)


def test_the_largest_norm_has_the_gradient_of_differences(generator: Generator) -> None:
    layer = ComplexLinear(3, 5, dtype=torch.complex128)
    h = torch.randn(2, 6, 3, generator=generator, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: pooling.largest_norm(layer, h), (h,))
