"""What the procedural clouds share: the result, the generator, and draws on the sphere."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Seed = int | torch.Generator


@dataclass(frozen=True, eq=False)
class Shape:
    r"""Points of a known shape, with the exact normals and curvatures where it has them.

    .. math:: \{(x_k, n_k)\}_{k=1}^{N}, \qquad |n_k| = 1, \qquad
              dn(t_1) = \kappa_1 t_1, \quad dn(t_2) = \kappa_2 t_2, \quad \kappa_1 \ge \kappa_2

    The curvatures are those of the outward normal's turning: a ball of radius r has 1/r twice,
    a hollow is negative, a saddle has one of either sign and a plane two zeros.

    Attributes:
        pos: the points.
        normal: the outward unit normal of the surface that each point was drawn from, before any
            noise; None for a shape without a surface.
        curvature: the two principal curvatures there, the larger first, in one over the unit of
            ``pos``; None where they are not known.

    Shapes:
        - pos: (N, 3) float32
        - normal: (N, 3) float32
        - curvature: (N, 2) float32
    """

    pos: Tensor
    normal: Tensor | None = None
    curvature: Tensor | None = None


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


def rotation(generator: torch.Generator) -> Tensor:
    """A uniform rotation: the frame of three Gaussian vectors, made right-handed.

    Shapes:
        - output: (3, 3) float64
    """
    q, r = torch.linalg.qr(gaussian(generator, 3, 3))
    q = q * r.diagonal().sign()  # else the signs that QR happens to choose would not be uniform
    turn: Tensor = q * torch.linalg.det(q)
    return turn


def collect(
    n: int,
    trial: Callable[[int], tuple[Tensor, ...]],
    most: int = 1 << 17,
    otherwise: str = "the density is too low",
) -> tuple[Tensor, ...]:
    """The first n rows of what repeated trials keep.

    Args:
        n: number of rows wanted.
        trial: draws the number of candidates it is given and returns those that it keeps.
        most: candidates at a time, so that what lies between fits into the cache.
        otherwise: what is wrong where next to nothing is kept.

    Shapes:
        - output: as many tensors as a trial returns, each (n, ...)
    """
    parts: list[tuple[Tensor, ...]] = []
    kept = tried = 0
    while kept < n:
        # The first trial finds out how many are kept; where all are, it is also the last.
        want = (n - kept) * 1.05 * tried / max(kept, 1) + 64 if tried else n
        m = min(most, int(want))
        parts.append(trial(m))
        kept, tried = kept + len(parts[-1][0]), tried + m
        if tried > 200_000 and kept * 10_000 < tried:
            raise ValueError(f"only {kept} of {tried} candidates were kept; {otherwise}")
    return tuple(torch.cat(column)[:n] for column in zip(*parts, strict=True))


def finish(pos: Tensor, normal: Tensor | None = None, curvature: Tensor | None = None) -> Shape:
    """The float64 work as a float32 :class:`Shape`."""
    normal = None if normal is None else normal.float()
    return Shape(pos.float(), normal, None if curvature is None else curvature.float())
