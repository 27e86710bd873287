"""The page as a whole: it follows the panel and the clicks, one change after another."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
import viser

from veckm.palette import Color
from veckm.viewer import paint, pick
from veckm.viewer.colors import Legend, Paint
from veckm.viewer.encode import Encodings, Settings, painted, palette_of, suggested
from veckm.viewer.inside import inside
from veckm.viewer.pair import Matches, match, match_similarity
from veckm.viewer.panel import Panel, Wanted
from veckm.viewer.scene import Stage, beside, look, usual_point_size
from veckm.viewer.shown import Shown
from veckm.viewer.surface import Surface, surface_of
from veckm.viewer.worker import Worker

#: A picked point: the cloud, and the row of its shown points.
Picked = tuple[int, int]


class Page:
    """A cloud, or two, with everything that can be asked of them.

    Args:
        server: that shows it.
        first: the cloud.
        second: another one to stand beside it; made with ``frame=first``.
        settings: of the encodings at first; suggested by the density of the cloud if None.
        color: what the cloud is colored by at first.

    Attributes:
        panel: beside the scene.
        legend: of the colors that are shown.
    """

    def __init__(
        self,
        server: viser.ViserServer,
        first: Shown,
        second: Shown | None = None,
        *,
        settings: Settings | None = None,
        color: Color = "encoding",
    ) -> None:
        colors = paint.available(first)
        if color not in colors:
            raise ValueError(f"{first.name}: has no colors of its own; choose another color")
        self._server = server
        self._clouds = (first, first if second is None else second)
        self._two = second is not None
        shift = beside(first)
        self._stages = (
            Stage(server.scene, first, "first"),
            Stage(server.scene, self._clouds[1], "second", shift),
        )
        look(server, shift if self._two else None)
        self._picked: Picked | None = None
        self._done: Wanted | None = None
        self.legend = Legend("", (), (), even=False)
        # Sliders go to and fro: the last few encodings are worth their memory, more are not.
        self._encodings = lru_cache(maxsize=3)(self._encode)
        self._surface = lru_cache(maxsize=2)(self._estimate)
        self._worker = Worker(self.update, self._failed)
        self.panel = Panel(
            server.gui,
            self._clouds if self._two else (first,),
            suggested(first) if settings is None else settings,
            color,
            colors,
            usual_point_size(len(first)),
            self._worker.wake,
            self._forget,
        )

    def start(self) -> None:
        """Show it, and follow what the user does from now on."""
        self._server.scene.on_click()(self._clicked)
        self._worker.start()
        self._worker.wake()

    def stop(self) -> None:
        """Follow no longer."""
        self._worker.stop()

    def settle(self, timeout: float = 60.0) -> None:
        """Wait until all that was asked for is shown."""
        self._worker.settle(timeout)

    def update(self) -> None:
        """Show what the panel asks for."""
        start = time.perf_counter()
        wanted, picked = self.panel.wanted(), self._picked
        self.panel.say("working ...")
        sides = (0, 1) if wanted.beside else (0,)
        if picked is not None and picked[0] not in sides:
            picked = self._picked = None
        if len(sides) == 1:
            self._stages[1].clear()
        encodings = [self._encodings(k, self._settings(wanted, k)) for k in sides]
        paints = self._paints(wanted, picked, encodings)
        with self._server.atomic():
            for k in sides:
                self._stages[k].draw(encodings[k].at, paints[k].rgb, wanted.point_size)
                self._stages[k].draw_normals(self._normals(wanted, k))
            self._mark(wanted, picked)
        self.legend = paints[-1].legend
        self.panel.explain(self.legend)
        self._tell(picked, encodings)
        self._turn(wanted)
        self.panel.say(f"shown after {time.perf_counter() - start:.2f} s")

    def _turn(self, wanted: Wanted) -> None:
        """When a second cloud comes or goes, everybody sees both, or the one."""
        before = self._two if self._done is None else self._done.beside
        self._done = wanted
        if before == wanted.beside:
            return
        shift = tuple(self._stages[1].shift.tolist()) if wanted.beside else None
        look(self._server, shift)
        for client in self._server.get_clients().values():
            client.camera.position = self._server.initial_camera.position
            client.camera.look_at = self._server.initial_camera.look_at

    def _settings(self, wanted: Wanted, side: int) -> Settings:
        """Of two, the first is the clean one: noise is for the second."""
        clean = wanted.beside and side == 0
        return replace(wanted.settings, noise=0.0) if clean else wanted.settings

    def _encode(self, side: int, settings: Settings) -> Encodings:
        return Encodings(self._clouds[side], settings)

    def _estimate(self, side: int, noise: float) -> Surface:
        self.panel.say("estimating normals ...")
        settings = replace(self.panel.wanted().settings, noise=noise)
        return surface_of(self._clouds[side], self._encodings(side, settings))

    def _paints(
        self, wanted: Wanted, picked: Picked | None, encodings: list[Encodings]
    ) -> list[Paint]:
        """The colors of each cloud."""
        if picked is not None:
            own = encodings[picked[0]].of(torch.tensor([picked[1]]))[0]
            title = "Similarity with the picked point"
            return [paint.similar(each.similar(own), title) for each in encodings]
        if wanted.color == "match":
            return self._matched(encodings)
        if wanted.color == "encoding":
            palette = palette_of(encodings[0])
            return [painted(each, palette) for each in encodings]
        return [self._plain(wanted, k) for k in range(len(encodings))]

    def _plain(self, wanted: Wanted, side: int) -> Paint:
        shown = self._clouds[side]
        if wanted.color == "height":
            return paint.height(shown)
        if wanted.color == "file" and shown.cloud.colors is not None:
            return paint.own_colors(shown)
        if wanted.color == "file":  # the first has colors, the second has not
            return paint.height(shown)
        noise = self._settings(wanted, side).noise
        return paint.of_surface(self._surface(side, noise), wanted.color)

    def _matched(self, encodings: list[Encodings]) -> list[Paint]:
        title = "Similarity with the matching point"
        back = self._matches(0)
        return [
            paint.similar(match_similarity(encodings[0], encodings[1], back), title),
            paint.similar(match_similarity(encodings[1], encodings[0], self._matches(1)), title),
        ]

    def _matches(self, side: int) -> Matches:
        return match(self._clouds[side], self._clouds[1 - side])

    def _normals(self, wanted: Wanted, side: int) -> np.ndarray | None:
        if not wanted.lines:
            return None
        return self._surface(side, self._settings(wanted, side).noise).normal

    def _mark(self, wanted: Wanted, picked: Picked | None) -> None:
        for k, stage in enumerate(self._stages):
            row = picked[1] if picked is not None and picked[0] == k else None
            stage.mark(row, wanted.settings.radius, wanted.point_size)

    def _tell(self, picked: Picked | None, encodings: list[Encodings]) -> None:
        """Numbers on the panel: of the picked point, and of the two clouds."""
        if len(encodings) == 2:
            matches = self._matches(1)
            values = match_similarity(encodings[1], encodings[0], matches)
            low, middle = np.percentile(values, [10, 50]).tolist()
            self.panel.compare(
                f"Similarity of matching points ({matches.how}): mean {values.mean():.3f}, "
                f"median {middle:.3f}, one in ten below {low:.3f}."
            )
        else:
            self.panel.compare("")
        if picked is None:
            self.panel.point(None)
            return
        side, row = picked
        shown = self._clouds[side]
        found = inside(encodings[side], row)
        g = encodings[side].of(torch.tensor([row]))[0]
        xyz = encodings[side].at[row].double().numpy() + shown.center
        self.panel.point(pick.numbers(g, xyz, int(shown.rows[row]), found.seen), found)

    def _clicked(self, event: viser.SceneClickEvent) -> None:
        ray = pick.Ray(event.ray_origin, event.ray_direction)
        sides = (0, 1) if self._done is not None and self._done.beside else (0,)
        hits = [(k, pick.hit(self._stages[k].placed, ray)) for k in sides]
        found = [(at[1], k, at[0]) for k, at in hits if at is not None]
        if found:
            _, side, row = min(found)
            self._picked = (side, row)
            self._worker.wake()

    def _forget(self) -> None:
        self._picked = None
        self._worker.wake()

    def _failed(self, error: Exception) -> None:
        """What a slider or a click led to goes on the page, which stays as it was."""
        self.panel.say(" ".join(str(error).split()) or type(error).__name__, bad=True)
