"""Every way of coloring a cloud."""

from __future__ import annotations

from typing import get_args

import numpy as np

from veckm.palette import Color
from veckm.viewer.colors import (
    RED_GREEN_BLUE,
    RISING,
    Legend,
    Paint,
    colored,
    eight_bits,
    ranged,
    signed,
)
from veckm.viewer.shown import Shown
from veckm.viewer.surface import Surface

COLORS: tuple[Color, ...] = get_args(Color)
#: As the page says it.
LABELS: dict[Color, str] = {
    "encoding": "encoding",
    "normals": "normals",
    "curvature": "curvature",
    "confidence": "confidence of normals",
    "height": "height",
    "file": "the file's own colors",
    "match": "similarity of matching points",
}


def available(shown: Shown) -> tuple[Color, ...]:
    """What this cloud can be colored by."""
    return tuple(c for c in COLORS if c != "file" or shown.cloud.colors is not None)


def height(shown: Shown) -> Paint:
    """By the third coordinate."""
    z = shown.cloud.xyz[shown.rows.numpy(), 2]
    return ranged(z, "Height z, in the file's units")


def own_colors(shown: Shown) -> Paint:
    """By the colors of the file."""
    colors = shown.cloud.colors
    if colors is None:
        raise ValueError(f"{shown.name}: has no colors; color it by something else")
    gray = ((160, 160, 160),)
    legend = Legend("The file's own colors", ("red, green and blue as stored",), gray, False)
    return Paint(eight_bits(colors[shown.rows.numpy()]), legend)


def of_surface(surface: Surface, color: Color) -> Paint:
    """By normals, curvature or confidence."""
    if color == "normals":
        rgb = np.rint((surface.normal * 0.5 + 0.5) * 255).clip(0, 255).astype(np.uint8)
        note = "the file's own" if surface.own else "estimated, the same side of the surface"
        axes = ("x: red from -1 to 1", "y: green from -1 to 1", "z: blue from -1 to 1")
        return Paint(rgb, Legend("Normals, unit length", axes, RED_GREEN_BLUE, False, note))
    if color == "curvature":
        note = "a ball is positive if its normals look out; 5 % lie beyond the ends"
        return signed(surface.bend, "Mean curvature, 1 / the file's unit", note)
    note = "yellow is where they are least certain"
    return ranged(surface.error, "Expected error of normals, degrees", note=note)


def similar(values: np.ndarray, title: str) -> Paint:  # (M,)
    """By similarity, from none to equal."""
    legend = Legend(title, ("0", "1: equal"), RISING, note="Proposition 2; no unit")
    return Paint(colored(values, 0.0, 1.0), legend)
