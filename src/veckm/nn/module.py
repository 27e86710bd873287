"""What the complex layers share: real views, checks at the door, and moves that keep the phase."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

# torch has no complex twin of bfloat16, so these are all the real dtypes that can carry a phase.
_REAL = (torch.float16, torch.float32, torch.float64)


class ComplexModule(nn.Module):
    r"""Base of the layers that hold complex parameters or buffers.

    .. math:: \mathrm{to}(z) = \mathrm{to}(\mathrm{Re}\,z) + i\,\mathrm{to}(\mathrm{Im}\,z)

    A plain module ignores its complex tensors in ``.double()`` and drops their imaginary part in
    ``.to(torch.float64)``. A network around VecKM is half real and half complex, so here both
    calls move the two parts alike: float32 goes with complex64, float64 with complex128.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ComplexModule:
        def by_parts(t: Tensor) -> Tensor:
            if not t.is_complex():
                return _keep_real(t, fn)
            parts = fn(torch.view_as_real(t))
            if parts.is_complex():  # .to(torch.complex128): the target is complex already
                return fn(t)
            if parts.dtype not in _REAL:
                raise TypeError(
                    f"{type(self).__name__} is complex and {parts.dtype} has no complex twin; "
                    "move it to float32 or float64, or use torch.autocast for lower precision"
                )
            return torch.view_as_complex(parts)

        super()._apply(by_parts, recurse)  # type: ignore[no-untyped-call]  # untyped in torch
        return self


def _keep_real(t: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """``fn(t)`` for a real tensor, which stays real even in ``.to(torch.complex128)``."""
    moved = fn(t)
    return moved.real.clone() if moved.is_complex() else moved


def as_real(z: Tensor) -> Tensor:
    r"""(Re z, Im z) as one more dimension of 2, without a copy where torch can.

    Shapes:
        - input: (...) complex
        - output: (..., 2) real
    """
    # conj() is lazy in torch, and a tensor that still has to be conjugated has no real view.
    return torch.view_as_real(z.resolve_conj())


def check_complex(layer: str, z: Tensor) -> None:
    """Raise a TypeError unless ``z`` is complex; ``layer`` is named in the message."""
    if not z.is_complex():
        raise TypeError(
            f"{layer} takes a complex tensor, got {z.dtype}; pass the VecKM encoding itself, "
            "or torch.complex(x, torch.zeros_like(x)) for a real x"
        )


def check_input(layer: nn.Module, z: Tensor, channels: int, dtype: torch.dtype) -> None:
    """Raise unless ``z`` is (..., channels) of ``dtype``, the complex dtype of the parameters."""
    name = type(layer).__name__
    check_complex(name, z)
    if z.ndim == 0 or z.shape[-1] != channels:
        raise ValueError(
            f"{name} takes (..., {channels}), channels last, got {tuple(z.shape)}; "
            "transpose the input or build the layer for its last dimension"
        )
    if z.dtype != dtype:
        raise TypeError(
            f"{name} holds {dtype} and got {z.dtype}; "
            f"call layer.to({z.dtype.to_real()}) or z.to({dtype}) so that they agree"
        )


def check_sizes(layer: str, **sizes: int) -> None:
    """Raise a ValueError unless every size is at least 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{layer} needs {name} of at least 1, got {size}")


def complex_dtype(dtype: torch.dtype | None) -> torch.dtype:
    """The complex twin of ``dtype``, or of torch's default dtype: float32 gives complex64."""
    return (dtype or torch.get_default_dtype()).to_complex()
