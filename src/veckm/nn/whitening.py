"""The 2 x 2 algebra of the batch norm, every symmetric matrix as its entries (rr, ri, ii)."""

from __future__ import annotations

import torch
from torch import Tensor

from veckm.nn.module import as_real


def covariance(
    centered: Tensor,  # (..., C) complex, of mean zero
) -> Tensor:  # (C, 3) real
    r"""Cov(Re z, Im z) of every channel, divided by the number of samples.

    .. math:: (\mathrm{E}[x^2], \mathrm{E}[xy], \mathrm{E}[y^2]), \qquad z = x + iy

    Shapes:
        - centered: (..., C) complex
        - output: (C, 3) real
    """
    x, y = as_real(centered).flatten(0, -3).unbind(-1)  # (N, C) each
    return torch.stack((x.square().mean(0), (x * y).mean(0), y.square().mean(0)), dim=-1)


def inverse_root(
    cov: Tensor,  # (C, 3) real
    eps: float,
) -> Tensor:  # (C, 3) real
    r"""The symmetric inverse square root of a 2 x 2 covariance, in closed form.

    .. math:: V^{-1/2} = \frac{1}{st} \begin{pmatrix} V_{ii} + s & -V_{ri} \\
              -V_{ri} & V_{rr} + s \end{pmatrix}, \quad
              s = \sqrt{\det V}, \quad t = \sqrt{\mathrm{tr}\,V + 2s}

    with V = cov + eps I.

    Shapes:
        - cov: (C, 3) real
        - output: (C, 3) real
    """
    rr, ri, ii = cov.unbind(-1)
    # det(cov + eps I) = det cov + eps tr cov + eps^2. Rounding can push det cov below zero where
    # the two parts are proportional; clamping that term alone keeps s real and positive.
    det = (rr * ii - ri.square()).clamp_min(0) + eps * (rr + ii) + eps**2
    s = det.sqrt()
    t = (rr + ii + 2 * eps + 2 * s).sqrt()
    return torch.stack((ii + eps + s, -ri, rr + eps + s), dim=-1) / (s * t).unsqueeze(-1)


def widely_linear(
    scale: Tensor | None,  # (C, 3) real, Gamma; None for the identity
    root: Tensor,  # (C, 3) real, V^{-1/2}
) -> tuple[Tensor, Tensor]:  # (C,) complex each
    r"""The real 2 x 2 matrix M = Gamma V^{-1/2} as two complex numbers.

    .. math:: M (x, y)^T \;\leftrightarrow\; p z + q \bar z, \qquad
              p = \tfrac12 [M_{rr} + M_{ii} + i (M_{ir} - M_{ri})], \quad
              q = \tfrac12 [M_{rr} - M_{ii} + i (M_{ir} + M_{ri})]

    Every real-linear map of the plane has this form; it spares the caller the four real products.

    Shapes:
        - scale, root: (C, 3) real
        - output: p and q, (C,) complex each
    """
    w_rr, w_ri, w_ii = root.unbind(-1)
    m_rr, m_ri, m_ir, m_ii = w_rr, w_ri, w_ri, w_ii
    if scale is not None:
        g_rr, g_ri, g_ii = scale.unbind(-1)
        m_rr, m_ri = g_rr * w_rr + g_ri * w_ri, g_rr * w_ri + g_ri * w_ii
        m_ir, m_ii = g_ri * w_rr + g_ii * w_ri, g_ri * w_ri + g_ii * w_ii
    p = torch.complex(m_rr + m_ii, m_ir - m_ri) / 2
    q = torch.complex(m_rr - m_ii, m_ir + m_ri) / 2
    return p, q
