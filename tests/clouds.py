"""Small clouds of the kinds that matter to an engine, in any number of dimensions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

Cloud = Callable[[int, int, Generator], Tensor]  # n, in_dim, generator -> (n, in_dim) float64


def surface(n: int, in_dim: int, generator: Generator) -> Tensor:
    """On the unit sphere; on a segment in one dimension."""
    x = torch.randn(n, in_dim, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=-1) if in_dim > 1 else volume(n, 1, generator)


def volume(n: int, in_dim: int, generator: Generator) -> Tensor:
    """Even in the cube [-1, 1]^in_dim."""
    return 2 * torch.rand(n, in_dim, generator=generator, dtype=torch.float64) - 1


def clusters(n: int, in_dim: int, generator: Generator) -> Tensor:
    """Twelve tight heaps, most of space empty."""
    heap = torch.randint(12, (n,), generator=generator)
    spread = torch.randn(n, in_dim, generator=generator, dtype=torch.float64)
    return volume(12, in_dim, generator)[heap] + 0.05 * spread


def frequencies(in_dim: int, dim: int, scale: float, generator: Generator) -> Tensor:
    """(in_dim, dim) float64 with entries N(0, scale^2), without the package's own draw."""
    return scale * torch.randn(in_dim, dim, generator=generator, dtype=torch.float64)


CLOUDS: dict[str, Cloud] = {"surface": surface, "volume": volume, "clusters": clusters}
