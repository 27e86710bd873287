"""Descriptors of two clouds that can be compared, and the pairs that are nearest to each other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from veckm.descriptors import describe
from veckm.tasks.registration.surface import Surface

#: Radius of the window in voxels.
RADIUS = 9.0
#: Rows that are compared at a time.
_ROWS = 4096
#: Principal components that are compared; variance below this share of the mean is noise.
_COMPONENTS, _RIDGE = 128, 0.02


def features(surface: Surface, up: bool = False) -> Tensor:  # (n, F) float32
    """Descriptors about the normals, or with `up` about z."""
    pos = torch.from_numpy(surface.pos).float()
    axis = torch.tensor([0.0, 0.0, 1.0]) if up else torch.from_numpy(surface.normal).float()
    return describe(pos, radius=RADIUS * surface.voxel, axis=axis)


def whitened(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:  # (n, F), (m, F)
    """Principal components of both, of unit variance; rows of length one."""
    both = torch.cat([a, b])
    middle = both.mean(0)
    deviation = both.std(0) + 1e-4
    a, b = ((x - middle) / deviation for x in (a, b))
    values, vectors = torch.linalg.eigh(torch.cov(torch.cat([a, b]).t().double()))
    P = (vectors / (values + _RIDGE * values.mean()).sqrt()).float()[:, -_COMPONENTS:]
    unit = torch.nn.functional.normalize
    return unit(a @ P), unit(b @ P)


def nearest(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:  # (n, F), (m, F) -> (n,), (n,)
    """The row of b most similar to each row of a, and that similarity."""
    best = [(rows @ b.t()).max(1) for rows in a.split(_ROWS)]
    return torch.cat([found.indices for found in best]), torch.cat([f.values for f in best])


def mutual_matches(a: Tensor, b: Tensor) -> np.ndarray:  # (n, F), (m, F) -> (M, 2)
    """Rows of a and b that are nearest to each other, the most similar first."""
    there, back = torch.empty(len(a), dtype=torch.int64), torch.zeros(len(b), dtype=torch.int64)
    similarity, best = torch.empty(len(a)), torch.full((len(b),), -torch.inf)
    for start in range(0, len(a), _ROWS):
        block = a[start : start + _ROWS] @ b.t()
        rows = slice(start, start + len(block))
        similarity[rows], there[rows] = block.max(1)
        most, first = block.max(0)
        back = torch.where(most > best, first + start, back)
        best = torch.maximum(best, most)
    mutual = (back[there] == torch.arange(len(a))).nonzero()[:, 0]
    mutual = mutual[similarity[mutual].argsort(descending=True, stable=True)]
    return torch.stack([mutual, there[mutual]], 1).numpy()
