"""The estimator without training: Gaussian-weighted PCA at several scales, each point its own.

A larger window averages more noise away, but bends around corners. The largest window is taken
whose normal agrees with those of all smaller ones within what noise alone explains (Lepski's
rule). The noise is read off the smallest window: there the surface is still flat.

    se_s^2 = noise^2 / (l1_s m_s)        noise^2: the smallest eigenvalue of the first window
                                         l1_s, m_s: middle eigenvalue, points in window s
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veckm.engines import Gaussian, GridTooLarge
from veckm.functional import moments
from veckm.moments import Moments
from veckm.parallel import one_thread
from veckm.tasks.normals import eigen
from veckm.tasks.normals.levels import centered

#: Standard deviations of the windows, in units of the spacing of the cloud.
SCALES = (2.0, 3.2, 5.0, 8.0, 12.5, 20.0)
#: Agreement: this many standard errors, and this many radians beside.
_ERRORS, _SLACK = 2.5, 0.02
#: Windows also bend, which their standard error does not know: on clouds of meshes, clean, noisy
#: and unevenly dense, the mean error was three to five times as large.
_BENDING = 4.0
#: A window with fewer points than this has no plane.
_FEWEST = 4.0


@dataclass(frozen=True)
class Scales:
    """Planes of all windows at all points."""

    normal: Tensor  # (S, 3, N)
    eigenvalues: Tensor  # (S, 3, N) ascending
    count: Tensor  # (S, N) points in the window


def planes(pos: Tensor, progress: bool | None = None) -> Scales:  # (N, 3)
    """Weighted PCA of every window."""
    x = centered(pos)[0].float()
    normal, values, count = [], [], []
    for sigma in SCALES:
        try:
            m = moments(x, beta=1 / sigma, eps=1e-2, progress=progress)
        except GridTooLarge:  # so thin that a window this small holds nobody but the point itself
            m = Moments(
                x.new_ones(len(x)),
                torch.zeros_like(x),
                x.new_zeros(len(x), 3, 3),
                Gaussian(1 / sigma),
            )
        covariance = eigen.packed(m.covariance)
        n = eigen.smallest(covariance)
        normal.append(n)
        values.append(eigen.spectrum(covariance, n))
        count.append(m.weight)
    return Scales(torch.stack(normal), torch.stack(values), torch.stack(count))


def choose(scales: Scales) -> Tensor:  # (N,) int64
    """The scale of every point."""
    low = scales.eigenvalues[:, 0]
    enough = scales.count >= _FEWEST
    first = enough.float().argmax(0)  # the smallest window with a plane
    noise = low.gather(0, first[None])[0]
    se = (noise / (scales.eigenvalues[:, 1] * scales.count).clamp_min(1e-12)).sqrt()
    best, alive = first.clone(), torch.ones_like(first, dtype=torch.bool)
    for s in range(1, len(SCALES)):
        later = s > first
        fits = torch.ones_like(alive)
        for t in range(s):
            cosine = eigen.dot(scales.normal[s], scales.normal[t]).abs().clamp(max=1.0)
            near = cosine.acos() <= _ERRORS * se[t] + _SLACK
            fits &= near | ~enough[t]
        alive &= fits | ~later
        best = torch.where(alive & later, s, best)
    return best


@one_thread()
def moment_normals(pos: Tensor, progress: bool | None = None) -> tuple[Tensor, Tensor]:
    """Normals (N, 3) and expected angle errors (N,) in degrees, from moments alone."""
    scales = planes(pos, progress)
    best = choose(scales)[None]
    three = best[:, None].expand(-1, 3, -1)
    low, middle, _ = scales.eigenvalues.gather(0, three)[0]
    count = scales.count.gather(0, best)[0]
    normal = scales.normal.gather(0, three)[0].t().contiguous()
    se = (low / (middle * count.clamp_min(1.0)).clamp_min(1e-12)).sqrt()
    return normal, torch.rad2deg(_BENDING * se).clamp(0.0, 60.0)
