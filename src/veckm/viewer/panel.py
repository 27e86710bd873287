"""The panel beside the scene: controls, and what is printed about the clouds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import viser

from veckm.viewer import picked
from veckm.viewer.alignment import STAGES
from veckm.viewer.camera import UPS, VIEWS, likely_up
from veckm.viewer.colors import small_html
from veckm.viewer.display import DisplayCloud
from veckm.viewer.encodings import Encodings, Settings
from veckm.viewer.fields import ENCODED, choices

#: The largest detail, D and noise (in percent of the diagonal) of the sliders.
_DETAIL, _DIM, _NOISE = 12.0, 1024, 3.0
#: Steps of a slider of the clipping box.
_STEPS = 200
#: Points that the direction up is guessed from.
_SAMPLE = 10_000


@dataclass(frozen=True)
class Follow:
    """What the page does when the user asks for something."""

    changed: Callable[[], None]  # a control has changed
    cleared: Callable[[], None]  # the picked point is to be cleared
    looked: Callable[[str], None]  # a view was chosen
    saved: Callable[[viser.ClientHandle], None]  # a screenshot was asked for
    resized: Callable[[], None]  # the size of the points has changed


@dataclass(frozen=True)
class ViewState:
    """The state of the controls."""

    settings: Settings
    color: str
    pair: bool  # whether a second cloud is displayed: another file, or a noisy copy
    lines: bool  # whether normals are drawn as lines
    shaded: bool
    box: np.ndarray | None  # (2, 3) lowest and highest coordinates that are shown; None: all
    aligned: bool  # whether the first cloud is moved onto the second
    matches: bool  # whether matches are drawn as lines


class Panel:
    """The controls and texts of the page; texts are set on the handles, which are HTML."""

    def __init__(
        self,
        gui: viser.GuiApi,
        clouds: Sequence[DisplayCloud],
        settings: Settings,  # initial values of the sliders
        color: str,
        more: dict[str, str],  # other colors that can be chosen, and their labels
        aligned: bool,  # whether there is an alignment
        follow: Follow,
    ) -> None:
        self._gui, self._follow, self._two = gui, follow, len(clouds) > 1
        self.labels = more | choices(clouds[0].cloud)
        if color not in self.labels:
            known = ", ".join(self.labels)
            wanted = "no colors of its own" if color == "file" else f"nothing called {color!r}"
            raise ValueError(f"{clouds[0].name}: has {wanted} to color by; there is {known}")
        gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)
        gui.set_panel_label("veckm view")
        gui.main_panel.dock_right()  # so that it does not cover the cloud
        gui.add_html(list_clouds(clouds))
        self._status = gui.add_html("")
        seen = clouds[0].pos[:: max(1, len(clouds[0].pos) // _SAMPLE)].numpy() + clouds[0].center
        self._add_views(likely_up(seen))
        names = list(self.labels.values())
        self._color = gui.add_dropdown("Color by", names, initial_value=self.labels[color])
        self.legend = gui.add_html("")
        self._stage = gui.add_dropdown(
            "Alignment", list(STAGES), initial_value="after", visible=aligned
        )
        self._matches = gui.add_checkbox("Matches as lines", True, visible=aligned)
        # About the pixels between points that cover a third of the page.
        pixels = float(np.clip(np.sqrt(600_000 / sum(map(len, clouds))), 1.5, 6.0))
        self._size = gui.add_slider("Point size", 0.5, 12.0, 0.1, round(pixels, 1))
        hint = "else the points grow as the camera comes nearer"
        self._pixels = gui.add_checkbox("Size in pixels", initial_value=True, hint=hint)
        hint = "light from the left front and above, on planes fitted to small cells"
        self._shaded = gui.add_checkbox("Shading", initial_value=False, hint=hint)
        self._lines = gui.add_checkbox("Normals as lines", initial_value=False)
        self._folder = gui.add_folder("Encoding")
        with self._folder:
            self._add_encoding(settings)
        self.match = gui.add_html("")
        self._hint = gui.add_html(small_html("Click a point to see its fields."))
        self._add_point()
        with gui.add_folder("Clipping box", expand_by_default=False):
            self._box = [self._add_range(clouds, axis) for axis in range(3)]
        for control in (self._color, self._shaded, self._lines, self._stage, self._matches):
            control.on_update(lambda _: follow.changed())
        for size in (self._size, self._pixels):
            size.on_update(lambda _: follow.resized())

    def _add_views(self, up: str) -> None:
        views = self._gui.add_button_group("View", tuple(VIEWS))
        views.on_click(lambda event: self._follow.looked(event.target.value))
        self._up = self._gui.add_dropdown("Up", list(UPS), initial_value=up)
        self._up.on_update(lambda _: self._follow.looked("Fit"))
        self._up.on_update(lambda _: self._follow.changed())
        shot = self._gui.add_button("Screenshot", hint="as a PNG file, without the panel")
        shot.on_click(lambda event: self._follow.saved(event.client) if event.client else None)

    def _add_point(self) -> None:
        self._point = self._gui.add_folder("Picked point", visible=False)
        with self._point:
            self._fields = self._gui.add_html("")
            blank = np.full((1, 2, 3), 255, dtype=np.uint8)
            self._image = self._gui.add_image(blank, format="png", visible=False)
            self._section = self._gui.add_html("")
            like = "descriptor" if "descriptor" in self.labels else "similarity"
            button = self._gui.add_button("Color by similarity with it")
            button.on_click(lambda _: self.color_by(like))
            self._gui.add_button("Clear the point").on_click(lambda _: self._follow.cleared())

    def _add_range(
        self, clouds: Sequence[DisplayCloud], axis: int
    ) -> viser.GuiMultiSliderHandle[float]:
        low = min(float(c.pos[:, axis].min()) + c.center[axis] for c in clouds)
        high = max(float(c.pos[:, axis].max()) + c.center[axis] for c in clouds)
        step = 10.0 ** np.floor(np.log10(max(high - low, 1e-9) / _STEPS))
        low, high = np.floor(low / step) * step, np.ceil(high / step) * step + step
        digits = max(0, -int(np.floor(np.log10(step))))
        ends = round(float(low), digits), round(float(high), digits)
        slider = self._gui.add_multi_slider(
            "xyz"[axis], *ends, step=float(step), initial_value=ends
        )
        slider.on_update(lambda _: self._follow.changed())
        return slider

    def _slider(
        self, label: str, low: float, high: float, step: float, initial: float, hint: str
    ) -> viser.GuiSliderHandle[float]:
        slider = self._gui.add_slider(label, low, max(high, initial), step, initial, hint=hint)
        slider.on_update(lambda _: self._follow.changed())
        return slider

    def _add_encoding(self, settings: Settings) -> None:
        radius = settings.radius  # the slider moves in hundredths of it
        hint = "of the neighborhood, in the file's units; beta = 1.8 / radius"
        self._radius = self._slider("Radius", radius / 4, 4 * radius, radius / 100, radius, hint)
        hint = "alpha times radius; higher values separate finer shapes"
        self._detail = self._slider("Detail", 1.0, _DETAIL, 0.1, settings.detail, hint)
        hint = "complex numbers per encoding"
        self._dim = self._slider("D", 8, _DIM, 8, settings.dim, hint)
        hint = "standard deviation, percent of the diagonal of the box"
        self._noise = self._slider("Noise, %", 0.0, _NOISE, 0.05, 100 * settings.noise, hint)
        hint = "noise is then added to the copy only"
        copy = self._gui.add_checkbox("Noisy copy beside", False, visible=not self._two, hint=hint)
        copy.on_update(lambda _: self._follow.changed())
        self._copy = copy

    def color_by(self, color: str) -> None:
        """Choose what the points are colored by."""
        self._color.value = self.labels[color]  # type: ignore[misc]
        self._follow.changed()

    @property
    def up(self) -> str:
        """The direction that is up."""
        return self._up.value

    @property
    def size(self) -> tuple[float, bool]:
        """The size of the points, and whether it is kept in pixels."""
        return self._size.value, self._pixels.value

    def state(self) -> ViewState:
        """The state of the controls now."""
        color = next(c for c, label in self.labels.items() if label == self._color.value)
        noise = self._noise.value / 100
        settings = Settings(self._radius.value, self._detail.value, int(self._dim.value), noise)
        box = None
        if any(s.value != (s.min, s.max) for s in self._box):
            box = np.array([s.value for s in self._box]).T
        return ViewState(
            settings,
            color,
            pair=self._two or self._copy.value or color == "match",
            lines=self._lines.value,
            shaded=self._shaded.value,
            box=box,
            aligned=self._stage.visible and self._stage.value == "after",
            matches=self._matches.visible and self._matches.value,
        )

    def show_status(self, text: str, *, error: bool = False) -> None:
        """Print what the page is doing, or what went wrong."""
        self._status.content = small_html(escape(text), "#b3261e" if error else "inherit")

    def show(self, state: ViewState) -> None:
        """Show the controls of what is displayed; no point is picked."""
        self._folder.visible = state.color in (*ENCODED, "descriptor")
        self._point.visible, self._hint.visible = False, True

    def show_point(self, display: DisplayCloud, row: int) -> None:
        """Show the fields of the picked point."""
        self._fields.content = picked.describe_fields(display, row)
        self._image.visible, self._section.content = False, ""
        self._point.visible, self._hint.visible = True, False

    def show_encoding(self, encodings: Encodings, row: int) -> None:
        """Show the numbers and the cross section of the picked point."""
        section = picked.cross_section(encodings, row)
        self._image.image, self._image.visible = picked.draw(section), True
        numbers = picked.describe_encoding(encodings, row, section.seen)
        self._section.content = picked.caption(section) + numbers


def list_clouds(clouds: Sequence[DisplayCloud]) -> str:
    """The names of the clouds and how many points are displayed, as HTML."""
    return small_html(
        "".join(f"<div><b>{escape(c.name)}</b>: {escape(c.note)}</div>" for c in clouds)
    )
