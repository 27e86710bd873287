"""The encodings of the displayed points, their similarities, and the surface at the same points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from veckm.data.protocol import add_noise
from veckm.encoder import VecKM
from veckm.engines import Gaussian
from veckm.engines.curve import curve_order
from veckm.frequencies import suggest_radius
from veckm.functional import similarity
from veckm.knn import build_tree, query
from veckm.palette import Palette
from veckm.sizes import DEFAULT_DETAIL
from veckm.tasks.normals import Estimate, estimate
from veckm.viewer.colors import RED_GREEN_BLUE, Coloring, Legend
from veckm.viewer.display import DisplayCloud

#: Mean relative error: invisible in the colors, and 1 % would take half as long again.
_EPS = 0.03
#: Encodings are kept up to this many bytes; above it they are computed again when needed.
_CACHE_BYTES = 1_000_000_000
#: Points that the radius is suggested from, and points within it.
_DENSITY, _NEIGHBORS = 200_000, 200
#: Points of a chunk, where encodings are not kept.
_CHUNK = 100_000
#: Encodings that the principal components are computed from, and rows at a time.
_SAMPLE, _ROWS = 4096, 16_384


@dataclass(frozen=True)
class Settings:
    """The settings of the encodings.

    Attributes:
        radius: of the window, in the file's units.
        detail: alpha * radius.
        dim: D, complex numbers per encoding.
        noise: standard deviation along each axis, as a share of the diagonal of the box.
    """

    radius: float
    detail: float = DEFAULT_DETAIL
    dim: int = 256
    noise: float = 0.0

    @classmethod
    def suggested(cls, display: DisplayCloud) -> Settings:
        """A radius with so many neighbors that colors show the surface, not its samples."""
        step = -(-len(display.pos) // _DENSITY)  # a part of the points has as few neighbors
        neighbors = max(_NEIGHBORS // step, 4)
        try:
            found = suggest_radius(display.pos[::step], neighbors=neighbors)
        except ValueError:  # half of the points coincide with so many others
            found = display.size / 20
        return cls(float(f"{found:.3g}"))


class Encodings:
    """The encodings of a cloud's displayed points, kept or computed in chunks."""

    def __init__(self, display: DisplayCloud, settings: Settings) -> None:
        self.display, self.settings = display, settings
        self.encoder = VecKM(
            settings.dim, radius=settings.radius, detail=settings.detail, p=1, eps=_EPS
        )
        #: All points, (N, 3), with the noise of the settings, and the displayed ones, (M, 3).
        self.pos = add_noise(display.pos, settings.noise) if settings.noise else display.pos
        self.at = self.pos if display.complete else self.pos[display.rows]

    def __len__(self) -> int:
        return len(self.at)

    def of(self, rows: Tensor) -> Tensor:  # (m,) -> (m, D) complex
        """Encodings of some of the displayed points."""
        return self._encode(self.at[rows]) if self._kept is None else self._kept[rows]

    def row(self, row: int) -> Tensor:  # (D,) complex
        """The encoding of one displayed point."""
        return self.of(torch.tensor([row]))[0]

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:  # (m,) rows, (m, D) complex
        """All encodings, some at a time."""
        if self._kept is not None:
            rows = torch.arange(len(self))
            yield from zip(rows.split(_ROWS), self._kept.split(_ROWS), strict=True)
            return
        for rows in curve_order(self.at).split(_CHUNK):  # neighbors in space go together
            G = self._encode(self.at[rows])
            yield from zip(rows.split(_ROWS), G.split(_ROWS), strict=True)

    def similarity(self, other: Tensor | Callable[[Tensor], Tensor]) -> np.ndarray:  # (M,) float32
        """Similarity of every encoding with another, or one for each row (Proposition 2)."""
        out = torch.empty(len(self))
        for rows, G in self.chunks():
            out[rows] = similarity(G, other(rows) if callable(other) else other)
        return out.numpy()

    def palette(self) -> Palette:
        """Colors from a sample with a fixed stride: the same in every run."""
        return Palette.of(self.of(torch.arange(0, len(self), -(-len(self) // _SAMPLE))))

    def colors(self, palette: Palette) -> Coloring:
        """Color every displayed point; the palette of another cloud makes the two comparable."""
        rgb = torch.empty(len(self), 3, dtype=torch.uint8)
        for rows, G in self.chunks():
            rgb[rows] = palette.colors(G)
        shares = enumerate(palette.shares, 1)
        labels = tuple(f"component {k}: {share:.0%} of the variance" for k, share in shares)
        note = "similar colors, similar neighborhoods; no unit"
        legend = Legend("Encoding, principal components", labels, RED_GREEN_BLUE, note)
        return Coloring(rgb.numpy(), legend)

    def surface(self) -> Estimate:
        """Normals and curvature of the displayed points."""
        found, own = estimate(self.at, orient="consistent", curvature=True), self.own_normals
        return found if own is None else replace(found, normal=own)

    @property
    def own_normals(self) -> Tensor | None:  # (M, 3)
        """The file's own normals, if it has some and no noise was added."""
        own = self.display.cloud.normals
        if own is None or self.settings.noise:
            return None
        normal = torch.from_numpy(own[self.display.rows.numpy()].astype(np.float32)).nan_to_num()
        return torch.nn.functional.normalize(normal, dim=1)

    @cached_property
    def _kept(self) -> Tensor | None:  # (M, D) complex
        if 8 * len(self) * self.settings.dim > _CACHE_BYTES:
            return None
        return self._encode(None if self.display.complete else self.at)

    def _encode(self, queries: Tensor | None) -> Tensor:
        """At the queries, or at all points; only points within reach of the queries are used."""
        pos = self.pos
        if queries is not None:
            reach = Gaussian(self.encoder.beta[0]).reach(1e-4, 3)
            low, high = queries.amin(0) - reach, queries.amax(0) + reach
            pos = pos[((pos >= low) & (pos <= high)).all(1)]
        with torch.inference_mode():
            G: Tensor = self.encoder(pos, queries=queries, progress=False)
        return G


def match(one: DisplayCloud, other: DisplayCloud) -> tuple[Tensor, str]:  # (M,) int64
    """For each displayed point the row of the other cloud's that matches, and by which rule."""
    if len(one.pos) == len(other.pos) and torch.equal(one.rows, other.rows):
        return torch.arange(len(one)), "row by row"
    tree = build_tree(other.pos[other.rows].numpy())
    rows = query(tree, one.pos[one.rows].numpy(), 1)[1]
    return torch.from_numpy(rows[:, 0]), "by the nearest point"
