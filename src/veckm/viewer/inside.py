"""The neighborhood of a point beside the density that its encoding alone holds (Proposition 1)."""

from __future__ import annotations

import numpy as np
import torch

from veckm.cross_section import Cut, cut
from veckm.viewer.colors import RISING, colored
from veckm.viewer.encode import Encodings

#: Cells of the density along a side, pixels of its picture, and of the gap between the two.
_CELLS, _PIXELS, _GAP = 60, 180, 8
#: Of a dot, in pixels.
_DOT = 2.6
#: More dots than this only cover each other.
_DOTS = 3000


def inside(encodings: Encodings, row: int) -> Cut:
    """The cut through a shown point.

    Args:
        encodings: of the cloud.
        row: of the shown points.
    """
    encoder = encodings.encoder
    return cut(
        encodings.pos,
        encodings.at[row],
        encodings.of(torch.tensor([row]))[0],
        encoder.A[0],
        alpha=encoder.alpha[0],
        beta=encoder.beta[0],
        cells=_CELLS,
    )


def picture(found: Cut) -> np.ndarray:  # (180, 368, 3) uint8
    """Neighbors on the left, density on the right."""
    gap = np.full((_PIXELS, _GAP, 3), 255, dtype=np.uint8)
    return np.concatenate([_dots(found), gap, _heat(found)], axis=1)


def _heat(found: Cut) -> np.ndarray:  # (180, 180, 3)
    times = _PIXELS // _CELLS
    values = found.density.clamp_min(0).repeat_interleave(times, 0).repeat_interleave(times, 1)
    return colored(values.numpy(), 0.0, float(values.max()), RISING)


def _dots(found: Cut) -> np.ndarray:  # (180, 180, 3)
    image = np.full((_PIXELS, _PIXELS, 3), 245.0)
    order = found.weight.argsort()[-_DOTS:]
    middle = (found.points[order].numpy() / found.side * 0.5 + 0.5) * _PIXELS
    for (u, v), w in zip(middle, found.weight[order].tolist(), strict=True):
        x, y = np.meshgrid(*(np.arange(max(0, int(c) - 3), min(_PIXELS, int(c) + 4))
                             for c in (u, _PIXELS - v)))  # fmt: skip
        disc = (x + 0.5 - u) ** 2 + (y + 0.5 - _PIXELS + v) ** 2 < _DOT**2
        # Far neighbors count less in the encoding, so they are paler.
        image[y[disc], x[disc]] = 225 * (1 - w) + np.array(RISING[0]) * w
    return image.round().astype(np.uint8)
