"""The effect of alpha and beta: what is like a point, at each level of detail and size (app. C)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from experiments.figures.camera import project, scatter
from experiments.figures.style import RISING
from veckm.data import shapes
from veckm.encoder import VecKM
from veckm.frequencies import radius_from_beta
from veckm.functional import similarity

TITLE = "The effect of alpha and beta (appendix C)"
ALPHAS, BETAS = (10.0, 20.0, 40.0), (5.0, 10.0, 20.0)
DIM = 256


@dataclass(frozen=True, eq=False)
class Panel:
    """Similarity with one point, for an alpha and a beta.

    Shapes:
        - values: (N,)
    """

    alpha: float
    beta: float
    values: np.ndarray

    @property
    def alike(self) -> float:
        """Share of the points whose similarity is more than a half."""
        return float((self.values > 0.5).mean())


@dataclass(frozen=True, eq=False)
class Maps:
    """A cloud, the point that all are compared with, and a panel for each alpha and beta.

    Shapes:
        - pos: (N, 3), normal: (N, 3)
    """

    pos: Tensor
    normal: Tensor | None  # of the shape, to draw what faces the eye
    row: int
    panels: list[Panel]


def compute(quick: bool = False) -> Maps:
    """Compare every point of a statue with one, for each alpha and beta.

    Args:
        quick: fewer points.
    """
    shape = shapes.statue(1500 if quick else 12_000)
    pos = shape.pos
    row = int(project(pos)[:, 2].argmax())  # the point nearest to the eye, so that one sees it
    panels = []
    for alpha in ALPHAS:
        for beta in BETAS:
            G = VecKM(DIM, alpha=alpha, beta=beta, p=1)(pos)
            panels.append(Panel(alpha, beta, similarity(G, G[row]).numpy()))
    return Maps(pos, shape.normal, row, panels)


def draw(maps: Maps) -> Figure:
    """A row an alpha, a column a beta."""
    figure = Figure(figsize=(7.2, 8.0))
    axes = figure.subplots(len(ALPHAS), len(BETAS))
    x, y, _ = project(maps.pos[maps.row : maps.row + 1])[0].tolist()
    for at, panel in zip(axes.flat, maps.panels, strict=True):
        size = 7e4 / len(maps.pos)
        dots = scatter(at, maps.pos, panel.values, size, maps.normal, cmap=RISING, vmin=0, vmax=1)
        at.plot(x, y, "o", markersize=9, markerfacecolor="none", color="#D55E00")
        at.set_title(
            f"alpha = {panel.alpha:g}, radius {radius_from_beta(panel.beta):.2g}\n"
            f"(beta = {panel.beta:g}), {100 * panel.alike:.0f} % above 0.5",
            fontsize=9,
            loc="center",
        )
    bar = figure.colorbar(
        dots, ax=list(axes.flat), shrink=0.6, location="bottom", pad=0.02, aspect=40
    )
    bar.set_label("similarity with the encoding of the marked point")
    figure.suptitle(
        f"Finer detail downward, smaller neighborhoods rightward "
        f"(D = {DIM}, {len(maps.pos):,} points, unit ball)",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    return figure
