"""A benchmark of normals by the protocol of PCPNet, from any shapes, and its measures.

Six sets of the same shapes: clean, three levels of noise, and two kinds of uneven density. Of
each cloud the RMSE over the evaluated points, then the mean over the clouds of a set, then the
mean over the sets.

PCPNet: P. Guerrero, Y. Kleiman, M. Ovsjanikov, N. J. Mitra, "PCPNet: Learning Local Shape
Properties from Raw Point Clouds", Computer Graphics Forum 37(2), 2018.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from veckm.data.corrupt import Density, add_noise, gradient_density, stripe_density
from veckm.data.meshes import SUFFIXES, Mesh, normalize, read_mesh, sample_mesh
from veckm.data.sampling import Seed, Shape, check_count, collect, make_generator, uniform

#: The six sets, in the order of the published tables.
SETS = ("none", "low", "med", "high", "stripe", "gradient")

#: Standard deviation of the noise, as a share of the diagonal of the bounding box.
NOISE = {"none": 0.0, "low": 0.0012, "med": 0.006, "high": 0.012, "stripe": 0.0, "gradient": 0.0}


class Surface(Protocol):
    """Anything that can be sampled again and again, such as the solids of ``surfaces``."""

    def sample(self, n: int, seed: Seed = 0) -> Shape:
        """n points, uniform by area, with their normals."""


@dataclass(frozen=True, eq=False)
class LabeledCloud:
    """A cloud with the true normals of its points, and which of them are evaluated.

    Attributes:
        name: of the shape.
        set: one of ``SETS``, or the name that a release gives its own set.
        pos: the points, noise and all.
        normal: the unit normals of the places that the points were drawn from.
        subset: the evaluated points, by number.
        curvature: the principal curvatures there, the larger first; None where unknown.

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

    With the same seed the sets without density have the same points and evaluate the same of
    them, and differ in the size of the noise only.

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
    generator, n, evaluated = make_generator(seed), check_count(n), check_count(evaluated)
    density = _density(source, set, generator)
    shape = _sample(source, n, generator, density)
    if shape.normal is None:
        raise ValueError("the shape has no normals to evaluate with; pass one with normals")
    subset = torch.randperm(n, generator=generator, device=generator.device)[:evaluated]
    pos = add_noise(shape.pos, NOISE[set], generator) if NOISE[set] else shape.pos
    return LabeledCloud(name, set, pos, shape.normal, subset.sort().values, shape.curvature)


def _density(
    source: Mesh | Shape | Surface, set: str, generator: torch.Generator
) -> Density | None:
    """The density of a set, between the ends of the source; None where it is even."""
    if set not in ("stripe", "gradient"):
        return None
    if isinstance(source, Mesh):
        reach = source.vertices[source.faces.reshape(-1)]
    elif isinstance(source, Shape):
        reach = source.pos
    else:
        reach = source.sample(2000, generator).pos
    if set == "stripe":
        return stripe_density(reach, generator)
    return gradient_density(reach, generator)


def _sample(
    source: Mesh | Shape | Surface, n: int, generator: torch.Generator, density: Density | None
) -> Shape:
    """n points of the source, as many in each place as ``density`` says."""
    if isinstance(source, Mesh):
        return sample_mesh(source, n, generator, density)
    if isinstance(source, Shape):
        kept = _thin(source, generator, density)
        if len(kept.pos) < n:
            raise ValueError(
                f"the shape has {len(source.pos)} points, of which {len(kept.pos)} are left at "
                f"this density, fewer than n = {n}; sample it more densely or pass a smaller n"
            )
        shuffled = torch.randperm(len(kept.pos), generator=generator, device=generator.device)
        return _rows(kept, shuffled[:n].to(kept.pos.device))
    if density is None:
        return source.sample(n, generator)

    def trial(m: int) -> tuple[Tensor, ...]:
        kept = _thin(source.sample(m, generator), generator, density)
        return tuple(t for t in (kept.pos, kept.normal, kept.curvature) if t is not None)

    return Shape(*collect(n, trial))


