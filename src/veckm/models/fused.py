r"""Layers computed in another order than written: the same values and gradients, less work.

Each falls back on its definition where it does not apply (ragged batches), and tests compare the
two. Under autocast the factors of the large products are rounded, and statistics stay in float32.

``mlp_maxpool`` is the largest of them. PointNet's widest layer, 128 -> 1024 channels, is followed
by a maximum over points. Of its N x C numbers only B x C go on. With h the input, x = W h, and a
batch norm in training:

    mean(x) = W mean(h),   var(x) = diag(W C W^T),   C = cov(h)        no look at x
    y = max_n relu(norm(x_n)) = relu(norm(max_n x_n))                 both grow; min where gamma < 0

and the gradient is that of the rows that are the maximum, plus two terms of the norm that are the
same for all rows up to a product with h:

    dx = (G - mean(G) - x^ mean(G x^)) / sigma,   x^ = (x - mean(x)) / sigma
    dh = dx W   = sparse rows of W  -  a constant  -  (h - mean(h)) W^T D W      K x K, not C x K
    dW = dx^T h = sparse rows of h  -  D W C

So the layer costs one product in a training step instead of three, and its activations are held a
few clouds at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from veckm.engines.device import rounding, traced
from veckm.models.clouds import Clouds
from veckm.models.layers import LinearBN, activate
from veckm.nn import ComplexLinear

#: Numbers of x that are held at a time.
_HELD = 1 << 20
#: Clouds of so many points, as the groups of PointNet++, are better multiplied together.
_SMALL = 128


def mlp_with_global(
    layers: nn.Sequential,  # the first of them LinearBN
    x: Tensor,  # (N, C)
    clouds: Clouds,
    of_cloud: Tensor,  # (B, C')
) -> Tensor:  # (N, C_out)
    """The layers on each point's features joined with those of its cloud.

    W (x_i, c) = W_x x_i + W_c c, of which the second is computed once per cloud.
    """
    first = layers[0]
    assert isinstance(first, LinearBN)
    weight, shift = (first.linear.weight, None) if first.training else first.folded()
    own, common = weight.split((x.shape[-1], of_cloud.shape[-1]), dim=1)
    y = clouds.add(x @ own.t(), nn.functional.linear(of_cloud, common, shift))
    out: Tensor = layers[1:](activate(first.norm(y) if first.training else y, first.slope))
    return out


def mlp_maxpool(
    layers: nn.Sequential | LinearBN,  # the last of them LinearBN
    x: Tensor,  # (B, N, K), or (N, K) with clouds
    clouds: Clouds | None = None,
) -> Tensor:  # (B, C)
    """The maximum over the points of each cloud, or group, of the layers' output."""
    if clouds is not None and not clouds.uniform:
        return clouds.max(layers(x))
    x = x if clouds is None else clouds.dense(x)
    layers = layers if isinstance(layers, nn.Sequential) else nn.Sequential(layers)
    last = layers[-1]
    assert isinstance(last, LinearBN)
    fixed = not (last.training or torch.is_grad_enabled())
    if fixed and x.device.type == "cpu" and not traced(x):
        few = max(1, _HELD // (x.shape[1] * last.linear.out_features))  # what stays in the cache
        return torch.cat([layers(part).amax(1) for part in x.split(few)])
    x = layers[:-1](x)
    low, plain = rounding(x), not (last.training and torch.is_grad_enabled())
    if low is not None:  # covariances in float32 pay where C is much larger than K
        plain = plain or x.shape[1] <= _SMALL or 4 * x.shape[-1] > last.linear.out_features
    if plain or last.slope < 0 or x.shape[0] * x.shape[1] < 2:
        out: Tensor = last(x).amax(1)
        return out
    norm = last.norm
    x = x if low is None else x.to(low)
    with torch.autocast(x.device.type, enabled=False):
        y, mean, var = _NormMax.apply(x, last.linear.weight, norm.weight, norm.bias, norm.eps)
    track(norm, mean, var, x.shape[0] * x.shape[1])
    return activate(y, last.slope)


@torch.no_grad()
def track(norm: nn.BatchNorm1d, mean: Tensor, var: Tensor, rows: int) -> None:
    """Update the running statistics as torch's own batch norm does."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked += 1
    share = 1 / int(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean, share)
    norm.running_var.lerp_(var * (rows / (rows - 1)), share)


class _NormMax(torch.autograd.Function):
    """max_n norm(W h_n), with the mean and the variance of W h."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,  # (B, N, K), in the precision of the products
        W: Tensor,  # (C, K)
        gamma: Tensor,  # (C,)
        beta: Tensor,  # (C,)
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # (B, C), (C,), (C,)
        rows = h.shape[0] * h.shape[1]
        middle = h.mean((0, 1), dtype=W.dtype)
        off = (h - middle).flatten(0, 1)
        C = off.t() @ off / rows
        WC = W @ C
        mean, var = W @ middle, (WC * W).sum(1).clamp_min(0)
        sign = torch.where(gamma < 0, -1.0, 1.0).to(W)
        best, at = _argmax(h, (W * sign[:, None]).to(h.dtype))
        inverse = (var + eps).rsqrt()
        unit = (best * sign - mean) * inverse
        ctx.save_for_backward(h, W, gamma, middle, WC, inverse, unit, at)
        ctx.mark_non_differentiable(mean, var)
        return unit * gamma + beta, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        h, W, gamma, middle, WC, inverse, unit, at = ctx.saved_tensors
        rows = h.shape[0] * h.shape[1]
        g = dy * gamma * inverse  # (B, C) at the maxima
        D = (g * unit).sum(0) * inverse  # (C,) times x - mean(x), over the rows
        square = W.t() @ (W * (D / -rows)[:, None])
        off = (h.flatten(0, 1) - middle).to(h.dtype)
        dh = (off @ square.to(h.dtype)).to(W.dtype)
        dh -= (g.sum(0) / rows) @ W
        dW = -D[:, None] * WC - torch.outer(g.sum(0), middle)
        _add_at_maxima(dh, dW, g, at, h, W)
        return dh.view(h.shape).to(h.dtype), dW, (dy * unit).sum(0), dy.sum(0), None


def _add_at_maxima(
    dh: Tensor,  # (B N, K), added to
    dW: Tensor,  # (C, K), added to
    g: Tensor,  # (B, C)
    at: Tensor,  # (B, C), the point of each maximum
    h: Tensor,  # (B, N, K)
    W: Tensor,  # (C, K)
) -> None:
    """The gradient of W h_n where only the maxima have one, a few clouds at a time."""
    clouds, n, k = h.shape
    flat, W_conj = h.flatten(0, 1), W.conj()
    rows = at + torch.arange(clouds, device=at.device)[:, None] * n
    few = max(1, _HELD // W.numel())
    for some, there in zip(g.split(few), rows.split(few), strict=True):
        dh.index_add_(0, there.flatten(), (some[..., None] * W_conj).flatten(0, 1))
        best = flat.index_select(0, there.flatten()).view(*some.shape, k)
        dW += (some[..., None] * best.conj()).sum(0)  # einsum would copy channel by channel


def _argmax(h: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:  # (B, N, K), (C, K) -> (B, C) twice
    """The maximum of W h over the points of each cloud, and which point has it."""
    clouds, n, _ = h.shape
    best = h.new_empty(clouds, len(W))
    at = torch.empty(clouds, len(W), dtype=torch.int64, device=h.device)
    few, half = max(1, _HELD // (n * len(W))), h.dtype.itemsize == 2
    for start in range(0, clouds, few):
        part = slice(start, start + few)
        if n > _SMALL or half:  # channels before points, so that a maximum runs along memory
            torch.max(W @ h[part].mT, dim=2, out=(best[part], at[part]))
        else:  # one large product instead of many small ones
            torch.max(h[part] @ W.t(), dim=1, out=(best[part], at[part]))
    return best, at


def squared_norm_maxpool(layer: ComplexLinear, h: Tensor) -> Tensor:  # (B, N, K) -> (B, C)
    """max_n |W h_n + b|^2, of complex h: the end of VecKM's feature block, before a maximum."""
    bias, low = layer.bias, rounding(h)
    if bias is None:
        return torch.view_as_real(layer(h)).square().sum(-1).amax(1)
    with torch.autocast(h.device.type, enabled=False):
        largest: Tensor = _SquaredNormMax.apply(h, layer.weight, bias, low)
    return largest


class _SquaredNormMax(torch.autograd.Function):
    """max_n |W h_n + b|^2; the gradient with respect to z = W h + b at the maxima is 2 z.

    The complex product is three real ones instead of four. With W = R + i S and h = x + i y:
    Re = R (x + y) - (R + S) y, Im = R (x + y) + (S - R) x. Rounded factors go into the four.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,  # (B, N, K) complex
        W: Tensor,  # (C, K) complex
        b: Tensor,  # (C,) complex
        low: torch.dtype | None,  # of rounded factors
    ) -> Tensor:  # (B, C)
        clouds, n, _ = h.shape
        best = h.real.new_empty(clouds, len(W))
        at = torch.empty(clouds, len(W), dtype=torch.int64, device=h.device)
        z = h.new_empty(clouds, len(W))
        product = _product(W) if low is None else _rounded_product(W, low)
        few = max(1, _HELD // (n * len(W)))
        for start in range(0, clouds, few):
            part = slice(start, start + few)
            re, im = product(h[part])  # (b, C, N): channels before points
            re, im = re.add_(b.real[:, None]), im.add_(b.imag[:, None])
            best[part], at[part] = torch.max(re.square().addcmul_(im, im), dim=2)
            there = at[part, :, None]
            z[part] = torch.complex(re.gather(2, there), im.gather(2, there)).squeeze(2)
        ctx.save_for_backward(h, W, z, at)
        return best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        h, W, z, at = ctx.saved_tensors
        dz = 2 * z * dy  # (B, C)
        dh = torch.zeros_like(h.flatten(0, 1))
        dW = torch.zeros_like(W)
        _add_at_maxima(dh, dW, dz, at, h, W)
        return dh.view(h.shape), dW, dz.sum(0), None


def _product(W: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Of h (b, N, K) complex: Re and Im of W h, (b, C, N)."""
    R, S = W.real.contiguous(), W.imag.contiguous()
    total, difference = R + S, S - R

    def product(h: Tensor) -> tuple[Tensor, Tensor]:
        x, y = h.real.mT, h.imag.mT
        both = R @ (x + y)
        return both - total @ y, both.add_(difference @ x)

    return product


def _rounded_product(W: Tensor, low: torch.dtype) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The same of rounded factors: one product of (Re h, Im h) with (Re, -Im) and (Im, Re) of W."""
    parts = torch.view_as_real(torch.cat((W.conj().resolve_conj(), 1j * W.conj())))
    matrix = parts.flatten(1).to(low)  # (2C, 2K)

    def product(h: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.view_as_real(h).flatten(-2).to(low)  # (b, N, 2K)
        re, im = (matrix @ rows.mT).to(W.real.dtype).chunk(2, dim=1)
        return re, im

    return product
