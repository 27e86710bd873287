"""How far encodings are from the definition, on a sample of their rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from veckm.functional import encode
from veckm.sizes import WindowName

#: Distance in units of the radius beyond which a window has nothing left in float64:
#: exp(-(1.8 * 5)^2 / 2) is 3e-18.
_REACH: dict[WindowName, float] = {"gaussian": 5.0, "ball": 1.01}
_POINTS_AT_ONCE = 16_384


@dataclass(frozen=True)
class Sample:
    """Some rows of a cloud and their encodings by the definition, all pairs in float64."""

    rows: Tensor  # (R,) int64
    truth: Tensor  # (R, D) complex128, of norm sqrt(D)

    @classmethod
    def draw(
        cls,
        pos: Tensor,  # (N, D_in)
        A: Tensor,  # (D_in, D)
        window: WindowName,
        radius: float,
        count: int,
        seed: int = 0,
    ) -> Sample:
        """`count` random rows and the truth about them."""
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(pos), generator=generator)[:count].sort().values
        pos = pos.double()
        return cls(rows, definition(pos, pos[rows], A.double(), window, radius))

    def errors(self, G: Tensor) -> tuple[float, float]:
        """Mean and largest |G - truth| / |truth| over the rows, G (N, D)."""
        difference = G[self.rows].to(self.truth.dtype) - self.truth
        relative = _length(difference) / _length(self.truth).clamp_min(1e-300)
        return float(relative.mean()), float(relative.max())


def definition(
    pos: Tensor,  # (N, D_in) float64
    at: Tensor,  # (R, D_in) float64
    A: Tensor,  # (D_in, D) float64
    window: WindowName,
    radius: float,
) -> Tensor:  # (R, D)
    """G(q) = sum_j window(x_j - q) exp(i (x_j - q) A) over all points, scaled to norm sqrt(D).

    Points too far from every q to matter are left out; the rest pass in chunks, for the sums of
    the parts of a cloud add up to its own.
    """
    reach = _REACH[window] * radius
    distance, _ = cKDTree(at.numpy()).query(pos.numpy(), distance_upper_bound=reach, workers=-1)
    near = pos[torch.from_numpy(distance) <= reach]
    total = torch.zeros(len(at), A.shape[1], dtype=torch.complex128)
    for chunk in near.split(_POINTS_AT_ONCE):
        total += encode(
            chunk, A, radius=radius, window=window, engine="dense", norm=None, queries=at
        )
    return total.mul_((A.shape[1] ** 0.5 / _length(total).clamp_min(1e-300))[:, None])


def _length(values: Tensor) -> Tensor:  # (R, D) complex -> (R,)
    return torch.view_as_real(values).flatten(1).square().sum(1).sqrt()
