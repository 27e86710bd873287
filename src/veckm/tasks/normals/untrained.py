"""The estimator without training: Gaussian-weighted PCA at several scales, chosen per point.

A larger window averages more noise away, but rounds corners. The largest window is taken whose
normal agrees with those of all smaller ones within what noise alone explains (Lepski's rule). The
noise is measured in the smallest window: there the surface is still flat.

    se_s^2 = noise^2 / (l1_s m_s)        noise^2: the smallest eigenvalue of the first window
                                         l1_s, m_s: middle eigenvalue, points in window s
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from veckm.engines import Gaussian
from veckm.functional import moments
from veckm.parallel import one_thread
from veckm.tasks.normals import eigen

#: Standard deviations of the windows, in units of the spacing of the cloud, and their accuracy.
SCALES = (2.0, 3.2, 5.0, 8.0, 12.5, 20.0)
_EPS = 1e-2
#: Agreement: this many standard errors, and this many radians beside.
_ERRORS, _SLACK = 2.5, 0.02
#: The standard error does not include the curvature of the surface: on clouds of meshes, clean,
#: noisy and unevenly dense, the mean error was three to five times as large.
_CURVED = 4.0
#: A window with fewer points than this has no plane.
_FEWEST = 4.0


def window_reach() -> float:
    """How far the widest window reaches, in spacings."""
    return Gaussian(1 / SCALES[-1]).reach(_EPS, 3)


@one_thread()
def moment_normals(
    x: np.ndarray,  # (N, 3)
    rows: np.ndarray,  # (M,)
) -> tuple[Tensor, Tensor]:  # (M, 3), (M,)
    """Normals at some points and expected angle errors in degrees; lengths in spacings."""
    middle = (x[rows].min(0) + x[rows].max(0)) / 2
    place = torch.from_numpy(x - middle).float()
    queries = None if len(rows) == len(x) else place[torch.from_numpy(rows)]
    windows = [
        moments(place, queries=queries, beta=1 / sigma, eps=_EPS, progress=False)
        for sigma in SCALES
    ]
    spread = [eigen.packed(m.covariance) for m in windows]
    normal = torch.stack([eigen.smallest(m) for m in spread])  # (S, 3, M)
    values = torch.stack([eigen.spectrum(m, n) for m, n in zip(spread, normal, strict=True)])
    count = torch.stack([m.weight for m in windows])  # (S, M)
    best, each = _choose(normal, values, count), torch.arange(len(rows))
    low, between, _ = values[best, :, each].t()
    se = (low / (between * count[best, each].clamp_min(1.0)).clamp_min(1e-12)).sqrt()
    return normal[best, :, each], torch.rad2deg(_CURVED * se).clamp(0.0, 60.0)


def _choose(normal: Tensor, values: Tensor, count: Tensor) -> Tensor:  # -> (M,) int64
    """The largest window of each point that all smaller ones agree with."""
    enough = count >= _FEWEST
    first = enough.float().argmax(0)  # the smallest window with a plane
    noise = values[:, 0].gather(0, first[None])[0]
    se = (noise / (values[:, 1] * count).clamp_min(1e-12)).sqrt()
    best, alive = first.clone(), torch.ones_like(first, dtype=torch.bool)
    for s in range(1, len(SCALES)):
        later = s > first
        for t in range(s):
            cosine = eigen.dot(normal[s], normal[t]).abs().clamp(max=1.0)
            near = cosine.acos() <= _ERRORS * se[t] + _SLACK
            alive &= near | ~enough[t] | ~later
        best = torch.where(alive & later, s, best)
    return best
