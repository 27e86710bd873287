"""The layers that the networks share. Channels stand last, so that rows are points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


class Norm(nn.BatchNorm1d):
    """Batch norm of the last dimension, whatever stands before it: (..., C) to (..., C)."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        if self.training and len(rows) < 2:
            raise ValueError(
                "batch norm got a single row to compute statistics of: train with at least two "
                "clouds in a batch, or call model.eval() first"
            )
        y = super().forward(rows)
        return y if x.ndim == 2 else y.view(x.shape)

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:  # (C,), (C,)
        """Scale and shift of each channel, as they are in evaluation."""
        assert self.running_mean is not None
        assert self.running_var is not None
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return scale, self.bias - self.running_mean * scale


class LinearBN(nn.Module):
    """Linear, batch norm, activation, on every point alike.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        slope: of the activation below zero: 0 is a ReLU, 1 is no activation.
        bias: of the linear layer. The norm subtracts it again; some papers count it.
        dropout: before the norm, where a bias does count.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        slope: float = 0.0,
        *,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels, bias=bias)
        self.norm = Norm(out_channels)
        self.slope, self.dropout = slope, dropout

    def forward(self, x: Tensor) -> Tensor:  # (..., C_in) -> (..., C_out)
        if not self.training:
            return activate(nn.functional.linear(x, *self.folded()), self.slope)
        # On rows: in place on a view, autograd copies the whole gradient four times.
        rows = self.linear(x if x.ndim == 2 else x.flatten(0, -2))
        rows = self.norm(nn.functional.dropout(rows, self.dropout))
        return activate(rows, self.slope).view(*x.shape[:-1], -1)

    def folded(self) -> tuple[Tensor, Tensor]:  # (C_out, C_in), (C_out,)
        """Weight and bias of the linear layer and the norm in one, as they are in evaluation.

        The norm is then a fixed scale and shift: one pass less over what may be many neighbors.
        """
        scale, shift = self.norm.scale_and_shift()
        if self.linear.bias is not None:
            shift = shift + self.linear.bias * scale
        return self.linear.weight * scale[:, None], shift


def activate(x: Tensor, slope: float) -> Tensor:
    """ReLU with a slope below zero, in place."""
    if slope == 1:
        return x
    if slope == 0:
        return nn.functional.relu(x, inplace=True)
    return nn.functional.leaky_relu(x, slope, inplace=True)


def mlp(sizes: Sequence[int], slope: float = 0.0, dropout: float = 0.0) -> nn.Sequential:
    """A :class:`LinearBN` from each size to the next, and dropout after each if there is any."""
    stack: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        stack.append(LinearBN(wide, narrow, slope))
        if dropout:
            stack.append(nn.Dropout(dropout))
    return nn.Sequential(*stack)


def head(sizes: Sequence[int], classes: int, dropout: float, slope: float = 0.0) -> nn.Sequential:
    """An :func:`mlp` with dropout after each layer, then a linear layer to the classes."""
    return nn.Sequential(*mlp(sizes, slope, dropout), nn.Linear(sizes[-1], classes))


class MatrixHead(nn.Linear):
    """A linear layer to a K x K matrix, which starts at the identity: (B, C) to (B, K, K)."""

    def __init__(self, in_channels: int, size: int) -> None:
        super().__init__(in_channels, size * size)
        self.size = size
        nn.init.zeros_(self.weight)
        with torch.no_grad():
            self.bias.copy_(torch.eye(size).flatten())

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).view(-1, self.size, self.size)


def apply_valid(
    layers: nn.Module,
    x: Tensor,  # (M, K, C)
    valid: Tensor | None,  # (M, K) bool; None for all
    fill: float = 0.0,
) -> Tensor:  # (M, K, C_out)
    """The layers on the valid neighbors alone, so that no other counts in a batch norm."""
    if valid is None:
        out: Tensor = layers(x)
        return out
    rows: Tensor = layers(x[valid])
    return rows.new_full((*valid.shape, rows.shape[-1]), fill).index_put((valid,), rows)


def seeded(make: Callable[[], M], seed: int) -> M:
    """``make()`` with weights that depend on ``seed`` alone; the global generator is kept."""
    # Layers draw their initial weights from the global generator: it is restored afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        return make()
