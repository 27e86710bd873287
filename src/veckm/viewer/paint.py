"""Colors of the displayed clouds; what they need is computed when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from veckm.tasks.normals import Estimate
from veckm.viewer import colors, fields
from veckm.viewer.alignment import Describe, Described
from veckm.viewer.camera import basis
from veckm.viewer.colors import Coloring, Legend, small_html
from veckm.viewer.display import DisplayCloud
from veckm.viewer.encodings import Encodings, Settings, match
from veckm.viewer.fields import by_field, by_file, field_values

Picked = tuple[int, int]  # a cloud, and the row of its displayed points


class Painter:
    """Colors one cloud or two, by the same scale.

    Args:
        clouds: that are displayed; a cloud beside its noisy copy is there twice.
        describe: makes rotation-invariant descriptors, if they can be asked for.
        tell: is called with what takes long.
    """

    def __init__(
        self,
        clouds: tuple[DisplayCloud, DisplayCloud],
        describe: Describe | None,
        tell: Callable[[str], None],
    ) -> None:
        self._clouds, self._describe, self._tell = clouds, describe, tell
        # Sliders go back and forth: the last few encodings are worth their memory.
        self.encodings = lru_cache(maxsize=3)(lambda k, s: Encodings(self._clouds[k], s))
        self.surface = lru_cache(maxsize=2)(self._estimate)
        self._matches = lru_cache(maxsize=2)(lambda k: match(self._clouds[k], self._clouds[1 - k]))
        self._described = lru_cache(maxsize=1)(self._make_descriptors)

    def paint(
        self, color: str, settings: tuple[Settings, ...], picked: Picked | None, up: str = "z"
    ) -> list[Coloring]:  # of each cloud that there are settings for
        """Colors by what its name says, see :mod:`veckm.viewer.fields`."""
        count = range(len(settings))
        if color == "cloud":
            return self._by_cloud()[: len(settings)]
        if color == "descriptor" and picked is not None:
            both = self._described(settings[0].radius).similarity(*picked)
            title = "Similarity of descriptors with the picked point"
            return [colors.by_similarity(values, title, "correlation") for values in both]
        if color not in fields.ENCODED or (color == "similarity" and picked is None):
            return [self._paint_one(color, k, settings[k], up) for k in count]
        encodings = [self.encodings(k, settings[k]) for k in count]
        if color == "similarity" and picked is not None:
            own, title = encodings[picked[0]].row(picked[1]), "Similarity with the picked point"
            return [colors.by_similarity(each.similarity(own), title) for each in encodings]
        if color == "match":
            title = "Similarity with the matching point"
            return [colors.by_similarity(self._match(settings, k), title) for k in count]
        palette = encodings[0].palette()
        return [each.colors(palette) for each in encodings]

    def describe_match(self, settings: tuple[Settings, ...]) -> str:
        """How similar matching points are, as HTML."""
        values, rule = self._match(settings, 1), self._matches(1)[1]
        low, middle = np.percentile(values, [10, 50]).tolist()
        return small_html(
            f"Similarity of matching points ({rule}): mean {values.mean():.3f}, "
            f"median {middle:.3f}, 10 % below {low:.3f}."
        )

    def _paint_one(self, color: str, k: int, settings: Settings, up: str) -> Coloring:
        display = self._clouds[k]
        rows, cloud = (slice(None) if display.complete else display.rows.numpy()), display.cloud
        if color in ("similarity", "descriptor"):  # of no point yet
            color = fields.first_color(cloud)
        if color not in fields.choices(cloud):  # a second file may have other fields
            color = "height"
        if color == "file" and cloud.colors is not None:
            return by_file(cloud.colors[rows])
        if color == "height":
            axis = basis(up)[2]
            z = display.at.numpy() @ axis.astype(np.float32)
            title = f"Height {up}, in the file's units"
            return colors.by_range(z, title, offset=float(display.center @ axis))
        if color in fields.COMPUTED:
            encodings = self.encodings(k, settings)
            estimated = encodings.own_normals is None
            note = "estimated, consistently oriented" if estimated else "the file's own"
            return colors.by_surface(self.surface(k, settings), color, note)
        return by_field(color, field_values(cloud, color)[rows])

    def _by_cloud(self) -> list[Coloring]:
        pair = colors.CATEGORIES[:2]
        legend = Legend("Clouds", tuple(cloud.name for cloud in self._clouds), pair)
        return [
            Coloring(np.tile(np.array(color, dtype=np.uint8), (len(cloud), 1)), legend)
            for cloud, color in zip(self._clouds, pair, strict=True)
        ]

    def _match(self, settings: tuple[Settings, ...], k: int) -> np.ndarray:  # (M,)
        """The similarity of each point of a cloud with its match in the other."""
        other, rows = self.encodings(1 - k, settings[1 - k]), self._matches(k)[0]
        return self.encodings(k, settings[k]).similarity(lambda some: other.of(rows[some]))

    def _estimate(self, k: int, settings: Settings) -> Estimate:
        self._tell("estimating normals ...")
        return self.encodings(k, settings).surface()

    def _make_descriptors(self, radius: float) -> Described:
        assert self._describe is not None
        self._tell("computing descriptors ...")
        return Described(self._clouds, radius, self._describe)


def clean(settings: Settings, pair: bool) -> tuple[Settings, ...]:
    """The settings of each cloud: of two the first is the clean one, noise goes to the second."""
    return (replace(settings, noise=0.0), settings) if pair else (settings,)
