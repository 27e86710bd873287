"""What an encoding still knows of a shape when its points are corrupted (Fig. 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments.figures.style import RISING, framed
from veckm.cross_section import Cut, cut
from veckm.data import shapes
from veckm.data.protocol import add_noise, gradient_density, stripe_density
from veckm.data.sampling import Density
from veckm.encoder import VecKM
from veckm.functional import similarity

TITLE = "Reconstruction under corruption (Fig. 5)"
RADIUS, DETAIL, DIM = 0.3, 9.0, 1024
_PLACES = 500


@dataclass(frozen=True, eq=False)
class Panel:
    """One corruption: the neighborhood of a place, and the density that its encoding holds."""

    name: str
    count: int  # points of the cloud
    cut: Cut
    similarity: float  # of this place's encoding with the clean one's
    everywhere: float  # the same, mean over many places


def compute(quick: bool = False) -> list[Panel]:
    """Corrupt a statue in the ways of PCPNet, and encode the same places of each.

    Args:
        quick: fewer points.
    """
    pos = shapes.statue(4000 if quick else 30_000).pos
    encoder = VecKM(DIM, radius=RADIUS, detail=DETAIL, p=1)
    # The top of the statue, where the surface bends, and other places without a choice.
    places = torch.cat([pos[pos[:, 2].argmax()][None], pos[: 20 if quick else _PLACES]])
    clean, out, axes = encoder(pos, queries=places), [], None
    for name, corrupt in _CORRUPTIONS.items():
        moved = corrupt(pos)
        G = encoder(moved, queries=places)
        found = cut(
            moved, places[0], G[0], encoder.A[0],
            alpha=encoder.alpha[0], beta=encoder.beta[0], cells=90, axes=axes,
        )  # fmt: skip
        axes = found.axes  # all see the plane of the clean one
        like = similarity(G, clean)
        out.append(Panel(name, len(moved), found, float(like[0]), float(like.mean())))
    return out


def draw(panels: list[Panel]) -> Figure:
    """Neighborhoods above, what their encodings hold below."""
    figure = Figure(figsize=(11.0, 4.7))
    axes = figure.subplots(2, len(panels))
    for (top, bottom), panel in zip(axes.T, panels, strict=True):
        found, side = panel.cut, panel.cut.side
        x, y = found.points.t().numpy()
        top.scatter(
            x, y, s=4, c=found.weight.numpy(), cmap="Greys", vmin=-0.3, vmax=1, linewidths=0
        )
        top.set(xlim=(-side, side), ylim=(-side, side))
        top.set_title(f"{panel.name}\n{panel.count:,} points", fontsize=9, loc="center")
        image = bottom.imshow(
            (found.density.clamp_min(0) / found.density.max()).numpy(),
            extent=(-side, side, -side, side), cmap=RISING, vmin=0, vmax=1,
        )  # fmt: skip
        bottom.set_title(
            f"similarity {panel.similarity:.3f}\nmean of places {panel.everywhere:.3f}",
            fontsize=9,
            loc="center",
        )
        for at in (top, bottom):
            framed(at)
    bar = figure.colorbar(image, ax=list(axes.flat), shrink=0.45, anchor=(0.0, 0.1))
    bar.set_label("density / largest")
    figure.suptitle(
        f"Neighbors near a plane across the surface, {2 * side:.2g} wide, and the density that "
        f"their encoding alone holds (radius {RADIUS}, D = {DIM})",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    return figure


def _thinned(density: Callable[..., Density]) -> Callable[[Tensor], Tensor]:
    def thin(pos: Tensor) -> Tensor:
        chance = torch.rand(len(pos), generator=torch.Generator().manual_seed(1))
        return pos[chance < density(pos)(pos)]

    return thin


def _noisy(share: float) -> Callable[[Tensor], Tensor]:
    return lambda pos: add_noise(pos, share)


_CORRUPTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "clean": lambda pos: pos,
    "noise 0.12 %": _noisy(0.0012),
    "noise 0.6 %": _noisy(0.006),
    "noise 1.2 %": _noisy(0.012),
    "density gradient": _thinned(gradient_density),
    "density stripes": _thinned(stripe_density),
}