def _thin(shape: Shape, generator: torch.Generator, density: Density | None) -> Shape:
    """The points of a shape that are kept at a density."""
    if density is None:
        return shape
    keep = uniform(generator, len(shape.pos)).to(shape.pos) < density(shape.pos)
    return _rows(shape, keep.nonzero().squeeze(-1))


def _rows(shape: Shape, rows: Tensor) -> Shape:
    """Some of the points of a shape."""
    normal, curvature = (None if t is None else t[rows] for t in (shape.normal, shape.curvature))
    return Shape(shape.pos[rows], normal, curvature)


def load_meshes(folder: str | Path, units: bool = False) -> dict[str, Mesh]:
    """All meshes of a folder by the names of their files, in the order of the names.

    Args:
        folder: has .ply, .off, .obj or .stl files.
        units: keep the units and the origin of the files; otherwise every mesh is centered and its
            bounding box has diagonal 1, which float32 holds best.
    """
    folder = Path(folder)
    paths = sorted(path for path in folder.glob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise FileNotFoundError(f"{folder}: has no meshes ({' '.join(SUFFIXES)})")
    return {p.stem: read_mesh(p) if units else normalize(read_mesh(p)) for p in paths}


def angle_error(
    n: Tensor,  # (M, 3)
    m: Tensor,  # (M, 3)
) -> Tensor:  # (M,)
    r"""Angle between two lines in degrees, from 0 to 90: a normal and its opposite are the same.

    .. math:: \arccos |n \cdot m| = \operatorname{atan2}(|n \times m|, |n \cdot m|)

    of which the second form keeps its digits at small angles and asks for no unit length.

    Shapes:
        - n, m: (M, 3)
        - output: (M,) float64
    """
    if n.shape != m.shape or n.dim() != 2 or n.shape[1] != 3:
        raise ValueError(f"two tensors (M, 3) of normals wanted, got {n.shape} and {m.shape}")
    n, m = n.double(), m.double()
    for name, normals in (("first", n), ("second", m)):
        length = normals.norm(dim=-1)
        if not bool(((length > 0) & length.isfinite()).all()):
            raise ValueError(f"the {name} normals have rows that are zero, NaN or infinite")
    across: Tensor = torch.linalg.vector_norm(torch.linalg.cross(n, m), dim=-1)
    return torch.atan2(across, (n * m).sum(-1).abs()).rad2deg()


def rmse(
    errors: Tensor,  # (M,)
) -> float:
    r"""Root of the mean square of the errors, :math:`\sqrt{\tfrac1M \sum_i e_i^2}`.

    Shapes:
        - errors: (M,)
    """
    _check_errors(errors)
    return float(errors.double().square().mean().sqrt())


def share_below(
    errors: Tensor,  # (M,)
    degrees: float,
) -> float:
    """Share of the errors below ``degrees``, from 0 to 1; PGP in the literature.

    Shapes:
        - errors: (M,)
    """
    _check_errors(errors)
    return float((errors < degrees).double().mean())


def _check_errors(errors: Tensor) -> None:
    if not len(errors):
        raise ValueError("there are no errors to average: no point was evaluated")


def mean_over_sets(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The row of a table: the mean of every set over its clouds, and the mean of those.

    Args:
        scores: of every set one number a cloud, such as its RMSE.

    Returns:
        by set, in the order of ``SETS`` and then of ``scores``, and under ``"mean"`` the mean
        over the sets.
    """
    empty = [name for name, values in scores.items() if not len(values)]
    if empty or not scores:
        raise ValueError(f"no scores for {', '.join(empty) or 'any set'}")
    order = [name for name in SETS if name in scores] + [k for k in scores if k not in SETS]
    row = {name: _mean(scores[name]) for name in order}
    return {**row, "mean": _mean(row.values())}


def _mean(values: Iterable[float]) -> float:
    values = [float(value) for value in values]
    return sum(values) / len(values)
