r"""Named numbers of the surroundings of every point, for random forests and the like.

With the eigenvalues l_1 >= l_2 >= l_3 and the eigenvectors of the covariance of the points around,
weighted by a Gaussian window of 1.8 / radius = beta, e_i = l_i / (l_1 + l_2 + l_3), n the normal
and m the mean of the points relative to the query:

    linearity (l_1 - l_2) / l_1         planarity (l_2 - l_3) / l_1     scattering l_3 / l_1
    anisotropy (l_1 - l_3) / l_1        omnivariance (e_1 e_2 e_3)^(1/3)
    eigenentropy -sum e_i log e_i       surface_variation e_3
    verticality 1 - |n . up|            curvature beta^2 |m . n|, the mean curvature
    density sum w beta^2 / (2 pi), points per area of a surface

They are moments of the kernel operator: linear in the number of points at every radius. The
invariants of the encoding (:func:`veckm.describe`, about the vertical axis or to any rotation) and
the height above the lowest points nearby stand beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from veckm.descriptors import Descriptor
from veckm.frequencies import suggest_radius
from veckm.functional import moments
from veckm.inputs import check_eps, check_points, check_positive
from veckm.parallel import share, workers
from veckm.sizes import make_window
from veckm.tasks.normals import eigen

#: Columns of every radius, before those of the encoding.
EIGEN_COLUMNS = (
    "linearity", "planarity", "scattering", "anisotropy", "omnivariance", "eigenentropy",
    "surface_variation", "verticality", "curvature", "density",
)  # fmt: skip
HEIGHT = "height"
Invariants = Literal["gravity", "rotation", "none"]

#: Shells and degree of the invariants of the encoding: few numbers, smooth ones.
_SHELLS, _DEGREE = (1.0, 2.5), 2
#: Neighbors within the smallest of the suggested radii, and the ratios of these.
_NEIGHBORS, _RATIOS = 32, (1.0, 2.0, 4.0)
#: Side of the cells whose lowest points are the ground, in units of the largest radius.
_CELL = 4.0
_TINY = 1e-12
#: Rows whose eigenvectors are computed at once: they stay in cache.
_ROWS = 4096
#: Points in a cell of side radius, root mean square, from which on the grid is faster.
_CROWDED = 20.0
#: One number for the three of a cell.
_CELL_CODE = torch.tensor([1 << 42, 1 << 21, 1])


@dataclass(frozen=True)
class FeatureConfig:
    """Which features.

    Attributes:
        radii: sizes of the windows, in the units of the cloud.
        invariants: of the encoding: about the vertical axis, to any rotation, or none.
        height: the height above the lowest points nearby; the cloud must have z upwards.
        eps: mean relative error of the sums.
    """

    radii: tuple[float, ...]
    invariants: Invariants = "gravity"
    height: bool = True
    eps: float = 1e-2

    def __post_init__(self) -> None:
        if not self.radii:
            raise ValueError("radii is empty: give at least one radius")
        for radius in self.radii:
            check_positive(radius, "radii")
        if len(set(self.radii)) < len(self.radii):
            raise ValueError(f"radii must differ from each other, got {self.radii}")
        if self.invariants not in get_args(Invariants):
            raise ValueError(
                f"invariants must be one of {get_args(Invariants)}, got {self.invariants!r}"
            )
        check_eps(self.eps, torch.float32)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all features, in their order: ``planarity_0.5`` is that of radius 0.5."""
        named = [*EIGEN_COLUMNS, *(f"veckm{k}" for k in range(self._invariant_count))]
        each = [f"{name}_{radius:g}" for radius in self.radii for name in named]
        return (*each, HEIGHT) if self.height else tuple(each)

    @property
    def cell(self) -> float:
        """Side of the cells whose lowest points are the ground."""
        return _CELL * max(self.radii)

    @property
    def reach(self) -> float:
        """How far a feature depends on other points, but for the height."""
        return max(make_window("gaussian", None, r).reach(self.eps, 3) for r in self.radii)

    def descriptor(self, radius: float) -> Descriptor:
        """The encoding's part of the features of a radius."""
        options = {"shells": _SHELLS, "degree": _DEGREE, "density": False, "eps": self.eps}
        return Descriptor(radius, **options)  # type: ignore[arg-type]

    @property
    def _invariant_count(self) -> int:
        if self.invariants == "none":
            return 0
        one = torch.zeros(1, 3)
        axis = torch.tensor([0.0, 0.0, 1.0]) if self.invariants == "gravity" else None
        return int(self.descriptor(1.0)(one, axis=axis).shape[-1])


