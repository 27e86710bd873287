"""Two scans of the sample house from two places: as they come, and aligned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from experiments.figures.camera import project
from experiments.figures.style import bare
from veckm.data.house import make_house
from veckm.data.sampling import gaussian, make_generator, rotation
from veckm.tasks.registration import Registration, register

TITLE = "Two scans of a house, as they come and aligned"
#: Where the scanner stands, in meters; how far it sees, and the noise of a range.
PLACES = ((-5.5, -10.0, 1.9), (4.0, -11.0, 1.9))
_REACH, _NOISE = 9.5, 0.02
#: Matches that are drawn.
_LINES = 60
#: Of the source, of the target, of matches that agree and of those that do not.
COLORS = ("#E69F00", "#0072B2", "#009E73", "#D55E00")


@dataclass(frozen=True)
class Aligned:
    """Two clouds, what moves the first onto the second, and how far off it is in meters."""

    source: Tensor  # (N, 3)
    target: Tensor  # (M, 3)
    found: Registration
    off: float


def compute(quick: bool = False) -> Aligned:
    """Scan the house twice, turn the first scan and align it.

    Args:
        quick: fewer points.
    """
    g = make_generator(0)
    first, target = (_scan(place, 0.012 if quick else 0.006, g) for place in PLACES)
    R = rotation(g).double()
    source = first @ R.T + torch.tensor([500_000.0, 5_200_000.0, 300.0], dtype=torch.float64)
    found = register(source, target)
    off = (found.apply(source) - first).norm(dim=1).mean()
    return Aligned(source, target, found, float(off))


def _scan(place: tuple[float, float, float], step: float, g: torch.Generator) -> Tensor:  # (N, 3)
    """All points on the ground and the house that rays a step apart hit."""
    origin = torch.tensor(place, dtype=torch.float64)
    middle = torch.atan2(-origin[1], -origin[0])
    azimuth = middle + torch.arange(-1.0, 1.0, step, dtype=torch.float64)
    elevation = torch.arange(-0.45, 0.8, step, dtype=torch.float64)
    a, e = torch.cartesian_prod(azimuth, elevation).unbind(-1)
    ray = torch.stack((a.cos() * e.cos(), a.sin() * e.cos(), e.sin()), -1)
    distance = torch.cat([make_house().cast(origin, part)[0] for part in ray.split(2048)])
    pos = origin + distance[:, None] * ray
    hit = (pos[:, :2].abs() < _REACH).all(-1)
    return pos[hit] + _NOISE * gaussian(g, int(hit.sum()), 1) * ray[hit]


def draw(aligned: Aligned) -> Figure:
    """The scans side by side with matches as lines; the one in the frame of the other."""
    figure = Figure(figsize=(9.6, 3.0))
    before, after = figure.subplots(1, 2, width_ratios=(1.6, 1))
    found = aligned.found
    middle = aligned.source.mean(0)
    gap = torch.tensor([-21.0, -6.0, 3.0], dtype=torch.float64)
    source, target = aligned.source - middle + gap, aligned.target
    _points(before, [source, target])
    generator = torch.Generator().manual_seed(0)
    some = torch.randperm(len(found.matches), generator=generator)[:_LINES]
    ends = torch.stack([found.matches[some, 0] - middle + gap, found.matches[some, 1]], 1)
    for (a, b), agrees in zip(ends, found.inliers[some].tolist(), strict=True):
        x, y, _ = project(torch.stack([a, b])).t().numpy()
        before.plot(x, y, color=COLORS[2 if agrees else 3], linewidth=0.5, alpha=0.8)
    agree = int(found.inliers.sum())
    before.set_title(f"before: {agree:,} of {len(found.matches):,} matches agree", fontsize=9)
    _points(after, [found.apply(aligned.source), target])
    after.set_title(
        f"after: confidence {found.confidence:.2f}, overlap {found.overlap:.0%}, "
        f"{aligned.off * 1000:.0f} mm off",
        fontsize=9,
    )
    return figure


def _points(axes: Axes, clouds: list[Tensor]) -> None:
    """Clouds in their colors, far points first."""
    bare(axes)
    flat = np.concatenate([project(cloud).numpy() for cloud in clouds])
    color = np.repeat(COLORS[: len(clouds)], [len(cloud) for cloud in clouds])
    order = flat[:, 2].argsort()
    x, y, _ = flat[order].T
    axes.scatter(x, y, s=0.5, c=color[order], linewidths=0, rasterized=True)
