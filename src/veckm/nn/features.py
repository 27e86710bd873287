"""From VecKM encodings to real features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veckm.nn.activation import ComplexReLU, SquaredNorm
from veckm.nn.linear import ComplexLinear
from veckm.nn.norm import ComplexBatchNorm


class FeatureBlock(nn.Module):
    r"""The feature transform that follows a VecKM encoding, from complex to real.

    .. math:: f(G) = |W_2\, \mathrm{CReLU}(W_1 G + b_1) + b_2|^2

    Section 3.4 and the last lines of Appendix B of the VecKM paper: two complex linear layers
    with a complex ReLU between them, then the squared norm.

    Args:
        in_features: size of the encoding, D (the sum of the sizes for several scales).
        hidden: channels between the two linear layers.
        out_features: C, channels of the result.
        batch_norm: whiten the hidden channels with :class:`ComplexBatchNorm` before the ReLU. The
            paper does not; it helps where encodings are not normalized. b_1 is then left out,
            since the batch norm would subtract it again.
        device: of the parameters.
        dtype: complex64 or complex128, or that of the parts; torch's default if None.

    Shapes:
        - input: (..., D) complex
        - output: (..., C) real

    Example:
        >>> block = FeatureBlock(256, 128, 128)
        >>> block(torch.randn(10, 1000, 256, dtype=torch.complex64)).shape
        torch.Size([10, 1000, 128])
    """

    def __init__(
        self,
        in_features: int = 256,
        hidden: int = 128,
        out_features: int = 128,
        batch_norm: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.linear1 = ComplexLinear(
            in_features, hidden, bias=not batch_norm, device=device, dtype=dtype
        )
        self.norm = ComplexBatchNorm(hidden, device=device, dtype=dtype) if batch_norm else None
        self.relu = ComplexReLU()
        self.linear2 = ComplexLinear(hidden, out_features, device=device, dtype=dtype)
        self.magnitude = SquaredNorm()

    def forward(self, G: Tensor) -> Tensor:  # (..., D) complex -> (..., C) real
        """The real features of every encoding."""
        features: Tensor = self.magnitude(self.linear2(self.hidden(G)))
        return features

    def hidden(self, G: Tensor) -> Tensor:  # (..., D) complex -> (..., hidden) complex
        """The input of the last linear layer."""
        z = self.linear1(G)
        hidden: Tensor = self.relu(z if self.norm is None else self.norm(z))
        return hidden
