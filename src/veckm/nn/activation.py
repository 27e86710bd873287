"""The complex ReLU, and the squared norm that turns complex features into real ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veckm.nn.module import as_real, check_complex


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
