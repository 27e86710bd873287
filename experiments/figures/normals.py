"""Where normals are wrong: the sample scan and a street, ours beside PCA with two numbers of k."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from experiments.figures.camera import scatter
from veckm.data import Shape, shapes
from veckm.tasks.normals import estimate
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.evaluate import angle_error, best_k, rmse

TITLE = "Where normals are wrong: a scanned house"
STREET = "Where normals are wrong: a street as a spinning scanner sees it"
USUAL = 30
WORST = 30.0  # degrees, the end of the colors
#: From right, which is pale, to wrong.
COLORS = LinearSegmentedColormap.from_list("error", ["#c9d6e2", "#f2b134", "#d1350f", "#4a0d0d"])


@dataclass(frozen=True)
class Panel:
    """One method on the cloud."""

    name: str
    error: Tensor  # (N,) degrees


@dataclass(frozen=True)
class Errors:
    """A cloud and the errors of all methods on it."""

    shape: Shape
    panels: tuple[Panel, ...]
    lift: float  # elevation of the eye, degrees


def house(quick: bool) -> Errors:
    """The sample of the command line."""
    return errors(shapes.house(4_000 if quick else 30_000, meters=True), 20.0)


def street(quick: bool) -> Errors:
    """The middle of a street, where the rings of a spinning scanner are close and far apart."""
    whole = shapes.lidar(8_000 if quick else 60_000, meters=True)
    found = errors(whole, 38.0)
    near = whole.pos[:, :2].abs().amax(1) < 16
    kept = tuple(Panel(panel.name, panel.error[near]) for panel in found.panels)
    return Errors(whole[near], kept, found.lift)


def errors(shape: Shape, lift: float) -> Errors:
    """Ours, and PCA with the usual k and with the best."""
    pos, truth = shape.pos, shape.normal
    best = best_k(pos, truth)
    found = {"veckm": estimate(pos).normal, f"PCA, k = {USUAL}": pca_normals(pos, USUAL)}
    if best != USUAL:
        found[f"PCA, k = {best}, the best k"] = pca_normals(pos, best)
    panels = tuple(Panel(name, angle_error(normal, truth)) for name, normal in found.items())
    return Errors(shape, panels, lift)


def draw(found: Errors) -> Figure:
    """A panel a method, the error as the color, the same colors in all."""
    count = len(found.panels)
    figure, row = plt.subplots(1, count, figsize=(2.55 * count + 0.5, 1.9), squeeze=False)
    shown = None
    for axes, panel in zip(row[0], found.panels, strict=True):
        error = panel.error
        shown = scatter(
            axes, found.shape.pos, error.numpy(), size=1.3, normal=found.shape.normal,
            elevation=found.lift, cmap=COLORS, vmin=0.0, vmax=WORST,
        )  # fmt: skip
        axes.margins(0.01)
        good = float((error < 5).double().mean())
        axes.set_title(f"{panel.name}\nRMSE {rmse(error):.1f}°, {good:.0%} below 5°", fontsize=8)
    assert shown is not None
    bar = figure.colorbar(shown, ax=row[0].tolist(), shrink=0.7, pad=0.01, extend="max")
    bar.set_label("error, degrees", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure
