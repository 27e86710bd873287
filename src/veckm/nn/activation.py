"""The complex ReLU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veckm.nn.module import as_real, check_complex


class ComplexReLU(nn.Module):
    r"""ReLU on the real and on the imaginary part.

    .. math:: \mathrm{CReLU}(z) = \max(\mathrm{Re}\,z, 0) + i \max(\mathrm{Im}\,z, 0)

    The CReLU of `Deep Complex Networks <https://arxiv.org/abs/1705.09792>`_ (Trabelsi et al.,
    ICLR 2018, Section 3.4), which the VecKM paper uses in Section 3.4 and Appendix B.

    Shapes:
        - input: (...) complex
        - output: (...) complex
    """

    def forward(
        self,
        z: Tensor,  # (...) complex
    ) -> Tensor:  # (...) complex
        """Clamp both parts of ``z`` at zero from below."""
        check_complex("ComplexReLU", z)
        return torch.view_as_complex(torch.relu(as_real(z)))
