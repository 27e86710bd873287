"""Noise and uneven density as scanners make them, and the six sets of the PCPNet benchmark.

The sets have the same shapes: clean, with three levels of noise, and with two kinds of uneven
density.

PCPNet: P. Guerrero, Y. Kleiman, M. Ovsjanikov, N. J. Mitra, "PCPNet: Learning Local Shape
Properties from Raw Point Clouds", Computer Graphics Forum 37(2), 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from veckm.data.sampling import (
    Density,
    Seed,
    Surface,
    diagonal,
    directions,
    gaussian,
    make_generator,
    uniform,
)
from veckm.inputs import check_count

#: The six sets, in the order of the published tables.
SETS = ("none", "low", "med", "high", "stripe", "gradient")

#: Standard deviation of the noise, as a fraction of the diagonal of the bounding box.
NOISE = {"none": 0.0, "low": 0.0012, "med": 0.006, "high": 0.012, "stripe": 0.0, "gradient": 0.0}


@dataclass(frozen=True, eq=False)
class LabeledCloud:
    """A cloud with the true normals of its points, and the indices of the evaluated ones."""

    name: str  #: of the shape
    set: str  #: one of ``SETS``, or the name that a release gives its own set
    pos: Tensor  #: (N, 3) float32, noise included
    normal: Tensor  #: (N, 3) float32, of the surface where the points were sampled
    subset: Tensor  #: (M,) int64, indices of the evaluated points
    curvature: Tensor | None = None  #: (N, 2) float32, the larger first; None if not known
    clean: Tensor | None = None  #: (N, 3) float32, the points without noise; None if not known


def make_cloud(
    source: Surface,
    set: str,
    seed: Seed = 0,
    n: int = 100_000,
    evaluated: int = 5_000,
    name: str = "",
) -> LabeledCloud:
    """A cloud of one of the sets from a mesh or a solid.

    With the same seed the sets with even density have the same points and evaluate the same of
    them, and differ in the noise only.

    Args:
        source: what to sample.
        set: one of ``SETS``.
        seed: an int or a torch.Generator.
        n: number of points.
        evaluated: number of points to evaluate; all if there are fewer.
        name: of the shape.

    Shapes:
        - pos, normal: (n, 3), subset: (min(evaluated, n),), curvature: (n, 2) if known
    """
    if set not in SETS:
        raise ValueError(f"set must be one of {', '.join(SETS)}, got {set!r}")
    generator = make_generator(seed)
    density = None
    if set in ("stripe", "gradient"):
        make_density = stripe_density if set == "stripe" else gradient_density
        density = make_density(source.extent(generator), generator)
    shape = source.sample(n, generator, density)
    subset = torch.randperm(n, generator=generator)[: check_count(evaluated, "evaluated")]
    pos = add_noise(shape.pos, NOISE[set], generator) if NOISE[set] else shape.pos
    subset = subset.sort().values
    return LabeledCloud(name, set, pos, shape.normal, subset, shape.curvature, shape.pos)


def add_noise(pos: Tensor, share: float, seed: Seed = 0) -> Tensor:
    r"""Points with isotropic Gaussian noise.

    .. math:: x' = x + s\, d\, \xi, \qquad \xi \sim N(0, I), \qquad
              d = \text{diagonal of the bounding box}

    Args:
        pos: the points.
        share: s, the standard deviation along each axis as a fraction of d, for example 0.006.
        seed: an int or a torch.Generator. The same seed gives the same directions at every share.

    Shapes:
        - pos: (N, 3)
        - output: (N, 3)
    """
    if not (math.isfinite(share) and share >= 0):
        raise ValueError(f"share of noise must be a number from 0 up, got {share}")
    noise = gaussian(make_generator(seed), *pos.shape).to(pos)
    return pos + share * diagonal(pos) * noise


def gradient_density(pos: Tensor, seed: Seed = 0, least: float = 0.05) -> Density:
    r"""Density that falls linearly along a random direction, as with distance from a scanner.

    .. math:: \rho(x) = 1 - (1 - \rho_0)\, t(x)

    with t from 0 at one end of the shape to 1 at the other.

    Args:
        pos: points that show how far the shape extends: its vertices, or any sample of it.
        seed: an int or a torch.Generator; decides the direction.
        least: rho_0, the fraction kept at the sparse end, in (0, 1].
    """
    along = _ramp(pos, least, make_generator(seed))
    return lambda x: (1 - (1 - least) * along(x)).clamp(least, 1)


def stripe_density(pos: Tensor, seed: Seed = 0, least: float = 0.1, bands: int = 8) -> Density:
    r"""Alternating dense and sparse bands across a random direction, as with occlusion.

    .. math:: \rho(x) = 1 \text{ or } \rho_0 \text{ by the parity of }
              \lfloor 2 b\, t(x) + \phi \rfloor

    with t from 0 at one end of the shape to 1 at the other, and a random phase.

    Args:
        pos: points that show how far the shape extends: its vertices, or any sample of it.
        seed: an int or a torch.Generator; decides the direction and the phase.
        least: rho_0, the fraction kept in the sparse bands, in (0, 1].
        bands: b, the number of dense bands, each followed by a sparse one of the same width.
    """
    check_count(bands, "bands")
    generator = make_generator(seed)
    along = _ramp(pos, least, generator)
    phase = 2 * float(uniform(generator, 1))

    def density(x: Tensor) -> Tensor:
        odd = (2 * bands * along(x) + phase).floor() % 2
        return torch.where(odd == 1, x.new_tensor(least), x.new_tensor(1.0))

    return density


def _ramp(pos: Tensor, least: float, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    """From 0 to 1 along a random direction, between the ends of ``pos`` (N, 3)."""
    if not 0 < least <= 1:
        raise ValueError(f"least is the share of points kept, above 0 and at most 1, got {least}")
    u = directions(generator, 1)[0].to(pos)
    projected = pos @ u
    low, high = float(projected.min()), float(projected.max())
    span = (high - low) or 1.0  # a single point has no far end
    return lambda x: (x @ u.to(x) - low) / span
