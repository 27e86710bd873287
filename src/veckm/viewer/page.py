"""The page as a whole: it follows the panel and the clicks, one change after another."""

from __future__ import annotations

import io
import time

import numpy as np
import viser

from veckm.viewer.alignment import Alignment, Describe, move
from veckm.viewer.camera import Cameras
from veckm.viewer.colors import Legend
from veckm.viewer.display import DRAWN, DisplayCloud
from veckm.viewer.encodings import Settings
from veckm.viewer.fields import ENCODED, first_color
from veckm.viewer.paint import Painter, Picked, clean
from veckm.viewer.panel import Follow, Panel, ViewState
from veckm.viewer.scene import SceneCloud, pick
from veckm.viewer.shading import shade
from veckm.viewer.worker import Worker

#: Distance between two clouds side by side, as a share of their widths.
_APART = 1.2
#: Colors of matches: those that the alignment agrees with, and the others.
_INLIERS, _OUTLIERS = (0, 158, 115), (190, 60, 60)
#: Radius of the marker of a picked point, in pixels.
_MARK = 5.0
#: How much nearer the camera comes before more points are drawn.
_NEARER = 1.2
#: Points of each cloud that the camera is placed by.
_SAMPLE = 10_000


class Page:
    """A cloud, or two, with everything that can be shown of them.

    Args:
        server: that serves the page.
        first: the cloud.
        second: another one to compare with; made with ``frame=first`` if their coordinates are
            to be compared, without if there is an alignment.
        settings: of the encodings at first; suggested by the density of the cloud if None.
        color: what the cloud is colored by first, a name of `veckm.viewer.fields`; None takes
            its own colors, classes, intensity or height, whichever it has first.
        alignment: of the first cloud to the second.
        describe: makes descriptors, if the page is to show their similarity.

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
        color: str | None = None,
        alignment: Alignment | None = None,
        describe: Describe | None = None,
    ) -> None:
        self._server, self._alignment = server, alignment
        self._clouds = (first, first if second is None else second)
        self._scene = (SceneCloud(server.scene, "first"), SceneCloud(server.scene, "second"))
        self._picked: Picked | None = None
        self._kept: list[np.ndarray | None] = [None, None]  # rows within the clipping box
        self._framed: tuple[bool, bool] | None = None  # the arrangement that the camera shows
        self.legend = Legend("", (), ())
        more = {} if second is None else {"cloud": "one color for each cloud"}
        if describe is not None:
            more["descriptor"] = "similarity of descriptors with the picked point"
        if color is None:
            color = "cloud" if alignment is not None else first_color(first.cloud)
        self._cameras = Cameras(server, self._resize)
        self._worker = Worker(self.update, self._failed)
        self._painter = Painter(self._clouds, describe, lambda text: self.panel.show_status(text))
        self.panel = Panel(
            server.gui,
            (first,) if second is None else self._clouds,
            Settings.suggested(first) if settings is None else settings,
            color,
            more,
            alignment is not None,
            Follow(self._worker.request, self._clear, self._look, self._save, self._resize),
        )

    def start(self) -> None:
        """Show the page, and follow the controls and clicks from now on."""
        self._server.scene.on_click()(self._clicked)
        for scene in self._scene:  # a coarse picture first, the rest when a page has it
            scene.draw_at_most(1)
        self._cameras.follow()
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
        if picked is not None and picked[0] == 1 and not state.pair:
            picked = self._picked = None  # its cloud is no longer there
        self.panel.show_status("working ...")
        settings = clean(state.settings, state.pair)
        colorings = self._painter.paint(state.color, settings, picked, self.panel.up)
        places = self._place(state)
        if self._framed != (state.pair, state.aligned):  # before the points: no page sees a jump
            self._framed = state.pair, state.aligned
            self._look("Fit", places)
        for k, (at, coloring) in enumerate(zip(places, colorings, strict=True)):
            rgb = coloring.rgb
            if state.shaded:
                rgb = shade(rgb, at)
            kept = self._clip(state, k)
            self._kept[k] = kept
            if kept is not None:
                at, rgb = at[kept], rgb[kept]
            self._scene[k].draw(at, rgb, self._point_size)
            if state.lines:
                normal = self._painter.surface(k, settings[k]).normal.numpy()
                self._scene[k].draw_normals(normal if kept is None else normal[kept])
        if not state.pair:
            self._scene[1].clear()
        elif state.matches and self._alignment is not None:
            self._draw_matches(self._alignment, state)
        self.legend = colorings[-1].legend
        self.panel.legend.content = self.legend.html()
        compared = state.pair and state.color in ENCODED
        self.panel.match.content = self._painter.describe_match(settings) if compared else ""
        self.panel.show(state)
        if picked is not None:
            self.panel.show_point(self._clouds[picked[0]], picked[1])
            radius = state.settings.radius / self._clouds[0].size
            near = state.color in (*ENCODED, "descriptor")
            place = places[picked[0]][picked[1]].astype(np.float64)
            mark = _MARK * 2 * self._cameras.pixel  # whose points are half as large
            self._scene[picked[0]].draw_marker(place, mark, radius if near else None)
            if state.color in ENCODED:
                self.panel.show_encoding(
                    self._painter.encodings(picked[0], settings[picked[0]]), picked[1]
                )
        self.panel.show_status(f"shown after {time.perf_counter() - start:.2f} s")

    def _place(self, state: ViewState) -> list[np.ndarray]:  # (M, 3) float32 of each cloud
        """Positions in the scene."""
        unit = np.float32(self._clouds[0].size)
        places = [
            self._painter.encodings(k, settings).at.numpy() / unit
            for k, settings in enumerate(clean(state.settings, state.pair))
        ]
        if not state.pair:
            return places
        return [move(at, frame) for at, frame in zip(places, self._frames(state), strict=True)]

    def _frames(self, state: ViewState) -> list[np.ndarray]:  # (4, 4) of each cloud
        """From coordinates relative to a cloud's center, in units of the scene, to the scene."""
        first, second = np.eye(4), np.eye(4)
        if state.aligned and self._alignment is not None:
            first = self._alignment.between(*self._clouds)
            first[:3, 3] /= self._clouds[0].size
        else:
            widths = [float(np.ptp(cloud.pos[:, 0].numpy())) for cloud in self._clouds]
            second[0, 3] = max(sum(widths) / 2 / self._clouds[0].size, 0.4) * _APART
        return [first, second]

    def _clip(self, state: ViewState, k: int) -> np.ndarray | None:  # (m,) rows
        """The displayed points within the clipping box, in the coordinates of their file."""
        if state.box is None:
            return None
        display = self._clouds[k]
        low, high = (state.box - display.center).astype(np.float32)
        at = display.at.numpy()
        return np.flatnonzero(((at >= low) & (at <= high)).all(1))

    def _draw_matches(self, alignment: Alignment, state: ViewState) -> None:
        pairs, good = alignment.shown_matches()
        frames, unit = self._frames(state), self._clouds[0].size
        ends = np.stack(
            [move((pairs[:, k] - self._clouds[k].center) / unit, frames[k]) for k in (0, 1)], axis=1
        )
        self._scene[1].draw_lines("inliers", ends[good], _INLIERS, 0.0015)
        self._scene[1].draw_lines("outliers", ends[~good], _OUTLIERS, 0.0015)

    def _look(self, view: str, places: list[np.ndarray] | None = None) -> None:
        """Place the cameras; all points are in the picture."""
        if places is None:
            places = [scene.placed for scene in self._scene]
        some = [at[:: max(1, len(at) // _SAMPLE)] for at in places]
        self._cameras.show(np.concatenate(some), view, self.panel.up)

    @property
    def _point_size(self) -> float:
        size, in_pixels = self.panel.size
        # A size that is not in pixels is in thousandths of the scene.
        return size * self._cameras.pixel if in_pixels else size / 500

    def _resize(self) -> None:
        """Draw the points as large as the panel says, also after a camera has moved."""
        nearer = self._cameras.fitted / self._cameras.pixel
        for scene in self._scene:
            scene.resize(self._point_size)
            scene.draw_at_most(DRAWN * nearer**2 if nearer > _NEARER else DRAWN)

    def _save(self, client: viser.ClientHandle) -> None:
        """Send the browser a picture of the scene on white."""
        import imageio.v3 as iio

        camera = client.camera
        image = client.get_render(
            camera.image_height, camera.image_width, transport_format="png", timeout=60
        ).astype(np.float32)
        opaque = image[..., 3:] / 255
        flat = np.rint(image[..., :3] * opaque + 255 * (1 - opaque)).astype(np.uint8)
        file = io.BytesIO()
        iio.imwrite(file, flat, extension=".png")
        name = f"{self._clouds[0].name.rsplit('.', 1)[0]}.png"
        client.send_file_download(name, file.getvalue(), save_immediately=True)

    def _clicked(self, event: viser.SceneClickEvent) -> None:
        ray = event.ray_origin, event.ray_direction
        found = []
        for k, scene in enumerate(self._scene):
            hit = pick(scene.placed, *ray) if len(scene.placed) else None
            if hit is not None:
                kept = self._kept[k]
                found.append((hit[1], k, hit[0] if kept is None else int(kept[hit[0]])))
        if found:
            self._picked = min(found)[1:]
            self._worker.request()

    def _clear(self) -> None:
        self._picked = None
        self._worker.request()

    def _failed(self, error: Exception) -> None:
        """Print the error on the page, which stays as it was."""
        self.panel.show_status(" ".join(str(error).split()) or type(error).__name__, error=True)
