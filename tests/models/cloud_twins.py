"""Slow, obvious twins of the operations, for one cloud, point by point."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def squared(points: Tensor, q: Tensor) -> Tensor:  # (N, D), (D,) -> (N,)
    return ((points - q) ** 2).sum(-1)


def knn_twin(points: Tensor, queries: Tensor, k: int) -> Tensor:
    return torch.stack([squared(points, q).argsort()[:k] for q in queries])


def ball_twin(points: Tensor, queries: Tensor, radius: float, k: int) -> Tensor:
    rows = []
    for q in queries:
        far = squared(points, q)
        order = [int(i) for i in far.argsort()]
        row = [i for i in order if far[i] <= radius**2][:k] or order[:1]
        rows.append(row + [order[0]] * (k - len(row)))
    return torch.tensor(rows)


def ball_in_order_twin(points: Tensor, queries: Tensor, radius: float, k: int) -> Tensor:
    rows = []
    for q in queries:
        far = squared(points, q)
        row = [i for i in range(len(points)) if far[i] <= radius**2][:k] or [int(far.argmin())]
        rows.append(row + [row[0]] * (k - len(row)))
    return torch.tensor(rows)


def interpolate_twin(values: Tensor, points: Tensor, queries: Tensor, k: int = 3) -> Tensor:
    rows = []
    for q in queries:
        far = squared(points, q)
        near = far.argsort()[:k]
        w = 1 / (far[near] + 1e-8)
        rows.append((w[:, None] * values[near]).sum(0) / w.sum())
    return torch.stack(rows)


def farthest_twin(pos: Tensor, count: int) -> Tensor:
    picks = [int(squared(pos, pos.mean(0)).argmax())]
    while len(picks) < count:
        gap = torch.stack([squared(pos, pos[i]) for i in picks]).amin(0)
        gap[picks] = -1
        picks.append(int(gap.argmax()))
    return torch.tensor(picks)


def over_batch(twin: Callable[..., Tensor], *clouds: Tensor, **options: object) -> Tensor:
    """A twin for one cloud, on each of a dense batch."""
    return torch.stack([twin(*one, **options) for one in zip(*clouds, strict=True)])
