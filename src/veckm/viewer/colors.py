"""Colors of a cloud and what they mean; the color maps are readable with color blindness."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np

from veckm.tasks.normals import Estimate

#: Viridis, from dark to light, at ten places.
SEQUENTIAL = (
    (68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142),
    (31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37),
)  # fmt: skip
#: From blue by a light gray to vermilion, both of Okabe and Ito: for signed values.
DIVERGING = ((0, 114, 178), (122, 176, 208), (235, 235, 235), (226, 163, 119), (213, 94, 0))
#: For three values at once.
RED_GREEN_BLUE = ((220, 40, 40), (30, 160, 60), (50, 80, 230))
GRAY = ((160, 160, 160),)
#: For categories without an order: Okabe and Ito, and darker ones after them.
CATEGORIES = (
    (0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (213, 94, 0),
    (200, 190, 40), (110, 110, 110), (90, 50, 140), (120, 70, 20), (20, 90, 60), (170, 30, 60),
)  # fmt: skip
#: Steps of a color map, and the values that its ends are estimated from.
_STEPS, _SAMPLE = 1024, 200_000

ColorMap = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Legend:
    """What the colors mean.

    Attributes:
        title: the quantity, with its unit.
        labels: one per color, or fewer, along a continuous color map.
        colors: of the labels, or of the color map.
        note: one more sentence.
    """

    title: str
    labels: tuple[str, ...]
    colors: ColorMap
    note: str = ""

    def html(self) -> str:
        """The legend as HTML."""
        body = self._keys() if len(self.labels) == len(self.colors) else self._bar()
        note = f'<div style="opacity:.7">{escape(self.note)}</div>' if self.note else ""
        return small_html(f'<div style="font-weight:600">{escape(self.title)}</div>{body}{note}')

    def _bar(self) -> str:
        stops = ",".join(f"rgb{color}" for color in self.colors)
        bar = f'<div style="height:10px;margin:3px 0;background:linear-gradient(to right,{stops})">'
        labels = "".join(f"<span>{escape(label)}</span>" for label in self.labels)
        return f'{bar}</div><div style="display:flex;justify-content:space-between">{labels}</div>'

    def _keys(self) -> str:
        box = "display:inline-block;width:10px;height:10px;margin-right:6px"
        return "".join(
            f'<div><span style="{box};background:rgb{color}"></span>{escape(label)}</div>'
            for color, label in zip(self.colors, self.labels, strict=True)
        )


def small_html(body: str, color: str = "inherit") -> str:
    """HTML in the small print of the panel."""
    return f'<div style="font-size:12px;padding:2px 12px;color:{color}">{body}</div>'


class Coloring(NamedTuple):
    """A color for every displayed point, and what it means."""

    rgb: np.ndarray  # (M, 3) uint8
    legend: Legend


def map_colors(
    values: np.ndarray, low: float, high: float, colors: ColorMap = SEQUENTIAL
) -> np.ndarray:  # (...,) -> (..., 3) uint8
    """Colors of values between two ends; values beyond have the color of the end."""
    places, stops = np.linspace(0, 1, len(colors)), np.asarray(colors, dtype=np.float64)
    steps = np.linspace(0, 1, _STEPS)
    table = np.stack([np.interp(steps, places, stops[:, channel]) for channel in range(3)], axis=-1)
    share = (np.asarray(values) - low) * ((_STEPS - 1) / (high - low or 1.0))
    found: np.ndarray = np.rint(table).astype(np.uint8)[
        np.nan_to_num(share).clip(0, _STEPS - 1).round().astype(np.int16)
    ]
    return found


def by_range(
    values: np.ndarray,  # (M,)
    title: str,
    note: str = "",
    offset: float = 0.0,  # added to the values in the legend
) -> Coloring:
    """Colors from the 2nd to the 98th percentile."""
    some = values[:: max(1, len(values) // _SAMPLE)]
    low, high = np.nanpercentile(some, [2, 98]).tolist() if not np.isnan(some).all() else (0.0, 1.0)
    for digits in range(3, 12):  # as many as it takes to tell the ends apart
        labels = rounded(low + offset, digits), rounded(high + offset, digits)
        if labels[0] != labels[1]:
            break
    return Coloring(map_colors(values, low, high), Legend(title, labels, SEQUENTIAL, note))


def rounded(value: float, digits: int = 3) -> str:
    """A number with so many significant digits."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def by_signed(values: np.ndarray, title: str, note: str = "") -> Coloring:  # (M,)
    """Colors about zero, symmetric; 5 % of the values lie beyond the ends."""
    end = float(np.percentile(np.abs(values), 95))
    legend = Legend(title, (rounded(-end), "0", rounded(end)), DIVERGING, note)
    return Coloring(map_colors(values, -end, end, DIVERGING), legend)


def by_similarity(
    values: np.ndarray,  # (M,)
    title: str,
    note: str = "Proposition 2; no unit",
) -> Coloring:
    """Colors of similarities, from 0 to 1."""
    legend = Legend(title, ("0", "1: equal"), SEQUENTIAL, note)
    return Coloring(map_colors(values, 0.0, 1.0), legend)


def by_surface(surface: Estimate, color: str, note: str) -> Coloring:
    """By normals, curvature or confidence; the note tells where the normals come from."""
    if color == "normals":
        rgb = np.rint((surface.normal.numpy() * 0.5 + 0.5) * 255).clip(0, 255).astype(np.uint8)
        axes = ("x: red from -1 to 1", "y: green from -1 to 1", "z: blue from -1 to 1")
        return Coloring(rgb, Legend("Normals, unit length", axes, RED_GREEN_BLUE, note))
    if color == "curvature":
        values = surface.mean_curvature.nan_to_num().float().numpy()
        note = "a sphere with outward normals is positive; 5 % lie beyond the ends"
        return by_signed(values, "Mean curvature, 1 / the file's unit", note)
    error, note = surface.error.nan_to_num().float().numpy(), "yellow is least certain"
    return by_range(error, "Expected error of normals, degrees", note)
