"""The page as a whole: it follows the panel and the clicks, one change after another."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache

import numpy as np
import viser

from veckm.palette import Color
from veckm.tasks.normals import Estimate
from veckm.viewer import colors
from veckm.viewer.colors import Coloring, Legend, small_html
from veckm.viewer.display import DisplayCloud
from veckm.viewer.encodings import Encodings, Settings, match
from veckm.viewer.panel import Panel, ViewState
from veckm.viewer.scene import SceneCloud, pick, place_camera, side_by_side
from veckm.viewer.worker import Worker


class Page:
    """A cloud, or two, with everything that can be shown of them.

    Args:
        server: that serves the page.
        first: the cloud.
        second: another one to compare with; made with ``frame=first``.
        settings: of the encodings at first; suggested by the density of the cloud if None.
        color: what the cloud is colored by first.

    Attributes:
        panel: beside the scene.
        legend: of the displayed colors.
    """

    def __init__(
        self,
        server: viser.ViserServer,
        first: DisplayCloud,
        second: DisplayCloud | None = None,
        *,
        settings: Settings | None = None,
        color: Color = "encoding",
    ) -> None:
        self._server = server
        self._clouds = (first, first if second is None else second)
        shift = side_by_side(first)
        self._scene = (
            SceneCloud(server.scene, first.size, "first"),
            SceneCloud(server.scene, first.size, "second", shift),
        )
        self._pair = second is not None
        place_camera(server, shift if self._pair else None)
        self._picked: tuple[int, int] | None = None  # the cloud, and the row of its points
        self.legend = Legend("", (), ())
        # Sliders go back and forth: the last few encodings are worth their memory.
        self._encodings = lru_cache(maxsize=3)(lambda k, s: Encodings(self._clouds[k], s))
        self._surface = lru_cache(maxsize=2)(self._estimate)
        self._matches = lru_cache(maxsize=2)(lambda k: match(self._clouds[k], self._clouds[1 - k]))
        self._worker = Worker(self.update, self._failed)
        self.panel = Panel(
            server.gui,
            self._clouds if self._pair else (first,),
            Settings.suggested(first) if settings is None else settings,
            color,
            self._worker.request,
            self._clear,
        )

    def start(self) -> None:
        """Show the page, and follow the controls and clicks from now on."""
        self._server.scene.on_click()(self._clicked)
        self._worker.request()

    def stop(self) -> None:
        """Stop following the controls."""
        self._worker.stop()

    def wait(self, timeout: float = 60.0) -> None:
        """Wait until the page shows what was asked for."""
        self._worker.wait(timeout)

    def update(self) -> None:
        """Show what the panel asks for."""
        start = time.perf_counter()
        state, picked = self.panel.state(), self._picked
        self.panel.show_status("working ...")
        clouds = (0, 1) if state.pair else (0,)
        if not state.pair:
            self._scene[1].clear()
            if picked is not None and picked[0] == 1:
                picked = self._picked = None
        encodings = [self._encodings(k, self._settings(state, k)) for k in clouds]
        colorings = self._color(state, picked, encodings)
        with self._server.atomic():
            for k in clouds:
                scene = self._scene[k]
                scene.draw(encodings[k].at, colorings[k].rgb, state.point_size)
                if state.lines:
                    scene.draw_normals(self._surface(k, encodings[k].settings.noise).normal.numpy())
                if picked is not None and picked[0] == k:
                    scene.draw_marker(picked[1], state.settings.radius, state.point_size)
        self.legend = colorings[-1].legend
        self.panel.legend.content = self.legend.html()
        self.panel.match.content = self._describe_match(encodings) if state.pair else ""
        if picked is None:
            self.panel.hide_point()
        else:
            self.panel.show_point(encodings[picked[0]], picked[1])
        if state.pair != self._pair:
            self._pair = state.pair
            place_camera(self._server, self._scene[1].shift if state.pair else None)
        self.panel.show_status(f"shown after {time.perf_counter() - start:.2f} s")

    def _settings(self, state: ViewState, cloud: int) -> Settings:
        """Of two clouds the first is the clean one: noise is added to the second."""
        clean = state.pair and cloud == 0
        return replace(state.settings, noise=0.0) if clean else state.settings

    def _estimate(self, cloud: int, noise: float) -> Estimate:
        self.panel.show_status("estimating normals ...")
        settings = replace(self.panel.state().settings, noise=noise)
        return self._encodings(cloud, settings).surface()

    def _color(
        self, state: ViewState, picked: tuple[int, int] | None, encodings: list[Encodings]
    ) -> list[Coloring]:
        """The colors of each cloud."""
        if picked is not None:
            own, title = encodings[picked[0]].row(picked[1]), "Similarity with the picked point"
            return [colors.by_similarity(each.similarity(own), title) for each in encodings]
        if state.color == "match":
            title = "Similarity with the matching point"
            return [colors.by_similarity(self._match(encodings, k), title) for k in (0, 1)]
        if state.color == "encoding":
            palette = encodings[0].palette()
            return [each.colors(palette) for each in encodings]
        return [self._color_one(state.color, k, each) for k, each in enumerate(encodings)]

    def _color_one(self, color: Color, cloud: int, encodings: Encodings) -> Coloring:
        display = encodings.display
        rows, own = display.rows.numpy(), display.cloud.colors
        if color == "file" and own is not None:
            return colors.by_file(own[rows])
        if color in ("height", "file"):
            return colors.by_range(display.cloud.xyz[rows, 2], "Height z, in the file's units")
        estimated = encodings.own_normals is None
        note = "estimated, consistently oriented" if estimated else "the file's own"
        return colors.by_surface(self._surface(cloud, encodings.settings.noise), color, note)

    def _match(self, encodings: list[Encodings], cloud: int) -> np.ndarray:  # (M,)
        """The similarity of each point of a cloud with its match in the other."""
        rows, other = self._matches(cloud)[0], encodings[1 - cloud]
        return encodings[cloud].similarity(lambda some: other.of(rows[some]))

    def _describe_match(self, encodings: list[Encodings]) -> str:
        values, rule = self._match(encodings, 1), self._matches(1)[1]
        low, middle = np.percentile(values, [10, 50]).tolist()
        return small_html(
            f"Similarity of matching points ({rule}): mean {values.mean():.3f}, "
            f"median {middle:.3f}, 10 % below {low:.3f}."
        )

    def _clicked(self, event: viser.SceneClickEvent) -> None:
        ray = event.ray_origin, event.ray_direction
        hits = [pick(self._scene[k].placed, *ray) for k in ((0, 1) if self._pair else (0,))]
        found = [(hit[1], k, hit[0]) for k, hit in enumerate(hits) if hit is not None]
        if found:
            self._picked = min(found)[1:]
            self._worker.request()

    def _clear(self) -> None:
        self._picked = None
        self._worker.request()

    def _failed(self, error: Exception) -> None:
        """Print the error on the page, which stays as it was."""
        self.panel.show_status(" ".join(str(error).split()) or type(error).__name__, error=True)
