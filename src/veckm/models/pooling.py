"""The last layer before a maximum over the points of a cloud, without its N x C activations.

PointNet's widest layer, 128 -> 1024 channels, is followed by a maximum over points. Of its N x C
numbers only B x C go on. With h the input, x = W h, and a batch norm in training:

    mean(x) = W mean(h),   var(x) = diag(W C W^T),   C = cov(h)        no look at x
    y = max_n relu(norm(x_n)) = relu(norm(max_n x_n))                 both grow; min where gamma < 0

and the gradient is that of the rows that won, plus two terms of the norm that are the same for all
rows up to a product with h:

    dx = (G - mean(G) - x^ mean(G x^)) / sigma,   x^ = (x - mean(x)) / sigma
    dh = dx W   = sparse rows of W  -  a constant  -  (h - mean(h)) W^T D W      K x K, not C x K
    dW = dx^T h = sparse rows of h  -  D W C

So the layer costs one product in a step of training instead of three, and its activations are
held a few clouds at a time. The same goes for the squared norms that end VecKM's feature block,
y = max_n |W h_n + b|^2, where nothing but the winners has a gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from veckm.models.layers import Dense, activate
from veckm.nn import ComplexLinear

#: Numbers of x that are held at a time.
_HELD = 1 << 20
#: Clouds of so many points, as the groups of PointNet++, are better multiplied together.
_SMALL = 128


def pooled(layers: nn.Sequential | Dense, x: Tensor) -> Tensor:  # (B, N, K) -> (B, C)
    """The maximum over the points of what the layers, the last of them Dense, make of each."""
    *before, last = [layers] if isinstance(layers, Dense) else layers
    assert isinstance(last, Dense)
    for layer in before:
        x = layer(x)
    plain = not (last.training and torch.is_grad_enabled())
    plain = plain or torch.is_autocast_enabled(x.device.type)
    if plain or last.slope < 0 or x.shape[0] * x.shape[1] < 2:
        out: Tensor = last(x).amax(1)
        return out
    norm = last.norm.norm
    y, mean, var = _NormMax.apply(x, last.linear.weight, norm.weight, norm.bias, norm.eps)
    _follow(norm, mean, var, x.shape[0] * x.shape[1])
    return activate(y, last.slope)


def _follow(norm: nn.BatchNorm1d, mean: Tensor, var: Tensor, rows: int) -> None:
    """The running statistics, as torch's own batch norm keeps them."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked += 1
    rate = norm.momentum
    if rate is None:
        rate = 1.0 / float(norm.num_batches_tracked)
    norm.running_mean.lerp_(mean, rate)
    norm.running_var.lerp_(var * (rows / (rows - 1)), rate)


