"""Local moments: density, mean and covariance of the neighborhood of every point, at any scale.

    m_0 = sum_j w_j window(x_j - q)              how much lies around q
    m_1 = sum_j w_j window(x_j - q) (x_j - q)    where it lies
    m_2 = sum_j w_j window(x_j - q) (x_j - q)(x_j - q)^T

The kernel operator applied to 1, x and x x^T: weighted PCA in linear time, without neighbor lists.
Polynomials about the origin of the cloud are summed in float64 and moved to each query afterwards:
what is left of the 16 digits is far more than float32 has, however large the coordinates are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from veckm.engines import Gaussian, Window


@dataclass(frozen=True)
class Moments:
    """Weighted moments about each query; the leading shape is that of the queries."""

    weight: Tensor  # (...,) sum of the weights: the effective number of points around
    mean: Tensor  # (..., D_in) of x_j - q: from the query to the middle of what is around it
    covariance: Tensor  # (..., D_in, D_in)
    window: Window

    @property
    def density(self) -> Tensor:
        """Points per volume: the kernel density estimate m_0 / volume of the window."""
        in_dim = self.mean.shape[-1]
        if isinstance(self.window, Gaussian):
            volume = math.sqrt(2 * math.pi / self.window.beta**2) ** in_dim
        else:
            ball = math.pi ** (in_dim / 2) / math.gamma(in_dim / 2 + 1)
            volume = ball * self.window.radius**in_dim
        return self.weight / volume


def polynomials(x: Tensor, weights: Tensor | None) -> Tensor:  # (N, D), (N,)
    """(N, 1 + D + D (D + 1) / 2): w [1, x, x_i x_j for i <= j] in float64."""
    x = x.double()
    i, j = torch.triu_indices(x.shape[1], x.shape[1], device=x.device)
    powers = torch.cat([torch.ones_like(x[:, :1]), x, x[:, i] * x[:, j]], dim=1)
    return powers if weights is None else powers * weights.double()[:, None]


def from_sums(
    sums: Tensor,  # (M, 1 + D + D (D + 1) / 2) float64
    queries: Tensor,  # (M, D)
) -> tuple[Tensor, Tensor, Tensor]:  # (M,), (M, D), (M, D, D) in the dtype of the queries
    """Weight, mean and covariance about each query from sums of polynomials about the origin."""
    in_dim, dtype = queries.shape[1], queries.dtype
    i, j = torch.triu_indices(in_dim, in_dim, device=sums.device)
    place = torch.zeros(in_dim, in_dim, dtype=torch.int64, device=sums.device)
    place[i, j] = place[j, i] = torch.arange(len(i), device=sums.device)
    # The reciprocal of a subnormal would overflow to infinity.
    mean = sums / sums[:, :1].clamp_min(1e6 * torch.finfo(dtype).tiny)
    some, first, second = mean[:, :1], mean[:, 1 : 1 + in_dim], mean[:, 1 + in_dim :]
    packed = (second - first[:, i] * first[:, j]).to(dtype)
    covariance = packed.index_select(1, place.flatten()).view(-1, in_dim, in_dim)
    return sums[:, 0].to(dtype), (first - queries * some).to(dtype), covariance
