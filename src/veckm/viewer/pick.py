"""The point under a click, and what its encoding says in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np
from torch import Tensor

#: A click this far beside a point still means it, as a share of the distance from the eye.
NEAR = 0.012
_LISTED = 6


@dataclass(frozen=True)
class Ray:
    """From the eye through the place of the click, in the units of the points.

    Shapes:
        - origin, direction: three numbers each; the direction has length one
    """

    origin: tuple[float, float, float]
    direction: tuple[float, float, float]


def hit(
    points: np.ndarray,  # (M, 3)
    ray: Ray,
    near: float = NEAR,
) -> tuple[int, float] | None:
    """The row of the point that was meant, and its distance from the eye; None if there is none.

    Of the points close to the ray it is the first that the ray comes to, but a point far beside
    the ray counts as further away, so that what one points at wins over its rim.
    """
    offset = points - np.asarray(ray.origin)
    along = offset @ np.asarray(ray.direction)
    beside = np.sqrt(np.maximum((offset**2).sum(1) - along**2, 0))
    close = np.flatnonzero((along > 0) & (beside <= near * along))
    if not len(close):
        return None
    row = close[np.argmin(along[close] + 4 * beside[close])]
    return int(row), float(along[row])


def numbers(
    encoding: Tensor,  # (D,) complex
    xyz: np.ndarray,  # (3,)
    row: int,
    seen: int,
) -> str:
    """An encoding as a small table, HTML.

    Args:
        encoding: of the point.
        xyz: where it is, in the file's coordinates.
        row: of the file.
        seen: points within the radius.
    """
    place = ", ".join(f"{value:.9g}" for value in xyz)
    size, largest = float(encoding.abs().square().mean()), float(encoding.abs().max())
    lines = [
        f"point {row:,} at ({place})",
        f"{seen:,} points within the radius",
        f"D = {len(encoding)}, mean |g|² = {size:.3f}, largest |g| = {largest:.3f}",
    ]
    first = "".join(_entry(k, complex(g)) for k, g in enumerate(encoding[:_LISTED].tolist()))
    head = "".join(f"<div>{escape(line)}</div>" for line in lines)
    body = f'<table style="margin-top:4px;font-variant-numeric:tabular-nums">{first}</table>'
    return f'<div style="font-size:12px;padding:2px 12px">{head}{body}</div>'


def _entry(k: int, g: complex) -> str:
    cells = (f"g<sub>{k + 1}</sub>", f"{g.real:+.3f} {g.imag:+.3f} i", f"|g| = {abs(g):.3f}")
    return "<tr>" + "".join(f'<td style="padding-right:12px">{c}</td>' for c in cells) + "</tr>"
