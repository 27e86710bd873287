"""Batch normalization that whitens the real and imaginary parts together.

Symmetric 2 x 2 matrices are stored as their entries (rr, ri, ii).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veckm import inputs
from veckm.nn.linear import ComplexModule, as_real, check_input

_START = 0.5**0.5  # each part starts with variance 1/2, so that E|y|^2 = 1


class ComplexBatchNorm(ComplexModule):
    r"""Whitening batch norm of complex channels, the channel last.

    .. math:: y = \Gamma V^{-1/2} (z - \mu) + \beta, \qquad
              V = \mathrm{Cov}(\mathrm{Re}\,z, \mathrm{Im}\,z) + \epsilon I

    with z and beta read as (Re, Im) pairs, V and the symmetric Gamma as 2 x 2 matrices, one of
    each per channel: Section 3.5 of `Deep Complex Networks <https://arxiv.org/abs/1705.09792>`_
    (Trabelsi et al., ICLR 2018). Gamma starts at I / sqrt(2), so y starts with E|y|^2 = 1.

    As in :class:`torch.nn.BatchNorm1d`, training normalizes by the batch and evaluation by the
    running statistics, whose covariance is the unbiased one.

    Args:
        num_features: C.
        eps: added to the diagonal of the covariance.
        momentum: weight of the newest batch in the running statistics.

    Shapes:
        - input: (N, C), (B, N, C) or (..., C) complex; statistics are over all but the last
        - output: as the input
        - weight: (C, 3) real, Gamma as (rr, ri, ii)
        - bias, running_mean: (C,) complex, views of bias_parts and running_mean_parts (C, 2)
        - running_cov: (C, 3) real, Cov as (rr, ri, ii), without eps

    Example:
        >>> norm = ComplexBatchNorm(128)
        >>> norm(torch.randn(8, 1000, 128, dtype=torch.complex64)).shape
        torch.Size([8, 1000, 128])
    """

    running_mean_parts: Tensor
    running_cov: Tensor
    num_batches_tracked: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.num_features = inputs.check_count(num_features, "num_features")
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.empty(num_features, 3))
        self.bias_parts = nn.Parameter(torch.empty(num_features, 2))
        self.register_buffer("running_mean_parts", torch.empty(num_features, 2))
        self.register_buffer("running_cov", torch.empty(num_features, 3))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        self.reset_parameters()

    @property
    def bias(self) -> Tensor:
        """beta, (C,) complex."""
        return torch.view_as_complex(self.bias_parts)

    @property
    def running_mean(self) -> Tensor:
        """The running mean of z, (C,) complex."""
        return torch.view_as_complex(self.running_mean_parts)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Gamma = I / sqrt(2), beta = 0; the running statistics are mean 0 and variance 1/2."""
        self.weight.copy_(self.weight.new_tensor([_START, 0.0, _START]))
        self.bias_parts.zero_()
        self.running_mean_parts.zero_()
        self.running_cov.copy_(self.running_cov.new_tensor([0.5, 0.0, 0.5]))
        self.num_batches_tracked.zero_()

    def forward(self, z: Tensor) -> Tensor:  # (..., C) complex -> (..., C) complex
        """Whiten, then apply Gamma and beta."""
        check_input(self, z, self.num_features, self.weight.dtype)
        if z.ndim < 2 or (self.training and z.shape[:-1].numel() < 2):
            raise ValueError(
                "ComplexBatchNorm needs (N, C) or (B, N, C) with more than one vector for its "
                f"statistics, got {tuple(z.shape)}; pass a larger batch, or call eval() to use the "
                "running ones"
            )
        if not self.training:
            p, q = _widely_linear(self.weight, _inverse_root(self.running_cov, self.eps))
            mean = self.running_mean
            return p * z + q * z.conj() + (self.bias - p * mean - q * mean.conj())
        mean = z.flatten(0, -2).mean(dim=0)  # (C,)
        centered = z - mean
        x, y = as_real(centered).flatten(0, -3).unbind(-1)  # (N, C) each
        cov = torch.stack((x.square().mean(0), (x * y).mean(0), y.square().mean(0)), dim=-1)
        samples = z.numel() // self.num_features
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            self.running_mean_parts.lerp_(as_real(mean), self.momentum)
            self.running_cov.lerp_(cov * (samples / (samples - 1)), self.momentum)
        p, q = _widely_linear(self.weight, _inverse_root(cov, self.eps))
        return p * centered + q * centered.conj() + self.bias

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


def _inverse_root(cov: Tensor, eps: float) -> Tensor:  # (C, 3) -> (C, 3)
    r"""The symmetric inverse square root of V = cov + eps I, in closed form.

    .. math:: V^{-1/2} = \frac{1}{st} \begin{pmatrix} V_{ii} + s & -V_{ri} \\
              -V_{ri} & V_{rr} + s \end{pmatrix}, \quad
              s = \sqrt{\det V}, \quad t = \sqrt{\mathrm{tr}\,V + 2s}
    """
    rr, ri, ii = cov.unbind(-1)
    # det(cov + eps I) = det cov + eps tr cov + eps^2. Rounding can push det cov below zero where
    # the two parts are proportional; clamping that term alone keeps s real and positive.
    det = (rr * ii - ri.square()).clamp_min(0) + eps * (rr + ii) + eps**2
    s = det.sqrt()
    t = (rr + ii + 2 * eps + 2 * s).sqrt()
    return torch.stack((ii + eps + s, -ri, rr + eps + s), dim=-1) / (s * t).unsqueeze(-1)


def _widely_linear(scale: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:  # 2 (C, 3) -> 2 (C,)
    r"""The real 2 x 2 matrix M = Gamma V^{-1/2} as two complex numbers.

    .. math:: M (x, y)^T \;\leftrightarrow\; p z + q \bar z, \qquad
              p = \tfrac12 [M_{rr} + M_{ii} + i (M_{ir} - M_{ri})], \quad
              q = \tfrac12 [M_{rr} - M_{ii} + i (M_{ir} + M_{ri})]
    """
    g_rr, g_ri, g_ii = scale.unbind(-1)
    w_rr, w_ri, w_ii = root.unbind(-1)
    m_rr, m_ri = g_rr * w_rr + g_ri * w_ri, g_rr * w_ri + g_ri * w_ii
    m_ir, m_ii = g_ri * w_rr + g_ii * w_ri, g_ri * w_ri + g_ii * w_ii
    p = torch.complex(m_rr + m_ii, m_ir - m_ri) / 2
    q = torch.complex(m_rr - m_ii, m_ir + m_ri) / 2
    return p, q
