"""Batch normalization that whitens the real and imaginary parts together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veckm.nn.module import ComplexModule, check_input, check_sizes, complex_dtype
from veckm.nn.whitening import covariance, inverse_root, widely_linear

_START = 0.5**0.5  # each part starts with variance 1/2, so that E|y|^2 = 1


class ComplexBatchNorm(ComplexModule):
    r"""Whitening batch norm of complex channels, the channel last.

    .. math:: y = \Gamma V^{-1/2} (z - \mu) + \beta, \qquad
              V = \mathrm{Cov}(\mathrm{Re}\,z, \mathrm{Im}\,z) + \epsilon I

    with z and beta read as (Re, Im) pairs, V and the symmetric Gamma as 2 x 2 matrices, one of
    each a channel: Section 3.5 of `Deep Complex Networks <https://arxiv.org/abs/1705.09792>`_
    (Trabelsi et al., ICLR 2018). Gamma starts at I / sqrt(2), so y starts with E|y|^2 = 1.

    As in :class:`torch.nn.BatchNorm1d`, training normalizes by the batch and evaluation by the
    running statistics, whose covariance is the unbiased one.

    Args:
        num_features: C.
        eps: added to the diagonal of the covariance.
        momentum: weight of the newest batch in the running statistics; None averages all batches.
        affine: whether to learn Gamma and beta.
        track_running_stats: without it, evaluation too normalizes by the batch.
        device: where the parameters and buffers live.
        dtype: complex64 or complex128, or the real dtype beside it; torch's default if None.

    Shapes:
        - input: (N, C), (B, N, C) or (..., C) complex; statistics are over all but the last
        - output: as the input
        - weight: (C, 3) real, Gamma as (rr, ri, ii)
        - bias, running_mean: (C,) complex
        - running_cov: (C, 3) real, Cov as (rr, ri, ii), without eps

    Example:
        >>> norm = ComplexBatchNorm(128)
        >>> norm(torch.randn(8, 1000, 128, dtype=torch.complex64)).shape
        torch.Size([8, 1000, 128])
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor | None
    running_cov: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes("ComplexBatchNorm", num_features=num_features)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        kind = complex_dtype(dtype)
        mean = torch.zeros(num_features, device=device, dtype=kind)
        cov = torch.zeros(num_features, 3, device=device, dtype=kind.to_real())
        count = torch.zeros((), device=device, dtype=torch.long)
        self.register_parameter("weight", nn.Parameter(cov.clone()) if affine else None)
        self.register_parameter("bias", nn.Parameter(mean.clone()) if affine else None)
        self.register_buffer("running_mean", mean if track_running_stats else None)
        self.register_buffer("running_cov", cov if track_running_stats else None)
        self.register_buffer("num_batches_tracked", count if track_running_stats else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the batches seen: mean 0, and each part of variance 1/2."""
        if self.running_mean is not None and self.running_cov is not None:
            self.running_mean.zero_()
            self.running_cov.copy_(self.running_cov.new_tensor([0.5, 0.0, 0.5]))
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Gamma = I / sqrt(2), beta = 0, and no batches seen."""
        self.reset_running_stats()
        if self.weight is not None and self.bias is not None:
            with torch.no_grad():
                self.weight.copy_(self.weight.new_tensor([_START, 0.0, _START]))
                self.bias.zero_()

    def forward(
        self,
        z: Tensor,  # (..., C) complex
    ) -> Tensor:  # (..., C) complex
        """Whiten, then apply Gamma and beta."""
        self._check(z)
        if not self.training and self.running_mean is not None:
            p, q, shift = self.fixed()
            return p * z + q * z.conj() + shift
        mean = z.flatten(0, -2).mean(dim=0)  # (C,)
        centered = z - mean
        cov = covariance(centered)  # (C, 3)
        self._track(mean.detach(), cov.detach(), z.numel() // self.num_features)
        p, q = widely_linear(self.weight, inverse_root(cov, self.eps))
        out = p * centered + q * centered.conj()
        return out if self.bias is None else out + self.bias

    def fixed(self) -> tuple[Tensor, Tensor, Tensor]:  # (C,) complex each
        r"""The layer as it is in evaluation, :math:`y = p z + q \bar z + s`: p, q and s."""
        mean, cov = self.running_mean, self.running_cov
        if mean is None or cov is None:
            raise ValueError(
                "ComplexBatchNorm(track_running_stats=False) normalizes by the batch in evaluation "
                "too, so it is no fixed map; build it with track_running_stats=True"
            )
        p, q = widely_linear(self.weight, inverse_root(cov, self.eps))
        shift = -p * mean - q * mean.conj()
        return p, q, shift if self.bias is None else shift + self.bias

    def _check(self, z: Tensor) -> None:
        like = self.running_mean if self.bias is None else self.bias
        check_input(self, z, self.num_features, z.dtype if like is None else like.dtype)
        if z.ndim < 2:
            raise ValueError(
                f"ComplexBatchNorm takes (N, C) or (B, N, C), got {tuple(z.shape)}; "
                "unsqueeze(0) makes a batch of one vector"
            )
        by_batch = self.training or self.running_mean is None
        if by_batch and z.shape[:-1].numel() < 2:
            raise ValueError(
                f"ComplexBatchNorm needs more than one vector to take statistics of, got "
                f"{tuple(z.shape)}; pass a larger batch, or call eval() to use the running ones"
            )

    def _track(self, mean: Tensor, cov: Tensor, samples: int) -> None:
        """Move the running statistics towards those of this batch."""
        count = self.num_batches_tracked
        if self.running_mean is None or self.running_cov is None or count is None:
            return
        count.add_(1)
        step = 1 / int(count) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, step)
        self.running_cov.lerp_(cov * (samples / (samples - 1)), step)

    def extra_repr(self) -> str:
        """The options, for ``print(layer)``."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, track_running_stats={self.track_running_stats}"
        )
