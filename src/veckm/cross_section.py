"""A plane through a point, across its surface: the neighbors there, and what an encoding holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veckm.engines import Gaussian
from veckm.frequencies import BETA_TIMES_RADIUS
from veckm.functional import reconstruct

#: Half of the side of the plane, half of its thickness, and what counts as near, in radii.
_SIDE, _THICK, _NEAR = 1.5, 0.25, 2.2
#: Neighbors in the mixture that the density is compared with; a random part if there are more.
_MOST = 1500


@dataclass(frozen=True, eq=False)
class Cut:
    """What is near the plane, and the density on it that an encoding holds (Proposition 1)."""

    points: Tensor  # (K, 2) neighbors near the plane, about the point; the second is across
    weight: Tensor  # (K,) of the window at each of them
    density: Tensor  # (P, P) from the encoding, from the top of the plane to its bottom
    mixture: Tensor  # (P, P) the kernel mixture of all neighbors, which the density estimates
    side: float  # half of the side of the plane
    seen: int  # points within the radius, wherever they are
    axes: Tensor  # (3, 3) rows: along the surface, across it, and out of the plane

    @property
    def agreement(self) -> float:
        """Correlation of the density with the mixture, over the plane."""
        both = torch.stack([self.density.flatten(), self.mixture.flatten()]).double()
        return float(torch.corrcoef(both)[0, 1])


def cut(
    pos: Tensor,  # (N, 3)
    at: Tensor,  # (3,): its encoding is of the points of the cloud around it
    encoding: Tensor,  # (D,) complex
    A: Tensor,  # (3, D)
    *,
    alpha: float,
    beta: float,
    cells: int = 60,  # along a side of the plane
    axes: Tensor | None = None,  # (3, 3) of another cut, to see the same plane again
) -> Cut:
    """The cut through a point."""
    radius = BETA_TIMES_RADIUS / beta
    offset = pos - at  # (N, 3)
    distance = offset.square().sum(1)
    near = offset[distance <= (_NEAR * radius) ** 2]
    weight = Gaussian(beta)(near.square().sum(1))
    if axes is None:
        axes = _axes(near, weight)
    side = _SIDE * radius
    flat = near @ axes.t()  # (K, 3): along, across, out
    drawn = (flat[:, 2].abs() <= _THICK * radius) & (flat[:, :2].abs() < side).all(1)
    middle = (torch.arange(cells) + 0.5) / cells * 2 * side - side
    v, u = torch.meshgrid(middle.flip(0), middle, indexing="ij")  # from the top left
    places = u.reshape(-1, 1) * axes[0] + v.reshape(-1, 1) * axes[1]  # (P * P, 3)
    some = torch.randperm(len(near), generator=torch.Generator().manual_seed(0))[:_MOST]
    # As functional.kernel_mixture, by a matrix product: a click waits for it.
    kernel = Gaussian(alpha)(torch.cdist(places, near[some]).square())  # (P * P, K)
    mixture = kernel @ weight[some] / weight[some].sum()
    return Cut(
        points=flat[drawn, :2],
        weight=weight[drawn],
        density=reconstruct(encoding, places, A).view(cells, cells),
        mixture=mixture.view(cells, cells),
        side=side,
        seen=int((distance <= radius**2).sum()),
        axes=axes,
    )


def _axes(near: Tensor, weight: Tensor) -> Tensor:  # (K, 3), (K,) -> (3, 3)
    """The main direction of the surface, the direction across it, and the third."""
    middle = (near * weight[:, None]).sum(0) / weight.sum()
    centered = (near - middle).double()
    vectors: Tensor = torch.linalg.eigh(centered.t() @ (centered * weight[:, None]))[1]
    axes = vectors[:, [2, 0, 1]].t()
    # Either sign would do; this one shows what is up as up.
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    return (axes * largest.sign()).to(near)
