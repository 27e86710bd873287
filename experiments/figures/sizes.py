"""The effect of D, of p and of the engine on how exact encodings are (appendix C)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from experiments.figures.style import COLOR, MARKER, plain
from veckm.data import shapes
from veckm.encoder import VecKM
from veckm.functional import kernel_mixture, reconstruct
from veckm.planning import EngineName

TITLE = "The effect of D, p and the engine (appendix C)"
DIMS, FEATURES = (16, 64, 256, 1024), (64, 256, 1024, 4096)
ALPHA, BETA = 30.0, 10.0
#: Accuracy that the engines with one are asked for.
EPS = 1e-2
_PLACES = 64


@dataclass(frozen=True)
class Errors:
    """What was measured.

    Attributes:
        density: root mean square error of reconstructed densities for each D, as a share of the
            largest density.
        features: mean relative error of the paper's random features for each p.
        engines: mean relative error of each engine that takes an accuracy.
        count: points of the cloud.
    """

    density: dict[int, float]
    features: dict[int, float]
    engines: dict[str, float]
    count: int


def compute(quick: bool = False) -> Errors:
    """Measure against the definition, in float64 where it is the truth.

    Args:
        quick: fewer points and features.
    """
    pos = shapes.statue(800 if quick else 3000).pos
    truth = _encode(pos.double(), "dense")
    features = {
        p: _error(_encode(pos, "random", p), truth) for p in (FEATURES[:3] if quick else FEATURES)
    }
    names: tuple[EngineName, ...] = ("grid", "neighbors")
    engines = {str(name): _error(_encode(pos, name), truth) for name in names}
    return Errors({dim: _density_error(pos, dim) for dim in DIMS}, features, engines, len(pos))


def _encode(pos: Tensor, engine: EngineName, p: int = 1) -> Tensor:  # (N, D) complex
    encoder = VecKM(256, alpha=ALPHA, beta=BETA, engine=engine, eps=EPS, p=p)
    out: Tensor = encoder(pos, progress=False)
    return out


def _error(G: Tensor, truth: Tensor) -> float:
    """Mean over the points of |G - truth| / |truth|."""
    return float(((G - truth).norm(dim=1) / truth.norm(dim=1)).mean())


def _density_error(pos: Tensor, dim: int) -> float:
    """How far Proposition 1 is from the mixture that it tends to, about some of the points."""
    encoder = VecKM(dim, alpha=ALPHA, beta=BETA, engine="dense", norm="mean", p=1)
    G = encoder(pos, queries=pos[:_PLACES])
    generator = torch.Generator().manual_seed(0)
    at = torch.randn(200, 3, generator=generator) / (2 * BETA)
    square = top = 0.0
    for k in range(len(G)):
        near = pos - pos[k]
        weight = torch.exp(-(BETA**2) * near.square().sum(1) / 2)
        mixture = kernel_mixture(near, at, ALPHA, weight)
        square += float((reconstruct(G[k], at, encoder.A[0]) - mixture).square().mean())
        top = max(top, float(mixture.max()))
    return math.sqrt(square / len(G)) / top


def draw(errors: Errors) -> Figure:
    """Error against D on the left, against p on the right, with the engines as lines."""
    figure = Figure(figsize=(9.6, 4.0))
    left, right = figure.subplots(1, 2)
    _line(left, errors.density, "grid", "measured")
    left.set(xlabel="D, complex numbers", ylabel="error of the density / its largest value")
    left.set_title("Reconstruction against D (alpha = 30)")
    _line(right, errors.features, "random", "random features (paper)")
    for name, value in errors.engines.items():
        style = "--" if name == "grid" else "-."
        label = f"{name}, eps = {EPS:g}: {value:.2%}"
        right.axhline(value, linestyle=style, color=COLOR[name], label=label)
    right.set(xlabel="p, random features", ylabel="mean relative error of encodings")
    right.set_title(f"Encodings against p (beta = 10, {errors.count:,} points)")
    for axes in (left, right):
        plain(axes.yaxis, lambda value, _: f"{value * 100:g} %", (1.0, 2.0, 5.0))
        axes.minorticks_off()
        axes.legend(fontsize=9)
    return figure


def _line(axes: Axes, values: dict[int, float], name: str, label: str) -> None:
    x, y = list(values), list(values.values())
    axes.loglog(x, y, color=COLOR[name], marker=MARKER[name], label=label)
    law = [y[0] * (x[0] / size) ** 0.5 for size in x]
    axes.loglog(x, law, ":", color="#666666", label="1 / square root")
    axes.set_xticks(x, [f"{size:,}" for size in x])
