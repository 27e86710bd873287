"""From VecKM encodings to real features: complex ReLU, squared norm, and the whole block."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veckm.nn.linear import ComplexLinear, as_real, check_complex
from veckm.nn.norm import ComplexBatchNorm


class ComplexReLU(nn.Module):
    r"""ReLU on the real and on the imaginary part.

    .. math:: \mathrm{CReLU}(z) = \max(\mathrm{Re}\,z, 0) + i \max(\mathrm{Im}\,z, 0)

    The CReLU of `Deep Complex Networks <https://arxiv.org/abs/1705.09792>`_ (Trabelsi et al.,
    ICLR 2018, Section 3.4), which the VecKM paper uses in Section 3.4 and Appendix B.
    """

    def forward(self, z: Tensor) -> Tensor:  # (...) complex -> (...) complex
        """Clamp both parts of ``z`` at zero from below."""
        check_complex("ComplexReLU", z)
        return torch.view_as_complex(torch.relu(as_real(z)))


class SquaredNorm(nn.Module):
    r"""The squared magnitude of every entry, a real tensor for the layers that follow.

    .. math:: |z|^2 = (\mathrm{Re}\,z)^2 + (\mathrm{Im}\,z)^2

    Section 3.4 and Appendix B of the VecKM paper. Unlike :math:`|z|` it is smooth at zero.
    """

    def forward(self, z: Tensor) -> Tensor:  # (...) complex -> (...) real
        """|z|^2, entry by entry."""
        check_complex("SquaredNorm", z)
        return z.real.square() + z.imag.square()


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
    ) -> None:
        super().__init__()
        self.linear1 = ComplexLinear(in_features, hidden, bias=not batch_norm)
        self.norm = ComplexBatchNorm(hidden) if batch_norm else None
        self.relu = ComplexReLU()
        self.linear2 = ComplexLinear(hidden, out_features)
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
