"""The rigid motion that most matches agree on, however many of them are wrong.

    C_ij = [ | |p_i - p_j| - |q_i - q_j| | < t ]      two matches keep their distance
    S = C * (C C)                                     and how many others agree with both

Right matches agree with all other right ones, wrong ones with few, so that S of a right pair is
large even where most matches are wrong (second order spatial compatibility, Chen et al., "SC2-PCR",
CVPR 2022). Every seed moves by the matches that S ranks first beside it; the motion with most
inliers wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Matches beyond this are left out, the worst first, and rows of S beyond that, those with fewest
#: matches that keep their distance: S costs the square of the one times the other.
MOST, _LIKELY = 1500, 600
_SEEDS, _NEAR, _ROUNDS = 300, 20, 10


@dataclass(frozen=True)
class Candidates:
    """Motions in falling order of the number of matches that agree with them."""

    rotation: Tensor  # (H, 3, 3)
    translation: Tensor  # (H, 3)
    inliers: Tensor  # (H, M) bool


def consensus(
    source: Tensor,  # (M, 3) float64, best matches first
    target: Tensor,  # (M, 3) float64
    tolerance: float,
    count: int,
    up: bool = False,
) -> Candidates:
    """At most `count` distinct motions that move matched source points onto their targets.

    With `up` rotations are about z only.
    """
    p, q = source[:MOST], target[:MOST]
    compatible = (torch.cdist(p, p) - torch.cdist(q, q)).abs().lt(tolerance).float()
    compatible.fill_diagonal_(0)
    likely = compatible.sum(1).topk(min(_LIKELY, len(p))).indices
    support = compatible[likely] * (compatible[likely] @ compatible)
    best = support.sum(1).topk(min(_SEEDS, len(likely))).indices
    seeds = likely[best]
    weight, near = support[best].topk(min(_NEAR, len(p)), dim=1)
    weight = torch.cat([weight.amax(1, keepdim=True).clamp_min(1), weight], 1).double()
    near = torch.cat([seeds[:, None], near], 1)  # the seed itself is one of them
    R, t = kabsch(p[near], q[near], weight, up)
    error = _errors(R, t, source, target)
    found = (error < tolerance).sum(1).topk(min(4 * count, len(R))).indices
    R, t = R[found], t[found]
    for _ in range(_ROUNDS):  # the least squares of those that agree, truncated at the tolerance
        inlier = _errors(R, t, source, target) < tolerance
        R, t = kabsch(source, target, inlier.double(), up)
    inlier = _errors(R, t, source, target) < tolerance
    order = inlier.sum(1).argsort(descending=True, stable=True)
    kept: list[int] = []
    for i in order.tolist():  # motions that share most of their inliers are one
        same = [(inlier[i] & inlier[k]).sum() > 0.5 * inlier[i].sum() for k in kept]
        if not any(same) and len(kept) < count:
            kept.append(i)
    return Candidates(R[kept], t[kept], inlier[kept])


def kabsch(
    p: Tensor,  # (..., M, 3)
    q: Tensor,  # (..., M, 3)
    weight: Tensor,  # (..., M)
    up: bool = False,
) -> tuple[Tensor, Tensor]:  # (..., 3, 3), (..., 3)
    """argmin over rotations R and translations t of sum_i w_i |R p_i + t - q_i|^2.

    With `up` over rotations about z.
    """
    weight = (weight / weight.sum(-1, keepdim=True).clamp_min(1e-300))[..., None]
    middle_p, middle_q = (weight * p).sum(-2), (weight * q).sum(-2)
    H = (weight * (p - middle_p[..., None, :])).mT @ (q - middle_q[..., None, :])
    if up:  # leaves z where it is
        angle = torch.atan2(H[..., 0, 1] - H[..., 1, 0], H[..., 0, 0] + H[..., 1, 1])
        H = torch.zeros_like(H)
        H[..., 0, 0] = H[..., 1, 1] = angle.cos()
        H[..., 0, 1], H[..., 1, 0] = angle.sin(), -angle.sin()
        H[..., 2, 2] = 1
    U, _, Vh = torch.linalg.svd(H)
    flip = torch.ones_like(middle_p)
    flip[..., 2] = torch.linalg.det(Vh.mT @ U.mT).sign()
    R = Vh.mT @ (flip[..., None] * U.mT)
    return R, middle_q - (R @ middle_p[..., None])[..., 0]


def _errors(R: Tensor, t: Tensor, p: Tensor, q: Tensor) -> Tensor:  # (H, M)
    off: Tensor = torch.linalg.vector_norm(p @ R.mT + t[:, None] - q, dim=-1)
    return off
