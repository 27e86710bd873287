"""The panel beside the scene: controls, and what is printed about the clouds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import viser

from veckm.palette import Color
from veckm.viewer import picked
from veckm.viewer.colors import LABELS, small_html
from veckm.viewer.display import DisplayCloud
from veckm.viewer.encodings import Encodings, Settings

#: The largest detail, D and noise (in percent of the diagonal) of the sliders.
_DETAIL, _DIM, _NOISE = 12.0, 1024, 3.0


@dataclass(frozen=True)
class ViewState:
    """The state of the controls."""

    settings: Settings
    color: Color
    pair: bool  # whether a second cloud is displayed: another file, or a noisy copy
    point_size: float  # in units of the scene
    lines: bool  # whether normals are drawn as lines


class Panel:
    """The controls and texts of the page; texts are set on the handles, which are HTML."""

    def __init__(
        self,
        gui: viser.GuiApi,
        clouds: Sequence[DisplayCloud],
        settings: Settings,  # initial values of the sliders
        color: Color,
        changed: Callable[[], None],  # called when a control has changed
        cleared: Callable[[], None],  # called to clear the picked point
    ) -> None:
        self._gui, self._changed, self._two = gui, changed, len(clouds) > 1
        colors = [c for c in LABELS if c != "file" or clouds[0].cloud.colors is not None]
        if color not in colors:
            raise ValueError(f"{clouds[0].name}: has no colors of its own; choose another color")
        gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)
        gui.set_panel_label("veckm view")
        gui.main_panel.dock_right()  # so that it does not cover the cloud
        gui.add_html(list_clouds(clouds))
        self._status = gui.add_html("")
        self._color = gui.add_dropdown(
            "Color by", [LABELS[c] for c in colors], initial_value=LABELS[color]
        )
        self.legend = gui.add_html("")
        # About the distance between points that cover a surface of the scene's size.
        size = round(1e3 * float(np.clip(1.5 / np.sqrt(len(clouds[0])), 0.0015, 0.05)), 1)
        hint = "thousandths of half of the diagonal of the box"
        self._size = self._slider("Point size", 0.5, 60.0, 0.1, size, hint)
        self._lines = gui.add_checkbox("Normals as lines", initial_value=False)
        with gui.add_folder("Encoding"):
            self._add_encoding(settings)
        hint = "noise is then added to the copy only"
        self._pair = gui.add_checkbox("Noisy copy beside", False, visible=not self._two, hint=hint)
        self.match = gui.add_html("")
        self._hint = gui.add_html(small_html("Click a point to see what is similar to it."))
        with gui.add_folder("Picked point", visible=False) as self._folder:
            self._image = gui.add_image(np.full((1, 2, 3), 255, dtype=np.uint8), format="png")
            self._caption = gui.add_html("")
            self._numbers = gui.add_html("")
            gui.add_button("Clear the point").on_click(lambda _: cleared())
        for control in (self._color, self._lines, self._pair):
            control.on_update(lambda _: changed())

    def _slider(
        self, label: str, low: float, high: float, step: float, initial: float, hint: str
    ) -> viser.GuiSliderHandle[float]:
        slider = self._gui.add_slider(label, low, max(high, initial), step, initial, hint=hint)
        slider.on_update(lambda _: self._changed())
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

    def state(self) -> ViewState:
        """The state of the controls now."""
        color = next(c for c, label in LABELS.items() if label == self._color.value)
        noise, size = self._noise.value / 100, self._size.value / 1e3
        settings = Settings(self._radius.value, self._detail.value, int(self._dim.value), noise)
        pair = self._two or self._pair.value or color == "match"
        return ViewState(settings, color, pair, size, self._lines.value)

    def show_status(self, text: str, *, error: bool = False) -> None:
        """Print what the page is doing, or what went wrong."""
        self._status.content = small_html(escape(text), "#b3261e" if error else "inherit")

    def hide_point(self) -> None:
        """Show that no point is picked."""
        self._folder.visible, self._hint.visible = False, True

    def show_point(self, encodings: Encodings, row: int) -> None:
        """Show the numbers and the cross section of a displayed point."""
        self._folder.visible, self._hint.visible = True, False
        section = picked.cross_section(encodings, row)
        self._numbers.content = picked.describe_point(encodings, row, section.seen)
        self._image.image = picked.draw(section)
        self._caption.content = picked.caption(section)


def list_clouds(clouds: Sequence[DisplayCloud]) -> str:
    """The names of the clouds and how many points are displayed, as HTML."""
    return small_html(
        "".join(f"<div><b>{escape(c.name)}</b>: {escape(c.note)}</div>" for c in clouds)
    )
