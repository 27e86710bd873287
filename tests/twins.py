"""Slow, obvious twins: the encoding of one cloud written out pair by pair, for any engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def by_definition(
    pos: Tensor,  # (N, D_in)
    A: Tensor,  # (D_in, D)
    *,
    beta: float | None = None,
    radius: float | None = None,
    window: str = "gaussian",
    norm: str | None = "unit",
    queries: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """sum_j w_j window(x_j - q) exp(i (x_j - q) A): no factorization, no centring."""
    q = pos if queries is None else queries
    z = pos[None] - q[:, None]  # (M, N, D_in)
    if radius is None:
        assert beta is not None
        radius = 1.8 / beta
    squared = z.square().sum(-1)
    gaussian = torch.exp(-squared * (1.8 / radius) ** 2 / 2)
    w = gaussian if window == "gaussian" else (squared.sqrt() < radius).to(squared)
    w = w if weights is None else w * weights
    angle = z @ A.to(z)
    return normed((w[..., None] * torch.complex(angle.cos(), angle.sin())).sum(1), w, norm)


def by_random_features(
    pos: Tensor,  # (N, D_in)
    A: Tensor,  # (D_in, D)
    B: Tensor,  # (D_in, p)
    *,
    norm: str | None = "unit",
    queries: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Theorem 2: J-hat = Re(B B^H) / p, G = (J-hat (w E)) ./ E(q)."""

    def features(x: Tensor, frequencies: Tensor) -> Tensor:
        return torch.exp(1j * (x @ frequencies.to(x)))

    q = pos if queries is None else queries
    w = (features(q, B) @ features(pos, B).mH).real / B.shape[1]  # (M, N)
    w = w if weights is None else w * weights
    return normed((w + 0j) @ features(pos, A) / features(q, A), w, norm)


def normed(sums: Tensor, w: Tensor, norm: str | None) -> Tensor:
    """The three norms, by their definition."""
    if norm == "unit":
        return sums / torch.linalg.vector_norm(sums, dim=-1, keepdim=True) * sums.shape[-1] ** 0.5
    return sums / w.sum(1, keepdim=True) if norm == "mean" else sums


def over_clouds(twin: Callable[..., Tensor], pos: Tensor, *args: Tensor, **options: Any) -> Tensor:
    """A twin for one cloud, applied to each of several."""
    batch, queries = options.pop("batch", None), options.get("queries")
    if batch is not None:
        return torch.cat([twin(pos[batch == c], *args, **options) for c in batch.unique()])
    if pos.dim() == 2:
        return twin(pos, *args, **options)
    asked = pos if queries is None else queries
    pairs = zip(pos, asked, strict=True)
    return torch.stack([twin(x, *args, **{**options, "queries": q}) for x, q in pairs])
