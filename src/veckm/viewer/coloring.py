"""Every way of coloring a cloud but by its encodings: normals, curvature, height, similarity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veckm.palette import Color
from veckm.tasks.normals import estimate
from veckm.viewer.colors import (
    RED_GREEN_BLUE,
    SEQUENTIAL,
    Coloring,
    Legend,
    color_range,
    color_signed,
    map_colors,
    to_uint8,
)
from veckm.viewer.display import DisplayCloud
from veckm.viewer.encodings import Encodings

#: What a cloud can be colored by, as the page labels it.
LABELS: dict[Color, str] = {
    "encoding": "encoding",
    "normals": "normals",
    "curvature": "curvature",
    "confidence": "confidence of normals",
    "height": "height",
    "file": "the file's own colors",
    "match": "similarity of matching points",
}

#: Fewer points than this do not define a surface.
_MIN_POINTS = 8


@dataclass(frozen=True, eq=False)
class Surface:
    """The surface at the displayed points.

    Attributes:
        normal: unit length.
        error: expected angle error, in degrees.
        curvature: mean curvature, in one over the file's unit.
        from_file: whether the normals are the file's own.

    Shapes:
        - normal: (M, 3), error: (M,), curvature: (M,)
    """

    normal: np.ndarray
    error: np.ndarray
    curvature: np.ndarray
    from_file: bool

    @classmethod
    def of(cls, display: DisplayCloud, encodings: Encodings) -> Surface:
        """The surface of the points with the noise of the encodings.

        The file's own normals are used if it has some and no noise was added.
        """
        if len(encodings) < _MIN_POINTS:
            raise ValueError(
                f"{display.name}: {len(encodings)} points are too few for normals; "
                f"at least {_MIN_POINTS} are needed"
            )
        found = estimate(encodings.at, orient="consistent", curvature=True)
        own = display.cloud.normals if not encodings.settings.noise else None
        normal = found.normal.numpy()
        if own is not None:
            normal = np.nan_to_num(own[display.rows.numpy()].astype(np.float32))
            normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)
        error, curvature = (
            values.nan_to_num().float().numpy() for values in (found.error, found.mean_curvature)
        )
        return cls(normal, error, curvature, own is not None)


def available_colors(display: DisplayCloud) -> tuple[Color, ...]:
    """What this cloud can be colored by."""
    return tuple(c for c in LABELS if c != "file" or display.cloud.colors is not None)


def color_by_file(display: DisplayCloud, color: Color) -> Coloring:
    """By the colors of the file where it has some and they are asked for, else by height."""
    rows, colors = display.rows.numpy(), display.cloud.colors
    if color != "file" or colors is None:
        return color_range(display.cloud.xyz[rows, 2], "Height z, in the file's units")
    gray = ((160, 160, 160),)
    legend = Legend("The file's own colors", ("red, green and blue as stored",), gray, False)
    return Coloring(to_uint8(colors[rows]), legend)


def color_by_surface(surface: Surface, color: Color) -> Coloring:
    """By normals, curvature or confidence."""
    if color == "normals":
        rgb = np.rint((surface.normal * 0.5 + 0.5) * 255).clip(0, 255).astype(np.uint8)
        note = "the file's own" if surface.from_file else "estimated, consistently oriented"
        axes = ("x: red from -1 to 1", "y: green from -1 to 1", "z: blue from -1 to 1")
        return Coloring(rgb, Legend("Normals, unit length", axes, RED_GREEN_BLUE, False, note))
    if color == "curvature":
        note = "a sphere with outward normals is positive; 5 % lie beyond the ends"
        return color_signed(surface.curvature, "Mean curvature, 1 / the file's unit", note)
    note = "yellow is least certain"
    return color_range(surface.error, "Expected error of normals, degrees", note)


def color_by_similarity(values: np.ndarray, title: str) -> Coloring:  # (M,)
    """By similarity, from 0 to 1."""
    legend = Legend(title, ("0", "1: equal"), SEQUENTIAL, note="Proposition 2; no unit")
    return Coloring(map_colors(values, 0.0, 1.0), legend)
