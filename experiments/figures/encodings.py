"""Encodings as colors, and how they stand noise (Fig. 1, left)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from experiments.figures.camera import scatter
from veckm.data import shapes
from veckm.data.protocol import add_noise
from veckm.encoder import VecKM
from veckm.functional import similarity
from veckm.palette import Palette

TITLE = "Encodings as colors, and under noise (Fig. 1, left)"
#: The noise of PCPNet's sets, standard deviation as a share of the diagonal of the box.
NOISE = (0.0, 0.0012, 0.006, 0.012)
RADIUS, DETAIL, DIM = 0.25, 6.0, 256
_SHAPES: dict[str, Callable[[int], shapes.Shape]] = {"statue": shapes.statue, "box": shapes.box}


@dataclass(frozen=True, eq=False)
class Panel:
    """A shape with some noise.

    Shapes:
        - pos: (N, 3), normal: (N, 3), rgb: (N, 3) uint8
    """

    shape: str
    noise: float
    pos: Tensor
    normal: Tensor | None  # of the shape, to draw what faces the eye
    rgb: np.ndarray
    similarity: float  # mean, with the same points without noise


def compute(quick: bool = False) -> list[Panel]:
    """Encode two shapes with more and more noise; colors are those of the clean shape's palette.

    Args:
        quick: fewer points.
    """
    encoder = VecKM(DIM, radius=RADIUS, detail=DETAIL, p=1)
    out = []
    for name, make in _SHAPES.items():
        shape = make(1500 if quick else 30_000)
        pos = shape.pos
        clean = encoder(pos)
        palette = Palette.of(clean[::2])
        for noise in NOISE:
            moved = add_noise(pos, noise)
            G = encoder(moved)
            like = float(similarity(G, clean).mean())
            out.append(Panel(name, noise, moved, shape.normal, palette.colors(G).numpy(), like))
    return out


def draw(panels: list[Panel]) -> Figure:
    """One row per shape, one column per level of noise."""
    names = list(dict.fromkeys(panel.shape for panel in panels))
    figure = Figure(figsize=(9.6, 4.9))
    axes = figure.subplots(len(names), len(NOISE), squeeze=False)
    for at, panel in zip(axes.flat, panels, strict=True):
        scatter(at, panel.pos, panel.rgb, 2.8e5 / len(panel.pos), panel.normal)
        noise = (
            "no noise" if not panel.noise else f"noise {100 * panel.noise:.2g} % of the diagonal"
        )
        at.set_title(f"{noise}\nmean similarity {panel.similarity:.3f}", fontsize=9, loc="center")
    figure.suptitle(
        f"Encodings without training as colors (radius {RADIUS} of the unit ball, "
        f"D = {DIM}, {len(panels[0].pos):,} points)",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    return figure
