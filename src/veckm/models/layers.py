"""The layers that the networks share. Channels stand last, so that rows are points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

from veckm.models.ops.gather import gather

M = TypeVar("M", bound=nn.Module)


class Norm(nn.Module):
    """Batch norm of the last dimension, whatever stands before it.

    Shapes:
        - input: (..., C)
        - output: (..., C)
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:  # (..., C)
        """Zero mean and unit variance for every channel, then its scale and shift."""
        rows = x.reshape(-1, x.shape[-1])
        if self.training and len(rows) < 2:
            raise ValueError(
                "batch norm has one row to learn from: train with at least two clouds in a batch, "
                "or call model.eval() first"
            )
        out: Tensor = self.norm(rows)
        return out.view(x.shape)

    def affine(self) -> tuple[Tensor, Tensor]:  # (C,), (C,)
        """Scale and shift of each channel, as they are in evaluation."""
        mean, var = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert var is not None
        scale = self.norm.weight * (var + self.norm.eps).rsqrt()
        return scale, self.norm.bias - mean * scale


class Dense(nn.Module):
    """Linear, batch norm, activation, on every point alike.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        slope: of the activation below zero: 0 is a ReLU, 1 is no activation.

    Shapes:
        - input: (..., C_in)
        - output: (..., C_out)
    """

    def __init__(self, in_channels: int, out_channels: int, slope: float = 0.0) -> None:
        super().__init__()
        # No bias: the norm would subtract it again.
        self.linear = nn.Linear(in_channels, out_channels, bias=False)
        self.norm = Norm(out_channels)
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:  # (..., C_in) -> (..., C_out)
        """The layer."""
        if self.training:
            return activate(self.norm(self.linear(x)), self.slope)
        return activate(nn.functional.linear(x, *self.folded()), self.slope)

    def folded(self) -> tuple[Tensor, Tensor]:  # (C_out, C_in), (C_out,)
        """Weight and bias of the linear layer and the norm in one, as they are in evaluation.

        The norm is then a fixed scale and shift: one pass less over what may be many neighbors.
        """
        scale, shift = self.norm.affine()
        return self.linear.weight * scale[:, None], shift

    def grouped(
        self,
        pos: Tensor,  # (B, N, 3)
        features: Tensor,  # (B, N, C)
        center: Tensor,  # (B, M, 3)
        near: Tensor,  # (B, M, K)
    ) -> Tensor:  # (B, M, K, C_out)
        r"""The layer on (x_j - x_i, f_j) of every neighbor j of every center i.

        .. math:: W (x_j - x_i, f_j) = W (x_j, f_j) - W_x x_i

        Computed at the points and the centers, then gathered: each of many neighbors costs a
        subtraction instead of a product.
        """
        weight, shift = (self.linear.weight, None) if self.training else self.folded()
        at = nn.functional.linear(torch.cat((pos, features), dim=-1), weight, shift)
        own = center @ weight[:, :3].t()
        x = gather(at, near) - own[:, :, None]
        return activate(self.norm(x) if self.training else x, self.slope)


def activate(x: Tensor, slope: float) -> Tensor:
    """ReLU with a slope below zero, in place."""
    if slope == 1:
        return x
    if slope == 0:
        return nn.functional.relu(x, inplace=True)
    return nn.functional.leaky_relu(x, slope, inplace=True)


def perceptron(sizes: Sequence[int], slope: float = 0.0, dropout: float = 0.0) -> nn.Sequential:
    """A dense layer from each size to the next, and dropout after each if there is any."""
    stack: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        stack.append(Dense(wide, narrow, slope))
        if dropout:
            stack.append(nn.Dropout(dropout))
    return nn.Sequential(*stack)


def head(sizes: Sequence[int], classes: int, dropout: float, slope: float = 0.0) -> nn.Sequential:
    """Dense layers with dropout after each, then a linear layer to the classes."""
    return nn.Sequential(*perceptron(sizes, slope, dropout), nn.Linear(sizes[-1], classes))


def beside(
    layers: nn.Sequential,  # the first of them Dense
    x: Tensor,  # (B, N, C)
    cloud: Tensor,  # (B, C')
) -> Tensor:  # (B, N, C_out)
    r"""The layers on each point's features beside those of its cloud.

    .. math:: W (x_i, c) = W_x x_i + W_c c

    What the cloud adds is computed once, not at every point, and nothing is copied to the points.
    """
    first, *rest = layers
    assert isinstance(first, Dense)
    weight, shift = (first.linear.weight, None) if first.training else first.folded()
    own, common = weight.split((x.shape[-1], cloud.shape[-1]), dim=1)
    y: Tensor = x @ own.t() + nn.functional.linear(cloud, common, shift)[:, None]
    y = activate(first.norm(y) if first.training else y, first.slope)
    for layer in rest:
        y = layer(y)
    return y


def seeded(make: Callable[[], M], seed: int) -> M:
    """``make()`` with weights that depend on ``seed`` alone; the global generator is kept."""
    # Layers draw their start from the global generator: it is lent out and put back.
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        return make()
