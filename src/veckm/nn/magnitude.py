"""From complex to real: the squared norm."""

from __future__ import annotations

from torch import Tensor, nn

from veckm.nn.module import check_complex


class SquaredNorm(nn.Module):
    r"""The squared magnitude of every entry, a real tensor for the layers that follow.

    .. math:: |z|^2 = (\mathrm{Re}\,z)^2 + (\mathrm{Im}\,z)^2

    Section 3.4 and Appendix B of the VecKM paper. Unlike :math:`|z|` it is smooth at zero.

    Shapes:
        - input: (...) complex
        - output: (...) real
    """

    def forward(
        self,
        z: Tensor,  # (...) complex
    ) -> Tensor:  # (...) real
        """|z|^2, entry by entry."""
        check_complex("SquaredNorm", z)
        return z.real.square() + z.imag.square()
