"""How far estimated normals are from the truth."""

from __future__ import annotations

import torch
from torch import Tensor


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
