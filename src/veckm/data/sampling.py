"""What the procedural clouds share: their result, random draws, and rejection sampling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from veckm.inputs import check_count

Seed = int | torch.Generator
#: The fraction of the points, in (0, 1], to keep at each place: (M, 3) -> (M,).
Density = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Shape:
    r"""Points of a known shape, with the exact normals, and curvatures where they are known.

    .. math:: \{(x_k, n_k)\}_{k=1}^{N}, \qquad |n_k| = 1, \qquad
              dn(t_1) = \kappa_1 t_1, \quad dn(t_2) = \kappa_2 t_2, \quad \kappa_1 \ge \kappa_2

    A ball of radius r has the curvatures 1/r and 1/r, a hollow has negative ones, a saddle one of
    either sign, and a plane two zeros.
    """

    pos: Tensor  #: (N, 3) float32, the points
    normal: Tensor  #: (N, 3) float32, outward, of the surface before any noise
    #: (N, 2) float32, the larger first, in one over the unit of ``pos``; None if not known
    curvature: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> Shape:
        """Some of the points, by index or mask."""
        curvature = None if self.curvature is None else self.curvature[rows]
        return Shape(self.pos[rows], self.normal[rows], curvature)


class Surface(ABC):
    """What can be sampled again and again: a mesh or a solid."""

    @abstractmethod
    def sample(self, n: int, seed: Seed = 0, density: Density | None = None) -> Shape:
        """n points with their normals, uniform by area unless there is a density, in random order.

        Args:
            n: number of points.
            seed: an int or a torch.Generator; decides the points, not the surface.
            density: share of the points to keep at each place, (M, 3) -> (M,) in (0, 1]; there
                are still n points in the end.

        Shapes:
            - pos, normal: (n, 3), curvature: (n, 2) of solids
        """

    def extent(self, generator: torch.Generator) -> Tensor:  # (M, 3)
        """Points that show how far the surface extends."""
        return self.sample(2000, generator).pos


def make_generator(seed: Seed) -> torch.Generator:
    """A generator on the CPU: ``seed`` itself if it is one, else one with that seed.

    A generator of another device seeds a new one, since clouds are sampled on the CPU.
    """
    if not isinstance(seed, torch.Generator):
        return torch.Generator().manual_seed(seed)
    if seed.device.type == "cpu":
        return seed
    drawn = torch.randint(2**62, (), generator=seed, device=seed.device)
    return torch.Generator().manual_seed(int(drawn))


def uniform(generator: torch.Generator, *size: int) -> Tensor:
    """Float64 draws from [0, 1)."""
    return torch.rand(size, generator=generator, dtype=torch.float64)


def gaussian(generator: torch.Generator, *size: int) -> Tensor:
    """Float64 draws from N(0, 1)."""
    return torch.randn(size, generator=generator, dtype=torch.float64)


def directions(generator: torch.Generator, n: int) -> Tensor:  # (n, 3) float64
    """Uniform unit vectors: by Archimedes, height and longitude are uniform."""
    z = 2 * uniform(generator, n) - 1
    phi = 2 * torch.pi * uniform(generator, n)
    rho = (1 - z.square()).sqrt()
    return torch.stack((rho * phi.cos(), rho * phi.sin(), z), dim=-1)


def rotation(generator: torch.Generator) -> Tensor:  # (3, 3) float64
    """A uniform rotation: the frame of three Gaussian vectors, made right-handed."""
    q, r = torch.linalg.qr(gaussian(generator, 3, 3))
    q = q * r.diagonal().sign()  # else the signs that QR happens to choose would not be uniform
    frame: Tensor = q * torch.linalg.det(q)
    return frame


def diagonal(pos: Tensor) -> float:  # (N, 3)
    """Length of the diagonal of the bounding box, the unit of noise."""
    return float((pos.amax(0) - pos.amin(0)).double().norm())


def pick(weights: Tensor, draws: Tensor) -> Tensor:  # (F,), (N,) in [0, 1) -> (N,) int64
    """Indices with probability proportional to ``weights``, by inverting the cumulative sum."""
    total = weights.cumsum(0)
    # right=True never picks a weight of zero; the clamp is for a draw that rounds up.
    return torch.searchsorted(total, draws * total[-1], right=True).clamp_max(len(weights) - 1)


def sample_shape(
    n: int,
    seed: Seed,
    trial: Callable[[int, torch.Generator], tuple[Tensor, ...]],
    chunk: int,
    otherwise: str,
) -> Shape:
    """The first n points that repeated trials keep: rejection sampling.

    A trial draws so many candidates and returns positions, normals and curvatures, if known, of
    those that it keeps; ``chunk`` at a time fit into the cache. ``otherwise`` is the reason given
    where next to nothing is kept.
    """
    generator, n = make_generator(seed), check_count(n, "n")
    parts: list[tuple[Tensor, ...]] = []
    kept = tried = 0
    while kept < n:
        # The first trial finds out how many are kept; where all are, it is also the last.
        want = (n - kept) * 1.05 * tried / max(kept, 1) + 64 if tried else n
        m = min(chunk, int(want))
        parts.append(trial(m, generator))
        kept, tried = kept + len(parts[-1][0]), tried + m
        if tried > 200_000 and kept * 10_000 < tried:
            raise ValueError(f"only {kept} of {tried} candidates were kept; {otherwise}")
    return finish(*(torch.cat(column)[:n] for column in zip(*parts, strict=True)))


def finish(pos: Tensor, normal: Tensor, curvature: Tensor | None = None) -> Shape:
    """The float64 work as a float32 :class:`Shape`."""
    return Shape(pos.float(), normal.float(), None if curvature is None else curvature.float())