def suggest_radii(pos: Tensor) -> tuple[float, ...]:  # (N, 3)
    """Three radii from the density of the cloud, each twice the previous one."""
    radius = suggest_radius(pos, neighbors=_NEIGHBORS)
    return tuple(float(f"{ratio * radius:.3g}") for ratio in _RATIOS)


def features(
    pos: Tensor,  # (N, 3)
    radii: float | Sequence[float] | None = None,
    *,
    invariants: Invariants = "gravity",
    height: bool = True,
    eps: float = 1e-2,
) -> dict[str, Tensor]:  # name -> (N,) float32
    """Named features of every point of a cloud with z upwards, at one or more radii.

    Args:
        radii: in the units of the cloud; three from its density by default.
        invariants: ``"gravity"`` adds numbers of the encoding that do not change when the cloud is
            turned about the vertical axis, ``"rotation"`` those of any rotation.
        height: also the height above the lowest points nearby.
        eps: mean relative error of the sums.

    Example:
        >>> found = features(torch.rand(500, 3), 0.2, invariants="none")
        >>> found["planarity_0.2"].shape
        torch.Size([500])
    """
    check_points(pos, "pos")
    if pos.dim() != 2 or pos.shape[-1] != 3:
        raise ValueError(f"features are of one cloud, (N, 3), got shape {tuple(pos.shape)}")
    if radii is None:
        radii = suggest_radii(pos)
    chosen = (radii,) if isinstance(radii, int | float) else tuple(radii)
    config = FeatureConfig(tuple(map(float, chosen)), invariants, height, eps)
    if not len(pos):
        return {name: pos.new_zeros(0).float() for name in config.columns}
    xyz = pos.detach().cpu().double()
    found = local_features(xyz, xyz, config)
    if height:
        ground = lowest(xyz.numpy(), config.cell)
        above = xyz.numpy()[:, 2] - ground_under(xyz.numpy(), *ground, config.cell)
        found = torch.cat((found, torch.from_numpy(above).float()[:, None]), 1)
    return dict(zip(config.columns, found.unbind(1), strict=True))


def local_features(
    pos: Tensor,  # (N, 3) float64
    queries: Tensor,  # (M, 3) float64, some of the points
    config: FeatureConfig,
) -> Tensor:  # (M, F) float32, all columns but the height
    """The features of some points, given those around them."""
    middle = (queries.amin(0) + queries.amax(0)) / 2
    x, at = (pos - middle).float(), (queries - middle).float()
    where = None if len(at) == len(x) else at
    up, out = at.new_tensor([0.0, 0.0, 1.0]), []
    for radius in config.radii:
        out.append(_eigen_features(x, where, radius, config.eps))
        if config.invariants != "none":
            axis = up if config.invariants == "gravity" else None
            out.append(config.descriptor(radius)(x, queries=where, axis=axis))
    return torch.cat(out, 1)


