"""Descriptors of two clouds that can be compared, and the pairs that are nearest to each other."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import as_file, files

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import normalize

from veckm import descriptors
from veckm.tasks.registration.surface import Surface

#: Radius of the window in voxels.
RADIUS = 9.0
#: The first shells of `veckm.describe`: the last takes a third of the time and adds little here.
SHELLS = descriptors.SHELLS[:4]
#: Error of the descriptors: far below what another view changes.
_EPS = 0.03
#: Rows that are compared at a time: their similarities stay in the cache.
_ROWS = 512
#: Principal components that are compared; variance below this share of the mean is noise.
_COMPONENTS, _RIDGE = 128, 0.02
#: Descriptors are cut at so many standard deviations.
_OUTLIER = 6.0


def features(surface: Surface, up: bool = False) -> Tensor:  # (n, F) float32
    """Descriptors about the normals, or with `up` about z."""
    pos = torch.from_numpy(surface.pos).float()
    axis = torch.tensor([0.0, 0.0, 1.0]) if up else torch.from_numpy(surface.normal).float()
    radius = RADIUS * surface.voxel
    return descriptors.describe(pos, radius=radius, axis=axis, shells=SHELLS, eps=_EPS)


def comparable(a: Tensor, b: Tensor, learnt: bool = True) -> tuple[Tensor, Tensor]:
    """Descriptors of two clouds about normals as rows of length one: the more similar, the larger
    their product. By the learnt projection, or by principal components."""
    return projected(a, b) if learnt else whitened(a, b)


def projected(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:  # (n, F), (m, F) -> (n, C), (m, C)
    """What changes least between two views of one place (`weights/descriptors.json`)."""
    a, b = (normalize(x @ projection()) for x in standardized(a, b))
    return a, b


def whitened(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:  # (n, F), (m, F)
    """Principal components of both, of unit variance."""
    a, b = standardized(a, b)
    values, vectors = torch.linalg.eigh(torch.cov(torch.cat([a, b]).t().double()))
    P = (vectors / (values + _RIDGE * values.mean()).sqrt()).float()[:, -_COMPONENTS:]
    return normalize(a @ P), normalize(b @ P)


def standardized(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:  # (n, F), (m, F)
    """Columns with mean 0 and variance 1 over both clouds, outliers cut."""
    both = torch.cat([a, b])
    middle, deviation = both.mean(0), both.std(0) + 1e-4
    a, b = (((x - middle) / deviation).clamp(-_OUTLIER, _OUTLIER) for x in (a, b))
    return a, b


@lru_cache(maxsize=1)
def projection() -> Tensor:  # (F, C)
    """The learnt projection, which comes with the package."""
    with as_file(files("veckm.weights") / "descriptors.safetensors") as path:
        return load_file(path)["projection"]


def nearest(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:  # (n, F), (m, F) -> (n,), (n,)
    """The row of b most similar to each row of a, and that similarity."""
    best = [(rows @ b.t()).max(1) for rows in a.split(_ROWS)]
    return torch.cat([found.indices for found in best]), torch.cat([f.values for f in best])


def mutual_matches(a: Tensor, b: Tensor) -> np.ndarray:  # (n, F), (m, F) -> (M, 2)
    """Rows of a and b that are nearest to each other, the most similar first."""
    there, similarity = torch.empty(len(a), dtype=torch.int64), torch.empty(len(a))
    best = torch.full((len(b),), -torch.inf)
    for start in range(0, len(a), _ROWS):
        block = a[start : start + _ROWS] @ b.t()
        rows = slice(start, start + len(block))
        similarity[rows], there[rows] = block.max(1)
        best = torch.maximum(best, block.amax(0))
    mutual = (similarity >= best[there]).nonzero()[:, 0]
    mutual = mutual[similarity[mutual].argsort(descending=True, stable=True)]
    return torch.stack([mutual, there[mutual]], 1).numpy()
