"""Principal components of encodings, computed in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from veckm.engines.phasors import as_real
from veckm.parallel import one_thread, share, workers

#: Rows that a worker processes at a time.
_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Components:
    """A mean and orthonormal directions of real features; a complex number is two."""

    mean: Tensor  # (F,)
    basis: Tensor  # (F, k), largest variance first; the largest entry of each is positive
    variance: Tensor  # (k,) along each direction
    total: float  # variance along all directions

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


@one_thread()
def principal_components(chunks: Iterable[Tensor], k: int) -> Components:
    """The k directions of largest variance, from encodings in chunks, (N, D) complex or (N, F)."""
    filled = (as_real(chunk).detach() for chunk in chunks if len(chunk))
    first = next(filled, None)
    if first is None:
        raise ValueError("there are no encodings to compute components of: all chunks are empty")
    # Sums are relative to the first encoding and in float64, to avoid cancellation.
    size, shift, count = first.shape[1], first[0].double(), 0
    if not 1 <= k <= size:
        raise ValueError(
            f"components must be from 1 to {size}, the real numbers of an encoding; got {k}"
        )
    most = workers(first.device, 1 << 30)
    sums, products = shift.new_zeros(most, size), shift.new_zeros(most, size, size)

    def make(worker: int) -> Callable[[Tensor], None]:
        def work(rows: Tensor) -> None:
            off = rows.double() - shift
            sums[worker] += off.sum(0)
            products[worker].addmm_(off.t(), off)

        return work

    for x in chain([first], filled):
        parts = x.split(_ROWS)
        share(parts, make, workers(x.device, 4 * len(parts)))
        count += len(x)
    mean = sums.sum(0) / count
    covariance = products.sum(0) / count - torch.outer(mean, mean)
    # torch, limited to one thread: the threads of SciPy's BLAS spin on a busy machine.
    values, vectors = torch.linalg.eigh(covariance)
    values, basis = values[-k:].flip(0), vectors[:, -k:].flip(1)
    largest = basis.abs().argmax(0, keepdim=True)
    basis = basis * torch.where(basis.gather(0, largest) < 0, -1.0, 1.0)
    spread = max(0.0, float(covariance.trace()))
    return Components(shift + mean, basis, values.clamp_min(0), spread)
