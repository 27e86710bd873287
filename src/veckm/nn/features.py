"""From VecKM encodings to real features."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from veckm.nn.activation import ComplexReLU
from veckm.nn.linear import ComplexLinear
from veckm.nn.magnitude import SquaredNorm
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
        norm: whiten the hidden channels with :class:`ComplexBatchNorm` before the ReLU. The paper
            does not; it helps where encodings are not normalised. b_1 is then left out, for the
            norm would subtract it again.
        device: where the parameters live.
        dtype: complex64 or complex128, or the real dtype beside it; torch's default if None.

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
        norm: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.hidden, self.out_features = in_features, hidden, out_features
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["linear1"] = ComplexLinear(
            in_features, hidden, bias=not norm, device=device, dtype=dtype
        )
        if norm:
            layers["norm"] = ComplexBatchNorm(hidden, device=device, dtype=dtype)
        layers["relu"] = ComplexReLU()
        layers["linear2"] = ComplexLinear(hidden, out_features, device=device, dtype=dtype)
        layers["magnitude"] = SquaredNorm()
        # Named, not numbered, so that checkpoints keep their keys if a layer is added.
        self.layers = nn.Sequential(layers)

    def forward(
        self,
        G: Tensor,  # (..., D) complex
    ) -> Tensor:  # (..., C) real
        """The real features of every encoding."""
        features: Tensor = self.layers(G)
        return features

    def before(
        self,
        G: Tensor,  # (..., D) complex
    ) -> Tensor:  # (..., hidden) complex
        """What comes into the last linear layer."""
        hidden: Tensor = self.layers[:-2](G)
        return hidden

    @property
    def last(self) -> ComplexLinear:
        """The last linear layer, W_2 and b_2."""
        layer = self.layers[-2]
        assert isinstance(layer, ComplexLinear)
        return layer
