"""Windows: how a neighbor's weight falls with its distance from the query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy.stats import chi2
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Gaussian:
    """w(z) = exp(-beta^2 |z|^2 / 2): J-hat in the paper."""

    beta: float
    name: ClassVar[str] = "gaussian"

    def __call__(self, squared: Tensor, inplace: bool = False) -> Tensor:
        rate = -0.5 * self.beta**2
        if not inplace:
            return torch.exp(squared * rate)
        # Below the least normal number exp takes 35 times as long, and is taken for zero anyway.
        least = math.log(2 * torch.finfo(squared.dtype).tiny)
        return no_subnormals(squared.mul_(rate).clamp_min_(least).exp_())

    @property
    def rate(self) -> float:
        """r in dw/dz = -r z w(z)."""
        return self.beta**2

    def reach(self, eps: float, in_dim: int) -> float:
        """The radius outside which lies the share `eps` of the window's mass (chi distribution)."""
        return math.sqrt(float(chi2.isf(min(eps, 0.5), in_dim))) / self.beta


@dataclass(frozen=True)
class Ball:
    """w(z) = 1 where |z| < radius, else 0: J in the paper."""

    radius: float
    name: ClassVar[str] = "ball"

    def __call__(self, squared: Tensor, inplace: bool = False) -> Tensor:
        inside = squared < self.radius**2
        return squared.copy_(inside) if inplace else inside.to(squared.dtype)

    @property
    def rate(self) -> float:
        """Zero: the window is constant but for its edge."""
        return 0.0

    def reach(self, eps: float, in_dim: int) -> float:  # noqa: ARG002 - a ball ends where it ends
        return self.radius


Window = Gaussian | Ball


def no_subnormals(values: Tensor) -> Tensor:
    """Zero, in place, for what makes subnormal products with phasors: they slow products down."""
    return functional.threshold(values, 1e8 * torch.finfo(values.dtype).tiny, 0.0, inplace=True)


class Scratch:
    """Memory of one thread for squared distances: fresh memory costs more than they do."""

    def __init__(self, like: Tensor) -> None:
        self.held = like.new_empty(2, 0)

    def pair(self, n: int, m: int) -> tuple[Tensor, ...]:  # (n, m), (n, m)
        """Room for two tables."""
        if self.held.shape[1] < n * m:
            self.held = self.held.new_empty(2, n * m)
        return self.held[:, : n * m].view(2, n, m).unbind()

    def gaussian(self, y: Tensor, x: Tensor, beta: float) -> Tensor:  # (n, D_in + 2), (m, D_in)
        """exp(-beta^2 |y - x|^2 / 2), (n, m), from `extended` y: the exponent is one product, whose
        rounding grows with the distances from the origin. Valid until the next call."""
        square = x.square().sum(1, keepdim=True).mul_(-0.5 * beta**2)
        right = torch.cat((x, torch.ones_like(square), square), 1)
        return torch.mm(y, right.t(), out=self.pair(len(y), len(x))[0]).exp_()

    def squared(self, y: Tensor, x: Tensor) -> Tensor:  # (n, D_in), (m, D_in) -> (n, m)
        """|y - x|^2 for all pairs, by differences: no cancellation. Valid until the next call."""
        out, step = self.pair(len(y), len(x))
        out.zero_()
        for b, a in zip(x.t().contiguous(), y.t(), strict=True):
            torch.sub(a[:, None], b, out=step)
            out.addcmul_(step, step)
        return out


def extended(y: Tensor, beta: float) -> Tensor:  # (n, D_in) -> (n, D_in + 2)
    """The rows of :meth:`Scratch.gaussian`."""
    square = y.square().sum(1, keepdim=True).mul_(-0.5 * beta**2)
    return torch.cat((beta**2 * y, square, torch.ones_like(square)), 1)