def _eigen_features(x: Tensor, queries: Tensor | None, radius: float, eps: float) -> Tensor:
    """Those of EIGEN_COLUMNS, (M, 10)."""
    m = moments(
        x,
        queries=queries,
        radius=radius,
        engine="neighbors" if _few_neighbors(x, radius) else "auto",
        eps=eps,
        progress=False,
        validate=False,
    )
    beta: float = m.window.beta  # type: ignore[union-attr]
    out = torch.empty(len(m.weight), len(EIGEN_COLUMNS))

    def chunk(first: int) -> None:
        some = slice(first, first + _ROWS)
        out[some] = _columns(m.weight[some], m.mean[some], m.covariance[some], beta)

    starts = range(0, len(out), _ROWS)
    share(starts, lambda _: chunk, workers(out.device, len(starts)))
    return out


def _few_neighbors(x: Tensor, radius: float) -> bool:
    """Whether cells of this side have so few points that lists of neighbors beat the grid."""
    cells = torch.floor((x - x.amin(0)) / radius).long()
    _, count = torch.unique(cells @ _CELL_CODE, return_counts=True)
    return float(count.double().square().mean()) < _CROWDED**2


def _columns(weight: Tensor, mean: Tensor, covariance: Tensor, beta: float) -> Tensor:
    """The columns of some points from their moments, (n, 10)."""
    packed = eigen.packed(covariance)
    normal = eigen.smallest(packed)
    low, between, high = eigen.spectrum(packed, normal)
    most, e = high.clamp_min(_TINY), torch.stack((low, between, high))
    e = e / e.sum(0).clamp_min(_TINY)
    columns = (
        (high - between) / most,
        (between - low) / most,
        low / most,
        (high - low) / most,
        e.prod(0).clamp_min(0.0) ** (1 / 3),
        -torch.special.xlogy(e, e).sum(0),
        e[0],
        1 - normal[2].abs(),
        beta**2 * eigen.dot(mean.t(), normal).abs(),
        weight * (beta**2 / (2 * math.pi)),
    )
    return torch.stack(columns, 1)


Lowest = tuple[np.ndarray, np.ndarray]  # (C, 2) int64 cells in ascending order, (C,) lowest z


def lowest(xyz: np.ndarray, cell: float) -> Lowest:  # (N, 3)
    """The lowest point of every cell of a grid over x and y."""
    return merge_lowest([(np.floor(xyz[:, :2] / cell).astype(np.int64), xyz[:, 2])])


def merge_lowest(parts: Sequence[Lowest]) -> Lowest:
    """The lowest of every cell over all parts."""
    cells, z = (np.concatenate([part[k] for part in parts]) for k in range(2))
    found, inverse = np.unique(cells, axis=0, return_inverse=True)
    low = np.full(len(found), np.inf)
    np.minimum.at(low, inverse.reshape(-1), z)
    return found, low


def ground_under(
    xyz: np.ndarray,  # (N, 3)
    cells: np.ndarray,  # (C, 2)
    low: np.ndarray,  # (C,)
    cell: float,
) -> np.ndarray:  # (N,)
    """The height of the ground: the second lowest of the nine cells around, so that one cell with
    a point far below it does not count; the lowest where there is no second."""
    origin = cells.min(0) - 1
    shape = cells.max(0) - origin + 2
    codes = (cells - origin) @ np.array([shape[1], 1])
    here, inverse = np.unique(
        (np.floor(xyz[:, :2] / cell).astype(np.int64) - origin) @ np.array([shape[1], 1]),
        return_inverse=True,
    )
    around = np.array([i * shape[1] + j for i in (-1, 0, 1) for j in (-1, 0, 1)])
    wanted = here[:, None] + around
    at = np.searchsorted(codes, wanted).clip(max=len(codes) - 1)
    heights = np.sort(np.where(codes[at] == wanted, low[at], np.inf), 1)[:, :2]
    ground: np.ndarray = np.where(np.isfinite(heights[:, 1]), heights[:, 1], heights[:, 0])
    # A cell may be lower than both: heights are never negative.
    under: np.ndarray = np.minimum(ground[inverse.reshape(-1)], xyz[:, 2])
    return under
