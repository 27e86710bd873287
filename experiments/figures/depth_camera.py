"""Normals of a depth camera's frame as colors, ours beside PCA: a wall should have one color.

    python -m experiments.figures.depth_camera FRAME --out FOLDER

FRAME is a cloud in the frame of the camera, x right, y down, z forward, such as a fragment of
3DMatch; it is no part of this project.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from matplotlib.figure import Figure
from torch import Tensor
from tyro.conf import Positional, arg

from experiments.figures.normals import USUAL
from experiments.figures.style import bare, styled
from veckm import io
from veckm.io.atomic import writing
from veckm.tasks.normals import estimate
from veckm.tasks.normals.classical import pca_normals

NAME = "normals_room"
MANY = 122  # of the neighbors that PCPNet's authors give PCA


@dataclass(frozen=True)
class Options:
    """Draw the normals of a depth camera's frame, ours beside PCA."""

    frame: Positional[Annotated[Path, arg(metavar="FRAME")]]
    """The cloud, in any format that veckm reads."""
    out: Path
    """Folder to write to; created if it does not exist."""
    crop: tuple[float, float, float, float] = (-0.62, 0.3, -0.3, 0.3)
    """What is shown: left, right, bottom and top, as parts of the distance."""


def compute(pos: Tensor) -> dict[str, Tensor]:  # (N, 3) -> (N, 3) each
    """Normals of all methods, turned to the camera."""
    found = {"veckm": estimate(pos).normal}
    found |= {f"PCA, k = {k}": pca_normals(pos, k) for k in (USUAL, MANY)}
    return {
        name: normal * (1 - 2 * ((normal * pos).sum(1, keepdim=True) > 0).to(normal))
        for name, normal in found.items()
    }


def draw(
    pos: Tensor,  # (N, 3)
    found: dict[str, Tensor],  # (N, 3) each
    crop: tuple[float, float, float, float],
) -> Figure:
    """A panel a method as the camera sees it, far points first."""
    figure = Figure(figsize=(3.2 * len(found), 2.4))
    u, v = pos[:, 0] / pos[:, 2], -pos[:, 1] / pos[:, 2]
    left, right, bottom, top = crop
    inside = (pos[:, 2] > 0) & (u > left) & (u < right) & (v > bottom) & (v < top)
    order = inside.nonzero()[:, 0]
    order = order[pos[order, 2].argsort(descending=True)]
    for axes, (name, normal) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        bare(axes)
        color = (normal[order] * normal.new_tensor([1, -1, -1]) + 1) / 2
        x, y = u[order].numpy(), v[order].numpy()
        axes.scatter(x, y, s=1.6, c=color.clamp(0, 1).numpy(), linewidths=0, rasterized=True)
        axes.set(xlim=(left, right), ylim=(bottom, top))
        axes.set_title(name, fontsize=9)
    return figure


def main(options: Options) -> int:
    """Read, estimate, draw, write a PNG."""
    try:
        pos = torch.from_numpy(io.read(options.frame).xyz).float()
        path = options.out / f"{NAME}.png"
        options.out.mkdir(parents=True, exist_ok=True)
        with styled(), writing(path) as file:
            figure = draw(pos, compute(pos), options.crop)
            figure.savefig(file, format="png", metadata={"Software": None})
    except (OSError, ValueError) as error:
        print(f"depth_camera: error: {error}", file=sys.stderr)
        return 2
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__, config=(tyro.conf.FlagCreatePairsOff,))))
