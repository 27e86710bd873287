"""What the procedural clouds share: the result, the generator, and draws on the sphere."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import Tensor

Seed = int | torch.Generator


@dataclass(frozen=True, eq=False)
class Shape:
    r"""Points of a known shape, with the exact normals where it has them.

    .. math:: \{(x_k, n_k)\}_{k=1}^{N}, \qquad |n_k| = 1

    Attributes:
        pos: the points.
        normal: the outward unit normal of the surface that each point was drawn from, before any
            noise; None for a shape without a surface.

    Shapes:
        - pos: (N, 3) float32
        - normal: (N, 3) float32
    """

    pos: Tensor
    normal: Tensor | None = None


def make_generator(seed: Seed) -> torch.Generator:
    """``seed`` itself if it is a generator, else a new generator with that seed on the CPU."""
    if isinstance(seed, torch.Generator):
        return seed
    return torch.Generator().manual_seed(seed)


def check_count(n: int) -> int:
    """``n`` if it is a whole number of at least 1; raises otherwise."""
    try:
        count = operator.index(n)
    except TypeError:
        raise TypeError(f"n is a number of points, got {n!r}; pass a whole number") from None
    if count < 1:
        raise ValueError(f"n is a number of points, got {count}; ask for at least 1")
    return count


def check_positive(name: str, value: float) -> None:
    """Raise a ValueError unless ``value`` is above zero."""
    if not value > 0:
        raise ValueError(f"{name} must be above zero, got {value}")


def uniform(generator: torch.Generator, *size: int) -> Tensor:
    """Float64 draws from [0, 1), on the generator's device.

    Shapes:
        - output: (\\*size)
    """
    return torch.rand(size, generator=generator, device=generator.device, dtype=torch.float64)


def gaussian(generator: torch.Generator, *size: int) -> Tensor:
    """Float64 draws from N(0, 1), on the generator's device.

    Shapes:
        - output: (\\*size)
    """
    return torch.randn(size, generator=generator, device=generator.device, dtype=torch.float64)


def directions(generator: torch.Generator, n: int) -> Tensor:
    r"""Uniform unit vectors, by Archimedes: z and the longitude are uniform.

    .. math:: u = (\sqrt{1 - z^2} \cos\phi, \sqrt{1 - z^2} \sin\phi, z), \quad
              z \sim U(-1, 1), \quad \phi \sim U(0, 2\pi)

    Shapes:
        - output: (n, 3) float64
    """
    z = 2 * uniform(generator, n) - 1
    phi = 2 * torch.pi * uniform(generator, n)
    rho = (1 - z.square()).sqrt()
    return torch.stack((rho * phi.cos(), rho * phi.sin(), z), dim=-1)


def finish(pos: Tensor, normal: Tensor | None = None) -> Shape:
    """The float64 work as a float32 :class:`Shape`."""
    return Shape(pos.float(), None if normal is None else normal.float())
