"""Principal components of encodings: the few directions in which those of a cloud differ most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from scipy.linalg import eigh
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Components:
    """A mean and orthonormal directions, of real numbers: a complex one is two.

    Attributes:
        mean: of the features.
        basis: the directions, those with the largest variance first. The sign of each is such that
            its largest entry is positive, so that it does not depend on the run.
        variance: along each direction.
        total: variance along all directions together.

    Shapes:
        - mean: (F,), basis: (F, k), variance: (k,)
    """

    mean: Tensor
    basis: Tensor
    variance: Tensor
    total: float

    @property
    def explained(self) -> float:
        """Share of the variance that is along the directions."""
        return float(self.variance.sum()) / self.total if self.total > 0 else 1.0

    def project(self, features: Tensor) -> Tensor:  # (N, D) complex or (N, F) real -> (N, k)
        """Coordinates along the directions, float32."""
        return ((as_real(features).double() - self.mean) @ self.basis).float()


def as_real(features: Tensor) -> Tensor:  # (N, D) complex -> (N, 2 D); real as it is
    """Real and imaginary parts in turn."""
    return torch.view_as_real(features).flatten(1) if features.is_complex() else features


def principal_components(chunks: Iterable[Tensor], k: int) -> Components:
    """The k directions of largest variance, from encodings that come in pieces.

    Sums are about the first encoding and in float64, so that the mean takes no digits away.

    Args:
        chunks: (N, D) complex or (N, F) real each; together at least one row.
        k: how many directions, at most F.
    """
    shift = total = square = None
    count = 0
    for chunk in chunks:
        x = as_real(chunk).double()
        if not len(x):
            continue
        if shift is None or total is None or square is None:
            _check(k, x.shape[1])
            shift = x[0].clone()
            total = torch.zeros_like(shift)
            square = torch.zeros(len(shift), len(shift), dtype=torch.float64)
        x = x - shift
        total += x.sum(0)
        square += x.t() @ x
        count += len(x)
    if shift is None or total is None or square is None:
        raise ValueError("there are no encodings to find components of")
    mean = total / count
    covariance = square / count - torch.outer(mean, mean)
    # Only the last k: a third of the time of all of them where F is large.
    last = [len(mean) - k, len(mean) - 1]
    values, vectors = map(torch.from_numpy, eigh(covariance.numpy(), subset_by_index=last))
    basis = vectors.flip(1)
    largest = basis.abs().argmax(0, keepdim=True)
    basis = basis * torch.where(basis.gather(0, largest) < 0, -1.0, 1.0)
    return Components(
        shift + mean, basis, values.flip(0).clamp_min(0), max(0.0, float(covariance.trace()))
    )


def _check(k: int, size: int) -> None:
    if not 1 <= k <= size:
        raise ValueError(
            f"components must be from 1 to {size}, the real numbers of an encoding; got {k}"
        )
