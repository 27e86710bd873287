"""How close is close: one table by dtype, and the measure that goes with it."""

from __future__ import annotations

import torch
from torch import Tensor

#: Relative error of an encoding where nothing but rounding may differ.
ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-10}


def row_errors(G: Tensor, reference: Tensor) -> Tensor:  # (..., D), (..., D) -> (...)
    """||G - reference|| / ||reference|| of each encoding; 0 where both are zero."""
    off, size = (torch.linalg.vector_norm(t, dim=-1) for t in (G - reference, reference))
    return torch.where(off == 0, 0.0, off / size)


def mean_error(G: Tensor, reference: Tensor) -> float:
    """The mean relative error that `eps` speaks of."""
    assert G.shape == reference.shape
    assert bool(torch.isfinite(torch.view_as_real(G)).all())
    return float(row_errors(G.to(reference.dtype), reference).mean())


def whole_error(x: Tensor, reference: Tensor) -> float:
    """||x - reference|| / ||reference|| of a whole tensor: for gradients, whose rows may vanish."""
    assert x.shape == reference.shape
    assert bool(torch.isfinite(x).all())
    return float((x.to(reference.dtype) - reference).norm() / reference.norm())


def assert_rounding(G: Tensor, reference: Tensor) -> None:
    """Equal up to the rounding of G's dtype, in every row."""
    assert G.shape == reference.shape
    assert float(row_errors(G.to(reference.dtype), reference).max()) <= ROUNDING[G.real.dtype]
