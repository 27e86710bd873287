"""The encodings of the shown points, for the settings of the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from veckm.data.corrupt import add_noise
from veckm.encoder import DEFAULT_DETAIL, VecKM
from veckm.engines import Gaussian
from veckm.engines.curve import curve_order
from veckm.frequencies import suggest_radius
from veckm.functional import similarity
from veckm.palette import Palette
from veckm.viewer.colors import RED_GREEN_BLUE, Legend, Paint
from veckm.viewer.shown import Shown

#: Mean relative error of an encoding: nobody sees it in a color, and 1 % takes half as long again.
_EPS = 0.03
#: Encodings are kept up to this many bytes; beyond, they are made anew when they are needed.
_KEPT = 1_000_000_000
#: Points of a piece, where encodings are not kept.
_PIECE = 100_000
#: Encodings that the principal directions are found from, and those in hand at a time.
_SAMPLE, _ROWS = 4096, 16_384


@dataclass(frozen=True)
class Settings:
    """What the sliders say.

    Attributes:
        radius: size of the window, in the file's units.
        detail: alpha * radius.
        dim: D, complex numbers of an encoding.
        noise: standard deviation along each axis, as a share of the diagonal of the box.
    """

    radius: float
    detail: float = DEFAULT_DETAIL
    dim: int = 256
    noise: float = 0.0

    def encoder(self) -> VecKM:
        """The encoder of these settings; its frequencies are always the same draw."""
        return VecKM(self.dim, radius=self.radius, detail=self.detail, p=1, eps=_EPS)


def suggested(shown: Shown, neighbors: int = 200) -> Settings:
    """Settings from the density of the cloud.

    Many neighbors, so that colors show the surface more than the places of its samples.
    """
    return Settings(float(f"{suggest_radius(shown.pos, neighbors=neighbors):.3g}"))


class Encodings:
    """The encodings of a cloud's shown points, kept or made in pieces.

    Args:
        shown: the cloud.
        settings: of the encoder, and the noise that moves the points first.

    Attributes:
        pos: all points, moved.
        at: the shown ones among them.

    Shapes:
        - pos: (N, 3), at: (M, 3), both float32 about the center of the cloud
    """

    def __init__(self, shown: Shown, settings: Settings) -> None:
        self.settings = settings
        self.encoder = settings.encoder()
        self.pos = add_noise(shown.pos, settings.noise) if settings.noise else shown.pos
        self._whole = shown.whole
        self.at = self.pos if shown.whole else self.pos[shown.rows]

    def __len__(self) -> int:
        return len(self.at)

    def of(self, rows: Tensor) -> Tensor:  # (m,) -> (m, D) complex
        """Encodings of some of the shown points."""
        if self._kept is not None:
            return self._kept[rows]
        return self._encode(self.at[rows])

    def pieces(self) -> Iterator[tuple[Tensor, Tensor]]:  # (m,) rows, (m, D) complex
        """All encodings, some at a time."""
        if self._kept is not None:
            rows = torch.arange(len(self))
            yield from zip(rows.split(_ROWS), self._kept.split(_ROWS), strict=True)
            return
        for rows in curve_order(self.at).split(_PIECE):  # neighbors in space go together
            yield rows, self._encode(self.at[rows])

    def similar(self, encoding: Tensor) -> np.ndarray:  # (D,) complex -> (M,) float32
        """How like every point's encoding is to this one (Proposition 2)."""
        out = torch.empty(len(self))
        for rows, part in self.pieces():
            out[rows] = similarity(part, encoding)
        return out.numpy()

    @cached_property
    def _kept(self) -> Tensor | None:  # (M, D) complex
        if 8 * len(self) * self.settings.dim > _KEPT:
            return None
        return self._encode(None if self._whole else self.at)

    def _encode(self, queries: Tensor | None) -> Tensor:
        """At the queries, or at all points; only what is in reach of the queries counts."""
        pos = self.pos
        if queries is not None:
            reach = Gaussian(self.encoder.beta[0]).reach(1e-4, 3)
            low, high = queries.amin(0) - reach, queries.amax(0) + reach
            pos = pos[((pos >= low) & (pos <= high)).all(1)]
        with torch.inference_mode():
            G: Tensor = self.encoder(pos, queries=queries, progress=False)
        return G


def palette_of(encodings: Encodings) -> Palette:
    """From a sample of a cloud's encodings, with a fixed stride: the same in every run."""
    step = -(-len(encodings) // _SAMPLE)
    return Palette.of(encodings.of(torch.arange(0, len(encodings), step)))


def painted(encodings: Encodings, palette: Palette) -> Paint:
    """The color of every shown point; a palette of another cloud makes the two comparable."""
    rgb = torch.empty(len(encodings), 3, dtype=torch.uint8)
    for rows, part in encodings.pieces():
        rgb[rows] = palette.colors(part)
    ends = tuple(
        f"direction {k + 1}: {share:.0%} of the variance" for k, share in enumerate(palette.shares)
    )
    note = "like colors, like neighborhoods; no unit"
    legend = Legend("Encoding, principal directions", ends, RED_GREEN_BLUE, False, note)
    return Paint(rgb.numpy(), legend)
