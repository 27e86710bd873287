"""A neighborhood beside the density reconstructed from its encoding (Proposition 1)."""

from __future__ import annotations

import numpy as np

from veckm.cross_section import Cut, cut
from veckm.viewer.colors import SEQUENTIAL, map_colors
from veckm.viewer.encodings import Encodings

#: Cells of the density along a side; pixels of each image, and of the gap between them.
_CELLS, _PIXELS, _GAP = 60, 180, 8
#: Radius of a dot in pixels, and the largest number of dots.
_DOT, _MAX_DOTS = 2.6, 3000


def cross_section(encodings: Encodings, row: int) -> Cut:
    """The cross section through a displayed point, across its surface."""
    encoder = encodings.encoder
    return cut(
        encodings.pos,
        encodings.at[row],
        encodings.row(row),
        encoder.A[0],
        alpha=encoder.alpha[0],
        beta=encoder.beta[0],
        cells=_CELLS,
    )


def draw(section: Cut) -> np.ndarray:  # (180, 368, 3) uint8
    """Neighbors on the left, density on the right."""
    gap = np.full((_PIXELS, _GAP, 3), 255, dtype=np.uint8)
    density = section.density.clamp_min(0).numpy()
    density = np.kron(density, np.ones((_PIXELS // _CELLS, _PIXELS // _CELLS)))
    right = map_colors(density, 0.0, float(density.max()))
    return np.concatenate([_draw_neighbors(section), gap, right], axis=1)


def _draw_neighbors(section: Cut) -> np.ndarray:  # (180, 180, 3)
    image = np.full((_PIXELS, _PIXELS, 3), 245.0)
    order = section.weight.argsort()[-_MAX_DOTS:]
    middle = (section.points[order].numpy() / section.side * 0.5 + 0.5) * _PIXELS
    for (u, v), w in zip(middle, section.weight[order].tolist(), strict=True):
        x, y = np.meshgrid(*(np.arange(max(0, int(c) - 3), min(_PIXELS, int(c) + 4))
                             for c in (u, _PIXELS - v)))  # fmt: skip
        disc = (x + 0.5 - u) ** 2 + (y + 0.5 - _PIXELS + v) ** 2 < _DOT**2
        # Far neighbors have less weight in the encoding, so they are paler.
        image[y[disc], x[disc]] = 225 * (1 - w) + np.array(SEQUENTIAL[0]) * w
    return image.round().astype(np.uint8)
