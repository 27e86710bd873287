"""How far estimated normals are from the truth."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from veckm.tasks.normals.classical import pca_normals


def angle_error(
    n: Tensor,  # (M, 3)
    m: Tensor,  # (M, 3)
) -> Tensor:  # (M,) float64
    r"""Angle between two lines in degrees, from 0 to 90: a normal and its opposite are equal.

    .. math:: \arccos |n \cdot m| = \operatorname{atan2}(|n \times m|, |n \cdot m|)

    The second form is exact at small angles and does not need unit length.
    """
    if n.shape != m.shape or n.dim() != 2 or n.shape[1] != 3:
        raise ValueError(f"expected two tensors (M, 3) of normals, got {n.shape} and {m.shape}")
    n, m = n.double(), m.double()
    for name, normals in (("first", n), ("second", m)):
        length = normals.norm(dim=-1)
        if not bool(((length > 0) & length.isfinite()).all()):
            raise ValueError(f"the {name} normals have rows that are zero, NaN or infinite")
    sine: Tensor = torch.linalg.vector_norm(torch.linalg.cross(n, m), dim=-1)
    return torch.atan2(sine, (n * m).sum(-1).abs()).rad2deg()


def rmse(errors: Tensor) -> float:  # (M,)
    r"""Root mean square of the errors, :math:`\sqrt{\tfrac1M \sum_i e_i^2}`."""
    if not len(errors):
        raise ValueError("there are no errors to average: no point was evaluated")
    return float(errors.double().square().mean().sqrt())


def best_k(
    pos: Tensor,  # (N, 3)
    truth: Tensor,  # (N, 3)
    ks: Sequence[int] = (10, 18, 30, 60, 122, 250),
) -> int:
    """The number of neighbors with which PCA has the least RMSE.

    Whoever knows the truth can choose it; who does not has to take one in advance.
    """
    return min(ks, key=lambda k: rmse(angle_error(pca_normals(pos, k), truth)))
