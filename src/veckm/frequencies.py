"""Frequencies: the draws of A and B, and what alpha and beta mean in the units of the data.

Every draw is a pure function of its seed: quantiles in float64, shuffled by integer permutations,
so that they are the same numbers on every machine. No global random state is read or written.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from veckm.inputs import check_positive
from veckm.knn import build_tree, query

Draw = Literal["unbiased", "paper"]

#: beta * radius in the table of the paper's Appendix D. The text there has exp(-r^2/2) < 0.1,
#: which would be 2.146; the table, which the experiments follow, has 1.8 (window value 0.198).
BETA_TIMES_RADIUS = 1.8


def beta_from_radius(radius: float) -> float:
    """beta = 1.8 / radius: the Gaussian window that stands for a ball (Appendix D)."""
    return BETA_TIMES_RADIUS / check_positive(radius, "radius")


def radius_from_beta(beta: float) -> float:
    """radius = 1.8 / beta: the ball that a Gaussian window stands for (Appendix D)."""
    return BETA_TIMES_RADIUS / check_positive(beta, "beta")


def quantiles(count: int, draw: Draw = "unbiased") -> Tensor:
    """Standard normal numbers without randomness: the quantiles of `count` equal shares.

    ``"paper"`` takes Phi^-1(i / (count + 1)) as Appendix B does; their variance is below one
    (0.963 at 256, 0.892 at 64), so the bandwidth would depend on the size of the encoding.
    ``"unbiased"`` takes Phi^-1((i - 1/2) / count), scaled to variance one exactly.

    Shapes:
        returns: (count,) float64, ascending.
    """
    if count < 1:
        raise ValueError(f"cannot draw {count} frequencies: the encoding size must be at least 1")
    if draw == "paper":
        return torch.from_numpy(ndtri(np.arange(1, count + 1) / (count + 1)))
    if draw != "unbiased":
        raise ValueError(f"unknown draw {draw!r}: use 'unbiased' or 'paper'")
    x = ndtri((np.arange(1, count + 1) - 0.5) / count)
    return torch.from_numpy(x / max(float(np.sqrt(np.mean(x**2))), 1e-300))


def standard_normal(
    rows: int, columns: int, *, generator: torch.Generator, draw: Draw = "unbiased"
) -> Tensor:  # (rows, columns) float64
    """A matrix with standard normal entries: each row is a shuffle of quantiles."""
    x = quantiles(columns, draw)
    # randperm draws integers only: the same order on every machine, unlike randn's last bits.
    # With the generator's device, so that a default device set by the caller does not matter.
    orders = [
        torch.randperm(columns, generator=generator, device=generator.device) for _ in range(rows)
    ]
    return torch.stack([x[order.to(x.device)] for order in orders])


def scale_generator(seed: int, scale: int, matrix: Literal["A", "B"]) -> torch.Generator:
    """The generator of one matrix of one scale; its numbers do not depend on the others."""
    if (scale, matrix) == (0, "A"):  # from the seed itself
        return torch.Generator().manual_seed(seed)
    entropy = [seed % 2**64, scale, "AB".index(matrix)]  # a SeedSequence takes no negative numbers
    derived = np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(derived))


def authors_standard_normal(rows: int, columns: int, *, seed: int = 0) -> Tensor:
    """The numbers that the authors' package draws (``ExactVecKM``, ``FastVecKM``).

    Row i is the paper's quantiles shuffled by NumPy's legacy generator seeded with ``seed + i``.
    The package divides the points by the radius first, so ``alpha / radius`` times this matrix
    is its A in the units of the data, and ``1.8 / radius`` times it is its B. The networks in the
    authors' ``experiments`` draw from NumPy's global generator instead: take A from their weights.

    Shapes:
        returns: (rows, columns) float64.
    """
    x = quantiles(columns, "paper").numpy()
    shuffled = [np.random.RandomState(seed + i).permutation(x) for i in range(rows)]
    return torch.from_numpy(np.stack(shuffled))


def suggest_radius(
    pos: Tensor,  # (N, D_in)
    *,
    neighbors: int = 64,
    samples: int = 2000,
) -> float:
    """A radius for this cloud from its own density.

    The median, over a sample of the points, of the distance to the `neighbors`-th neighbor: half
    of the points see at least that many others within it. It scales with the data's units.
    """
    if pos.dim() != 2 or pos.shape[0] < 2:
        raise ValueError(
            f"cannot suggest a radius from a tensor of shape {tuple(pos.shape)}: "
            "pass one cloud of at least two points, (N, D_in)"
        )
    x = pos.detach().cpu().double().numpy()
    if not np.isfinite(x).all():
        raise ValueError("cannot suggest a radius: pos has NaN or infinite coordinates; drop them")
    k = min(neighbors, len(x) - 1)
    step = max(1, len(x) // samples)  # a fixed stride: no randomness, the same answer every time
    radius = float(np.median(query(build_tree(x), x[::step], k + 1)[0][:, -1]))
    if radius <= 0:
        raise ValueError(
            f"cannot suggest a radius: at least half of the points coincide with {k} others; "
            "remove duplicate points or give the radius yourself"
        )
    return radius
