"""Principal components of encodings, computed in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from veckm.parallel import one_thread, share, workers

#: Rows that a worker processes at a time.
_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Components:
    """A mean and orthonormal directions of real features; a complex number is two.

    Attributes:
        mean: of the features.
        basis: the directions, those with the largest variance first. The sign of each is such that
            its largest entry is positive, so that it does not depend on the run.
        variance: along each direction.
        total: total variance.

    Shapes:
        - mean: (F,), basis: (F, k), variance: (k,)
    """

    mean: Tensor
    basis: Tensor
    variance: Tensor
    total: float

    @property
    def explained(self) -> float:
        """Share of the total variance."""
        return float(self.variance.sum()) / self.total if self.total > 0 else 1.0

    @one_thread()
    def project(self, features: Tensor) -> Tensor:  # (N, D) complex or (N, F) real -> (N, k)
        """Coordinates along the directions, float32, without gradients."""
        x = as_real(features).detach()
        out = torch.empty(len(x), self.basis.shape[1])

        def work(start: int) -> None:
            rows = slice(start, start + _ROWS)
            out[rows] = ((x[rows].double() - self.mean) @ self.basis).float()

        starts = range(0, len(x), _ROWS)
        share(starts, lambda _: work, workers(x.device, len(starts)))
        return out


def as_real(features: Tensor) -> Tensor:  # (N, D) complex -> (N, 2 D); real as it is
    """Interleaved real and imaginary parts."""
    return torch.view_as_real(features).flatten(1) if features.is_complex() else features


@one_thread()
def principal_components(chunks: Iterable[Tensor], k: int) -> Components:
    """The k directions of largest variance, from encodings in chunks.

    Sums are relative to the first encoding and in float64, to avoid cancellation.

    Args:
        chunks: (N, D) complex or (N, F) real each; together at least one row.
        k: how many directions, at most F.
    """
    sums: _Sums | None = None
    for chunk in chunks:
        x = as_real(chunk).detach()
        if not len(x):
            continue
        if sums is None:
            _check(k, x.shape[1])
            sums = _Sums(x[0].double())
        sums.add(x)
    if sums is None:
        raise ValueError("there are no encodings to compute components of: all chunks are empty")
    mean, covariance = sums.finish()
    # torch, limited to one thread: the threads of SciPy's BLAS spin on a busy machine.
    values, vectors = torch.linalg.eigh(covariance)
    values, basis = values[-k:].flip(0), vectors[:, -k:].flip(1)
    largest = basis.abs().argmax(0, keepdim=True)
    basis = basis * torch.where(basis.gather(0, largest) < 0, -1.0, 1.0)
    return Components(
        sums.shift + mean, basis, values.clamp_min(0), max(0.0, float(covariance.trace()))
    )


class _Sums:
    """Sums of features and of their products, relative to the first of them."""

    def __init__(self, shift: Tensor) -> None:  # (F,)
        self.shift = shift
        self._count = 0
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}  # of each worker: (F,), (F, F)

    def add(self, x: Tensor) -> None:  # (N, F)
        """Add rows."""
        size = len(self.shift)

        def make(worker: int) -> Callable[[Tensor], None]:
            if worker not in self._tables:
                zeros = self.shift.new_zeros
                self._tables[worker] = zeros(size), zeros(size, size)
            total, square = self._tables[worker]

            def work(rows: Tensor) -> None:
                off = rows.double() - self.shift
                total.add_(off.sum(0))
                square.addmm_(off.t(), off)

            return work

        parts = x.split(_ROWS)
        share(parts, make, workers(x.device, 4 * len(parts)))
        self._count += len(x)

    def finish(self) -> tuple[Tensor, Tensor]:  # (F,), (F, F)
        """Mean and covariance relative to the shift, summed in the order of the workers."""
        tables = [self._tables[worker] for worker in sorted(self._tables)]
        total = sum((t for t, _ in tables), torch.zeros_like(self.shift))
        square = sum((s for _, s in tables), torch.zeros_like(tables[0][1]))
        mean = total / self._count
        return mean, square / self._count - torch.outer(mean, mean)


def _check(k: int, size: int) -> None:
    if not 1 <= k <= size:
        raise ValueError(
            f"components must be from 1 to {size}, the real numbers of an encoding; got {k}"
        )
