"""The picked point: its fields, and its neighborhood beside what its encoding holds of it."""

from __future__ import annotations

from html import escape

import numpy as np

from veckm.cloud import PACKED, written
from veckm.cross_section import Cut, cut
from veckm.viewer.colors import SEQUENTIAL, map_colors, small_html
from veckm.viewer.display import DisplayCloud
from veckm.viewer.encodings import Encodings
from veckm.viewer.fields import class_name

#: Cells of the density along a side; pixels of each image, and of the gap between them.
_CELLS, _PIXELS, _GAP = 60, 180, 8
#: Radius of a dot in pixels, and the largest number of dots.
_DOT, _MAX_DOTS = 2.6, 3000
#: Numbers of the encoding that are listed.
_LISTED = 6


def cross_section(encodings: Encodings, row: int) -> Cut:
    """The cross section through a displayed point, across its surface (Proposition 1)."""
    encoder, encoding, at = encodings.encoder, encodings.row(row), encodings.at[row]
    alpha, beta = encoder.alpha[0], encoder.beta[0]
    return cut(encodings.pos, at, encoding, encoder.A[0], alpha=alpha, beta=beta, cells=_CELLS)


def draw(section: Cut) -> np.ndarray:  # (180, 368, 3) uint8
    """Neighbors on the left, density on the right."""
    gap = np.full((_PIXELS, _GAP, 3), 255, dtype=np.uint8)
    density = section.density.clamp_min(0).numpy()
    density = np.kron(density, np.ones((_PIXELS // _CELLS, _PIXELS // _CELLS)))
    right = map_colors(density, 0.0, float(density.max()))
    return np.concatenate([_draw_neighbors(section), gap, right], axis=1)


def _draw_neighbors(section: Cut) -> np.ndarray:  # (180, 180, 3)
    image = np.full((_PIXELS, _PIXELS, 3), 245.0)
    order = section.weight.argsort()[-_MAX_DOTS:]  # the heaviest last, on top
    u, v = ((section.points[order].numpy() / section.side * 0.5 + 0.5) * _PIXELS).T
    disc = np.argwhere(np.hypot(*np.mgrid[-2:3, -2:3]) < _DOT) - 2  # rows and columns of a dot
    rows, columns = np.stack([_PIXELS - v, u])[..., None].astype(int) + disc.T[:, None]
    # Far neighbors have less weight in the encoding, so they are paler.
    w = section.weight[order].numpy()[:, None]
    color = 225 * (1 - w) + np.array(SEQUENTIAL[0]) * w
    image[rows.clip(0, _PIXELS - 1), columns.clip(0, _PIXELS - 1)] = color[:, None]
    return image.round().astype(np.uint8)


def caption(section: Cut) -> str:
    """What :func:`draw` shows, as HTML."""
    return small_html(
        f"A cross section of the surface, {2 * section.side:.3g} wide in the file's units. "
        "Left: the neighbors, paler where their weight is lower. Right: the density "
        "reconstructed from the encoding alone (Proposition 1); correlation with the true "
        f"density {section.agreement:.3f}."
    )


def describe_fields(display: DisplayCloud, row: int) -> str:
    """Place and all fields of a displayed point, as HTML."""
    cloud, at = display.cloud, int(display.rows[row])
    xyz = cloud.pos[at] + cloud.origin if cloud.origin.any() else cloud.pos[at]
    lines = [
        f"<b>{escape(display.name)}</b>, point {display.number(row):,}",
        f"({', '.join(map(written, xyz))})",
    ]
    for name, values in cloud.fields.items():
        found = values[at]
        if name in PACKED and (color := cloud[at : at + 1].colors) is not None:
            text = ", ".join(map(str, color[0]))
        elif found.ndim:
            text = ", ".join(map(written, found))
        else:
            meaning = class_name(name, found.item())
            text = f"{written(found)} {meaning}" if found.dtype.kind in "iufb" else str(found)
        lines.append(f"{escape(name)}: {escape(text)}")
    return _rows(lines)


def describe_encoding(encodings: Encodings, row: int, neighbors: int) -> str:
    """Neighbors of a displayed point and first numbers of its encoding, as HTML."""
    encoding = encodings.row(row)
    size, largest = float(encoding.abs().square().mean()), float(encoding.abs().max())
    numbers = [
        f"g<sub>{k}</sub> = {g.real:+.3f} {g.imag:+.3f} i, |g| = {abs(g):.3f}"
        for k, g in enumerate(encoding[:_LISTED].tolist(), 1)
    ]
    return _rows(
        [
            f"{neighbors:,} points within the radius",
            f"D = {len(encoding)}, mean |g|² = {size:.3f}, largest |g| = {largest:.3f}",
            *numbers,
        ]
    )


def _rows(lines: list[str]) -> str:
    body = "".join(f"<div>{line}</div>" for line in lines)
    return small_html(f'<div style="font-variant-numeric:tabular-nums">{body}</div>')
