"""One style for every plot: colors that the color-blind tell apart (Okabe and Ito), units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

COLOR = {
    "grid": "#0072B2",
    "neighbors": "#009E73",
    "dense": "#E69F00",
    "random": "#D55E00",
    "paper": "#D55E00",
    "auto": "#000000",
    "floor": "#999999",
}
MARKER = {"grid": "o", "neighbors": "s", "dense": "^", "random": "D", "auto": "x", "floor": "_"}
#: From dark to light, also in gray.
RISING = "viridis"
#: Colors for numbers that rise, as of D: the same map, without its palest end.
STEPS = ("#440154", "#31688e", "#35b779", "#b5de2b")
STYLE: Mapping[str, Any] = {
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "legend.frameon": False,
    "figure.figsize": (6.4, 4.2),
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "savefig.facecolor": "white",
    # The same numbers give the same SVG.
    "svg.hashsalt": "veckm",
}


@contextmanager
def styled() -> Iterator[None]:
    """Plots made and written in the block have the style; others are left alone."""
    with mpl.rc_context(dict(STYLE)):  # type: ignore[arg-type]
        yield


def plain(
    axis: Axis,
    text: Callable[[float, int], str] = lambda value, _: f"{value:g}",
    subs: tuple[float, ...] = (1.0,),
) -> None:
    """Numbers at the powers of ten, or at these multiples of them, as people write them."""
    axis.set_major_locator(LogLocator(10.0, subs=subs))
    axis.set_major_formatter(FuncFormatter(text))
    axis.set_minor_formatter(NullFormatter())


def framed(axes: Axes) -> None:
    """A picture with a thin frame about what it shows, no numbers."""
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, color="#cccccc")


def bare(axes: Axes) -> None:
    """A picture rather than a plot: no axes, the same scale both ways."""
    axes.set_aspect("equal")
    axes.set_axis_off()
