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
        # Below the least normal number exp takes eight times as long, and is taken for zero anyway.
        least, rate = math.log(torch.finfo(squared.dtype).tiny), -0.5 * self.beta**2
        if inplace:
            return no_subnormals(squared.mul_(rate).clamp_min_(least).exp_(), inplace=True)
        return no_subnormals(torch.exp((squared * rate).clamp_min(least)))

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


def no_subnormals(values: Tensor, inplace: bool = False) -> Tensor:
    """Zero for what makes subnormal products with phasors: they slow matrix products down."""
    return functional.threshold(values, 1e8 * torch.finfo(values.dtype).tiny, 0.0, inplace)
