"""Clouds with known normals, in the six sets of the PCPNet benchmark.

The sets have the same shapes: clean, with three levels of noise, and with two kinds of uneven
density.

PCPNet: P. Guerrero, Y. Kleiman, M. Ovsjanikov, N. J. Mitra, "PCPNet: Learning Local Shape
Properties from Raw Point Clouds", Computer Graphics Forum 37(2), 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veckm.data.corrupt import add_noise, gradient_density, stripe_density
from veckm.data.sampling import Seed, Surface, make_generator
from veckm.inputs import check_count

#: The six sets, in the order of the published tables.
SETS = ("none", "low", "med", "high", "stripe", "gradient")

#: Standard deviation of the noise, as a fraction of the diagonal of the bounding box.
NOISE = {"none": 0.0, "low": 0.0012, "med": 0.006, "high": 0.012, "stripe": 0.0, "gradient": 0.0}


@dataclass(frozen=True, eq=False)
class LabeledCloud:
    """A cloud with the true normals of its points, and the indices of the evaluated ones.

    Attributes:
        name: of the shape.
        set: one of ``SETS``, or the name that a release gives its own set.
        pos: the points, noise included.
        normal: the unit normals of the surface where the points were sampled.
        subset: indices of the evaluated points.
        curvature: the principal curvatures, the larger first; None where unknown.

    Shapes:
        - pos, normal: (N, 3) float32
        - subset: (M,) int64
        - curvature: (N, 2) float32
    """

    name: str
    set: str
    pos: Tensor
    normal: Tensor
    subset: Tensor
    curvature: Tensor | None = None


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
    return LabeledCloud(name, set, pos, shape.normal, subset.sort().values, shape.curvature)
