"""The complex affine map, and what the complex layers share.

Complex parameters are stored as real ones, and inputs are checked.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from veckm import inputs


class ComplexModule(nn.Module):
    """Base of layers with complex parameters, stored as real ones with (Re, Im) as last dimension.

    Gradient scalers, fused optimizers and ``.double()`` handle real parameters only. The parameter
    ``weight_parts`` (..., 2) is read as ``weight`` (...) complex; likewise for the others.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ComplexModule:
        checked = inputs.full_precision(self, fn)
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
    if z.real.dtype != dtype:  # a dtype's to_complex() cannot be compiled
        raise TypeError(
            f"{name} has {dtype} parameters and got {z.dtype}; call layer.to({z.dtype.to_real()}) "
            f"or z.to({dtype.to_complex()}) so that they agree"
        )


class ComplexLinear(ComplexModule):
    r"""The affine map between complex vectors.

    .. math:: y = W x + b, \qquad W \in \mathbb{C}^{C_\text{out} \times C_\text{in}}

    The initial weights are the Glorot draw of `Deep Complex Networks
    <https://arxiv.org/abs/1705.09792>`_ (Trabelsi et al., ICLR 2018, Section 3.6): a Rayleigh
    magnitude and a uniform phase with :math:`\mathrm{E}|W|^2 = 2 / (C_\text{in} + C_\text{out})`,
    so that variances neither grow nor shrink where the two sizes are equal.

    Args:
        in_features: C_in.
        out_features: C_out.
        bias: whether to add b, which starts at zero.

    Shapes:
        - input: (..., C_in) complex
        - output: (..., C_out) complex
        - weight: (C_out, C_in) complex, a view of the parameter weight_parts (C_out, C_in, 2)
        - bias: (C_out,) complex, a view of the parameter bias_parts (C_out, 2)

    Example:
        >>> layer = ComplexLinear(256, 128)
        >>> layer(torch.randn(1000, 256, dtype=torch.complex64)).shape
        torch.Size([1000, 128])
    """

    bias_parts: nn.Parameter | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features = inputs.check_count(in_features, "in_features")
        self.out_features = inputs.check_count(out_features, "out_features")
        self.weight_parts = nn.Parameter(torch.empty(out_features, in_features, 2))
        parts = nn.Parameter(torch.empty(out_features, 2)) if bias else None
        self.register_parameter("bias_parts", parts)
        self.reset_parameters()

    @property
    def weight(self) -> Tensor:
        """W, (C_out, C_in) complex."""
        return torch.view_as_complex(self.weight_parts)

    @property
    def bias(self) -> Tensor | None:
        """b, (C_out,) complex."""
        return None if self.bias_parts is None else torch.view_as_complex(self.bias_parts)

    def reset_parameters(self) -> None:
        """Draw W again from torch's global generator and set b to zero."""
        # Rayleigh magnitude and uniform phase are a Gaussian in each part, with half of E|W|^2.
        nn.init.normal_(self.weight_parts, std=(self.in_features + self.out_features) ** -0.5)
        if self.bias_parts is not None:
            nn.init.zeros_(self.bias_parts)

    def forward(self, z: Tensor) -> Tensor:  # (..., C_in) complex -> (..., C_out) complex
        """W z + b for every vector along the last dimension."""
        check_input(self, z, self.in_features, self.weight_parts.dtype)
        bias = None if self.bias_parts is None else self.bias_parts.flatten()
        parts = as_real(z).flatten(-2)  # (..., 2 C_in)
        out = nn.functional.linear(parts, _real_matrix(self.weight), bias)  # (..., 2 C_out)
        # Under autocast the product comes back in half precision, which has no complex view.
        return torch.view_as_complex(out.to(parts.dtype).unflatten(-1, (self.out_features, 2)))

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias_parts is not None}"


def _real_matrix(weight: Tensor) -> Tensor:  # (C_out, C_in) complex -> (2 C_out, 2 C_in) real
    """The same map on interleaved parts: each entry w becomes [[Re w, -Im w], [Im w, Re w]]."""
    # As many flops as the complex product, which is less tuned and takes twice as long on a CPU.
    re, im = weight.real, weight.imag
    to_re = torch.stack((re, -im), dim=-1)  # (C_out, C_in, 2)
    to_im = torch.stack((im, re), dim=-1)
    return torch.stack((to_re, to_im), dim=1).flatten(2).flatten(0, 1)