class _NormMax(torch.autograd.Function):
    """max_n norm(W h_n), with the mean and the variance of W h."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,  # (B, N, K)
        W: Tensor,  # (C, K)
        gamma: Tensor,  # (C,)
        beta: Tensor,  # (C,)
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # (B, C), (C,), (C,)
        """The formulas above."""
        rows = h.shape[0] * h.shape[1]
        middle = h.mean((0, 1))
        off = (h - middle).flatten(0, 1)
        C = off.t() @ off / rows
        WC = W @ C
        mean, var = W @ middle, (WC * W).sum(1).clamp_min(0)
        sign = torch.where(gamma < 0, -1.0, 1.0).to(W)
        best, at = _largest(h, W * sign[:, None])
        inverse = (var + eps).rsqrt()
        unit = (best * sign - mean) * inverse
        ctx.save_for_backward(h, W, gamma, middle, WC, inverse, unit, at)
        ctx.mark_non_differentiable(mean, var)
        return unit * gamma + beta, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        """Rows that won, and what the norm takes from all of them."""
        h, W, gamma, middle, WC, inverse, unit, at = ctx.saved_tensors
        clouds, n, k = h.shape
        rows = clouds * n
        g = dy * gamma * inverse  # (B, C) at the winners
        bend = (g * unit).sum(0) * inverse  # (C,) times x - mean(x), over the rows
        flat = h.flatten(0, 1)
        dh = (flat - middle) @ (W.t() @ (W * (bend / -rows)[:, None]))
        dh -= (g.sum(0) / rows) @ W
        dW = -bend[:, None] * WC - torch.outer(g.sum(0), middle)
        won = at + torch.arange(clouds, device=at.device)[:, None] * n
        for some, rows_of in zip(g.split(_few(W.numel())), won.split(_few(W.numel())), strict=True):
            there = rows_of.flatten()
            dh.index_add_(0, there, (some[..., None] * W).flatten(0, 1))
            winners = flat.index_select(0, there).view(*some.shape, k)
            dW += (some[..., None] * winners).sum(0)  # einsum would copy channel by channel
        return dh.view(h.shape), dW, (dy * unit).sum(0), dy.sum(0), None


def _few(size: int) -> int:
    """Clouds whose arrays of this size are held at a time."""
    return max(1, _HELD // size)


def _largest(h: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:  # (B, N, K), (C, K) -> (B, C) twice
    """The largest of W h over the points of each cloud, and which point has it."""
    clouds, n, _ = h.shape
    best = h.new_empty(clouds, len(W))
    at = torch.empty(clouds, len(W), dtype=torch.int64, device=h.device)
    few = _few(n * len(W))
    for start in range(0, clouds, few):
        part = slice(start, start + few)
        if n > _SMALL:  # channels before points, so that a maximum runs along memory
            torch.max(W @ h[part].mT, dim=2, out=(best[part], at[part]))
        else:  # one large product instead of many small ones
            torch.max(h[part] @ W.t(), dim=1, out=(best[part], at[part]))
    return best, at


def largest_norm(layer: ComplexLinear, h: Tensor) -> Tensor:  # (B, N, K) complex -> (B, C)
    """max_n |W h_n + b|^2."""
    if torch.is_autocast_enabled(h.device.type):
        return torch.view_as_real(layer(h)).square().sum(-1).amax(1)
    bias: Tensor | None = layer.bias
    if bias is None:
        bias = layer.weight.new_zeros(layer.out_features)
    largest: Tensor = _LargestNorm.apply(h, layer.weight, bias)
    return largest


class _LargestNorm(torch.autograd.Function):
    """max_n |W h_n + b|^2; the gradient of z = W h + b at the winners is 2 z."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,  # (B, N, K) complex
        W: Tensor,  # (C, K) complex
        b: Tensor,  # (C,) complex
    ) -> Tensor:  # (B, C)
        """A few clouds at a time."""
        clouds, n, _ = h.shape
        best = h.real.new_empty(clouds, len(W))
        at = torch.empty(clouds, len(W), dtype=torch.int64, device=h.device)
        z = h.new_empty(clouds, len(W))
        three = _Three(W, b)
        few = _few(n * len(W))
        for start in range(0, clouds, few):
            part = slice(start, start + few)
            re, im = three.times(h[part])  # (b, C, N)
            best[part], at[part] = torch.max(re.square().addcmul_(im, im), dim=2)
            there = at[part, :, None]
            z[part] = torch.complex(re.gather(2, there), im.gather(2, there)).squeeze(2)
        ctx.save_for_backward(h, W, z, at)
        return best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """dz = 2 z dy, and from there as in any linear layer."""
        h, W, z, at = ctx.saved_tensors
        clouds, n, k = h.shape
        dz = 2 * z * dy  # (B, C)
        won = at + torch.arange(clouds, device=at.device)[:, None] * n
        flat = h.flatten(0, 1)
        dh = torch.zeros_like(flat)
        dW = torch.zeros_like(W)
        for some, rows in zip(dz.split(_few(W.numel())), won.split(_few(W.numel())), strict=True):
            there = rows.flatten()
            dh.index_add_(0, there, (some[..., None] * W.conj()).flatten(0, 1))
            winners = flat.index_select(0, there).view(*some.shape, k)
            dW += (some[..., None] * winners.conj()).sum(0)
        return dh.view(h.shape), dW, dz.sum(0)


class _Three:
    """A complex product by three real ones instead of four.

    With W = R + i S and h = x + i y: Re = R (x + y) - (R + S) y, Im = R (x + y) + (S - R) x.
    """

    def __init__(self, W: Tensor, b: Tensor) -> None:
        re, im = W.real.contiguous(), W.imag.contiguous()
        self.first, self.second, self.third = re, im - re, re + im
        self.re, self.im = b.real[:, None], b.imag[:, None]

    def times(self, h: Tensor) -> tuple[Tensor, Tensor]:  # (B, N, K) complex -> (B, C, N) twice
        """Real and imaginary part of W h + b, channels before points."""
        x, y = h.real.mT, h.imag.mT
        both = self.first @ (x + y)
        re = both - self.third @ y
        im = both.add_(self.second @ x)
        return re.add_(self.re), im.add_(self.im)
