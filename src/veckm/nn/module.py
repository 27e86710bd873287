"""What the complex layers share: storage of complex parameters as real ones, and input checks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class ComplexModule(nn.Module):
    """Base of layers with complex parameters, stored as real ones with (Re, Im) as last dimension.

    Gradient scalers, fused optimizers and ``.double()`` handle real parameters only. The parameter
    ``weight_parts`` (..., 2) is read as ``weight`` (...) complex; likewise for the others.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ComplexModule:
        def checked(t: Tensor) -> Tensor:
            moved = fn(t)
            if t.is_floating_point() and moved.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"{type(self).__name__} cannot be stored in {moved.dtype}; use float32 or "
                    "float64, and torch.autocast for lower precision"
                )
            return moved

        super()._apply(checked, recurse)  # type: ignore[no-untyped-call]  # untyped in torch
        return self


def as_real(z: Tensor) -> Tensor:  # (...) complex -> (..., 2) real
    """(Re z, Im z) as one more dimension, without a copy where torch can."""
    # conj() is lazy in torch, and a tensor that still has to be conjugated has no real view.
    return torch.view_as_real(z.resolve_conj())


def check_complex(layer: str, z: Tensor) -> None:
    """Raise a TypeError unless ``z`` is complex."""
    if not z.is_complex():
        raise TypeError(
            f"{layer} expects a complex tensor, got {z.dtype}; pass the VecKM encoding itself, "
            "or torch.complex(x, torch.zeros_like(x)) for a real x"
        )


def check_input(layer: nn.Module, z: Tensor, channels: int, dtype: torch.dtype) -> None:
    """Raise unless ``z`` is (..., channels), in the complex dtype of the real ``dtype``."""
    name = type(layer).__name__
    check_complex(name, z)
    if z.ndim == 0 or z.shape[-1] != channels:
        raise ValueError(
            f"{name} expects (..., {channels}), channels last, got {tuple(z.shape)}; "
            "transpose the input or build the layer for its last dimension"
        )
    if z.dtype != dtype.to_complex():
        raise TypeError(
            f"{name} has {dtype} parameters and got {z.dtype}; call layer.to({z.dtype.to_real()}) "
            f"or z.to({dtype.to_complex()}) so that they agree"
        )
