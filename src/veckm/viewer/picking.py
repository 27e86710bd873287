"""The point under a click, and the numbers of its encoding."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from veckm.viewer.colors import small_html

#: The largest distance of a point from the ray, as a share of its distance from the camera.
_TOLERANCE = 0.012
#: Numbers of the encoding that are listed.
_LISTED = 6


def pick(
    points: np.ndarray,  # (M, 3)
    origin: tuple[float, float, float],
    direction: tuple[float, float, float],
) -> tuple[int, float] | None:
    """The row of the point under a click, and its distance from the camera; None if there is none.

    Of the points close to the ray it is the first along it, but the distance from the ray counts
    too, so that a point in front of the cursor wins over a nearer one at the edge.

    Args:
        points: in the units of the scene.
        origin: of the ray, at the camera.
        direction: of the ray, of unit length.
    """
    offset = points - np.asarray(origin)
    along = offset @ np.asarray(direction)
    across = np.sqrt(np.maximum((offset**2).sum(1) - along**2, 0))
    close = np.flatnonzero((along > 0) & (across <= _TOLERANCE * along))
    if not len(close):
        return None
    row = close[np.argmin(along[close] + 4 * across[close])]
    return int(row), float(along[row])


def describe_point(encoding: Tensor, xyz: np.ndarray, row: int, neighbors: int) -> str:
    """An encoding as a small HTML table.

    Args:
        encoding: (D,) complex.
        xyz: (3,), the point in the file's coordinates.
        row: of the point in the file.
        neighbors: points within the radius.
    """
    place = ", ".join(f"{value:.9g}" for value in xyz)
    size, largest = float(encoding.abs().square().mean()), float(encoding.abs().max())
    lines = [
        f"point {row:,} at ({place})",
        f"{neighbors:,} points within the radius",
        f"D = {len(encoding)}, mean |g|² = {size:.3f}, largest |g| = {largest:.3f}",
    ]
    table = "".join(_table_row(k, g) for k, g in enumerate(encoding[:_LISTED].tolist(), 1))
    style = "margin-top:4px;font-variant-numeric:tabular-nums"
    head = "".join(f"<div>{line}</div>" for line in lines)
    return small_html(f'{head}<table style="{style}">{table}</table>')


def _table_row(k: int, g: complex) -> str:
    cells = (f"g<sub>{k}</sub>", f"{g.real:+.3f} {g.imag:+.3f} i", f"|g| = {abs(g):.3f}")
    return "<tr>" + "".join(f'<td style="padding-right:12px">{c}</td>' for c in cells) + "</tr>"
