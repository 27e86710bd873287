"""Directions by cells of a cube: a nearly even partition of the sphere without poles."""

from __future__ import annotations

import torch
from torch import Tensor

SIDE = 128  # cells along an edge of the cube; one spans less than a degree


def centers() -> tuple[Tensor, Tensor]:
    """The face and the middle of every cell, F = 6 SIDE^2 of them.

    Shapes:
        - output: face (F,) int64 from 0 to 5, and st (F, 2) float64 in [-1, 1]
    """
    ticks = (torch.arange(SIDE, dtype=torch.float64) + 0.5) * (2 / SIDE) - 1
    st = torch.cartesian_prod(ticks, ticks).repeat(6, 1)
    return torch.arange(6).repeat_interleave(SIDE**2), st


def to_directions(
    face: Tensor,  # (N,) int64
    st: Tensor,  # (N, 2)
) -> tuple[Tensor, Tensor]:  # (N, 3), (N,)
    r"""From a place on the cube to the unit vector through it, and the solid angle per ds dt.

    .. math:: u = (\pm 1, s, t) / \rho, \qquad d\omega = \rho^{-3}\, ds\, dt, \qquad
              \rho = \sqrt{1 + s^2 + t^2}

    with the coordinates rolled so that the 1 is at face // 2; even faces are the positive ones.

    Shapes:
        - face: (N,), st: (N, 2)
        - output: (N, 3) and (N,)
    """
    rho = (1 + st.square().sum(-1)).sqrt()
    one = (1.0 - 2.0 * (face % 2)).to(st)
    cube = torch.stack((one, st[:, 0], st[:, 1]), dim=-1)
    roll = (torch.arange(3, device=face.device) - face.unsqueeze(-1) // 2) % 3  # (N, 3)
    return cube.gather(1, roll) / rho.unsqueeze(-1), rho**-3


def pick(
    bound: Tensor,  # (F,)
    draws: Tensor,  # (N,) in [0, 1)
) -> Tensor:  # (N,) int64
    """Cells with probability proportional to ``bound``, by inverting the cumulative sum.

    Shapes:
        - bound: (F,), draws: (N,)
        - output: (N,) int64
    """
    total = bound.cumsum(0)
    # right=True never lands in a cell of probability zero; the clamp is for a draw that rounds up.
    return torch.searchsorted(total, draws * total[-1], right=True).clamp_max(len(bound) - 1)
