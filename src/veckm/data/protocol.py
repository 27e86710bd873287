"""Clouds with known normals, in the six sets of the PCPNet benchmark.

The sets have the same shapes: clean, with three levels of noise, and with two kinds of uneven
density.

PCPNet: P. Guerrero, Y. Kleiman, M. Ovsjanikov, N. J. Mitra, "PCPNet: Learning Local Shape
Properties from Raw Point Clouds", Computer Graphics Forum 37(2), 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from veckm.data.corrupt import Density, add_noise, gradient_density, stripe_density
from veckm.data.meshes import SUFFIXES, Mesh, normalize, read_mesh, sample_mesh
from veckm.data.sampling import Seed, Shape, make_generator, uniform
from veckm.inputs import check_count

#: The six sets, in the order of the published tables.
SETS = ("none", "low", "med", "high", "stripe", "gradient")

#: Standard deviation of the noise, as a fraction of the diagonal of the bounding box.
NOISE = {"none": 0.0, "low": 0.0012, "med": 0.006, "high": 0.012, "stripe": 0.0, "gradient": 0.0}


class Surface(Protocol):
    """Anything that can be sampled again and again, such as a :class:`veckm.data.solids.Solid`."""

    def sample(self, n: int, seed: Seed = 0, density: Density | None = None) -> Shape:
        """n points, uniform by area times the density, with their normals."""


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
    source: Mesh | Shape | Surface,
    set: str,
    seed: Seed = 0,
    n: int = 100_000,
    evaluated: int = 5_000,
    name: str = "",
) -> LabeledCloud:
    """A cloud of one of the sets from a mesh, a surface, or the points of a shape.

    With the same seed the sets with even density have the same points and evaluate the same of
    them, and differ in the noise only.

    Args:
        source: what to sample. Of a ``Shape`` n of its own points are taken; the sets with uneven
            density need it to have more than twice as many.
        set: one of ``SETS``.
        seed: an int or a torch.Generator.
        n: number of points.
        evaluated: number of points to evaluate, at most n; all if there are fewer.
        name: of the shape.

    Shapes:
        - pos, normal: (n, 3), subset: (min(evaluated, n),), curvature: (n, 2) if known
    """
    if set not in SETS:
        raise ValueError(f"set must be one of {', '.join(SETS)}, got {set!r}")
    generator, n = make_generator(seed), check_count(n, "n")
    evaluated = check_count(evaluated, "evaluated")
    density = None
    if set in ("stripe", "gradient"):
        make_density = stripe_density if set == "stripe" else gradient_density
        density = make_density(_extent(source, generator), generator)
    shape = _sample(source, n, generator, density)
    subset = torch.randperm(n, generator=generator, device=generator.device)[:evaluated]
    pos = add_noise(shape.pos, NOISE[set], generator) if NOISE[set] else shape.pos
    return LabeledCloud(name, set, pos, shape.normal, subset.sort().values, shape.curvature)


def _extent(source: Mesh | Shape | Surface, generator: torch.Generator) -> Tensor:  # (M, 3)
    """Points that show how far the source extends."""
    if isinstance(source, Mesh):
        return source.vertices[source.faces.reshape(-1)]
    return source.pos if isinstance(source, Shape) else source.sample(2000, generator).pos


def _sample(
    source: Mesh | Shape | Surface, n: int, generator: torch.Generator, density: Density | None
) -> Shape:
    """n points of the source with the given density."""
    if isinstance(source, Mesh):
        return sample_mesh(source, n, generator, density)
    if isinstance(source, Shape):
        kept = source
        if density is not None:
            kept = source[uniform(generator, len(source.pos)).to(source.pos) < density(source.pos)]
        if len(kept.pos) < n:
            raise ValueError(
                f"the shape has {len(source.pos)} points, of which {len(kept.pos)} are left at "
                f"this density, fewer than n = {n}; sample it more densely or pass a smaller n"
            )
        shuffled = torch.randperm(len(kept.pos), generator=generator, device=generator.device)
        return kept[shuffled[:n].to(kept.pos.device)]
    return source.sample(n, generator, density)


def load_meshes(folder: str | Path, units: bool = False) -> dict[str, Mesh]:
    """All meshes of a folder by the names of their files, sorted by name.

    Args:
        folder: has .ply, .off, .obj or .stl files.
        units: keep the units and the origin of the files; otherwise every mesh is centered and its
            bounding box has diagonal 1, where float32 is most exact.
    """
    folder = Path(folder)
    paths = sorted(path for path in folder.glob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise FileNotFoundError(f"{folder}: has no meshes ({' '.join(SUFFIXES)})")
    return {p.stem: read_mesh(p) if units else normalize(read_mesh(p)) for p in paths}
