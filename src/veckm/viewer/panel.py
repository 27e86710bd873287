"""The panel beside the scene: what one can set, and what one can read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import viser

from veckm.cross_section import Cut
from veckm.palette import Color
from veckm.viewer.colors import Legend
from veckm.viewer.encode import Settings
from veckm.viewer.inside import picture
from veckm.viewer.paint import LABELS
from veckm.viewer.shown import Shown

#: The largest noise of the slider, in percent of the diagonal, and the largest detail.
_NOISE, _DETAIL = 3.0, 12.0


@dataclass(frozen=True)
class Wanted:
    """What the panel asks for.

    Attributes:
        settings: of the encodings.
        color: what the points are colored by.
        beside: whether a copy with noise stands beside the cloud.
        point_size: in units of the scene.
        lines: whether normals are drawn as lines.
    """

    settings: Settings
    color: Color
    beside: bool
    point_size: float
    lines: bool


class Panel:
    """The controls, and the places where the page writes.

    Args:
        gui: of the server.
        clouds: one or two.
        settings: that the sliders begin with.
        color: that the cloud has at first.
        colors: that can be chosen.
        point_size: in units of the scene.
        changed: called when a control was moved.
        clear: called to forget the picked point.
    """

    def __init__(
        self,
        gui: viser.GuiApi,
        clouds: Sequence[Shown],
        settings: Settings,
        color: Color,
        colors: Sequence[Color],
        point_size: float,
        changed: Callable[[], None],
        clear: Callable[[], None],
    ) -> None:
        gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)
        gui.set_panel_label("veckm view")
        gui.main_panel.dock_right()  # so that it does not cover the cloud
        self._two = len(clouds) > 1
        lines = "".join(
            f"<div><b>{escape(cloud.name)}</b>: {escape(cloud.note)}</div>" for cloud in clouds
        )
        gui.add_html(f'<div style="font-size:12px;padding:6px 12px 0">{lines}</div>')
        self._status = gui.add_html("")
        self._color = gui.add_dropdown(
            "Color by", [LABELS[c] for c in colors], initial_value=LABELS[color]
        )
        self._legend = gui.add_html("")
        self._size = gui.add_slider(
            "Point size",
            min=0.5,
            max=60.0,
            step=0.1,
            initial_value=round(1e3 * point_size, 1),
            hint="thousandths of half of the diagonal of the box",
        )
        self._lines = gui.add_checkbox("Normals as lines", initial_value=False)
        with gui.add_folder("Encoding"):
            self._sliders(gui, settings)
        self._beside = gui.add_checkbox(
            "Noisy copy beside",
            initial_value=False,
            visible=not self._two,
            hint="noise then goes to the copy only",
        )
        self._match = gui.add_html("")
        self._point(gui, clear)
        for control in (
            self._color, self._size, self._lines, self._radius, self._detail, self._dim,
            self._noise, self._beside,
        ):  # fmt: skip
            control.on_update(lambda _: changed())

    def _sliders(self, gui: viser.GuiApi, settings: Settings) -> None:
        self._unit = settings.radius / 100  # so that the slider moves in hundredths
        self._radius = gui.add_slider(
            "Radius",
            min=25 * self._unit,
            max=400 * self._unit,
            step=self._unit,
            initial_value=settings.radius,
            hint="size of the neighborhood, in the file's units; beta = 1.8 / radius",
        )
        self._detail = gui.add_slider(
            "Detail",
            min=1.0,
            max=max(_DETAIL, settings.detail),
            step=0.1,
            initial_value=settings.detail,
            hint="alpha times radius; more keeps finer shapes apart",
        )
        self._dim = gui.add_slider(
            "D",
            min=8,
            max=max(1024, settings.dim),
            step=8,
            initial_value=settings.dim,
            hint="complex numbers of an encoding",
        )
        self._noise = gui.add_slider(
            "Noise, %",
            min=0.0,
            max=max(_NOISE, 100 * settings.noise),
            step=0.05,
            initial_value=100 * settings.noise,
            hint="standard deviation, percent of the diagonal of the box",
        )

    def _point(self, gui: viser.GuiApi, clear: Callable[[], None]) -> None:
        self._hint = gui.add_html(_small("Click a point to see what is like it."))
        with gui.add_folder("Picked point", visible=False) as self._folder:
            empty = np.full((1, 2, 3), 255, dtype=np.uint8)
            self._image = gui.add_image(empty, format="png")
            self._caption = gui.add_html("")
            self._numbers = gui.add_html("")
            self._clear = gui.add_button("Forget the point")
        self._clear.on_click(lambda _: clear())

    def wanted(self) -> Wanted:
        """What the controls say now."""
        color = next(c for c, label in LABELS.items() if label == self._color.value)
        settings = Settings(
            float(self._radius.value),
            float(self._detail.value),
            int(self._dim.value),
            float(self._noise.value) / 100,
        )
        beside = self._two or bool(self._beside.value) or color == "match"
        size = float(self._size.value) / 1e3
        return Wanted(settings, color, beside, size, bool(self._lines.value))

    def say(self, text: str, *, bad: bool = False) -> None:
        """The line that says what the page is doing, or what went wrong."""
        self._status.content = _small(text, "#b3261e" if bad else "inherit")

    def explain(self, legend: Legend) -> None:
        """What the colors mean."""
        self._legend.content = legend.html()

    def compare(self, text: str) -> None:
        """How like the two clouds are; empty for one cloud."""
        self._match.content = _small(text) if text else ""

    def point(self, numbers: str | None, cut: Cut | None = None) -> None:
        """What is known of the picked point; None if there is none."""
        self._folder.visible = numbers is not None
        self._hint.visible = numbers is None
        if numbers is None or cut is None:
            return
        self._numbers.content = numbers
        self._image.image = picture(cut)
        self._caption.content = _small(
            f"A cut across the surface, {2 * cut.side:.3g} wide in the file's units. "
            "Left: the neighbors, paler where they count less. Right: the density that the "
            f"encoding alone holds (Proposition 1); correlation with the true one "
            f"{cut.agreement:.3f}."
        )


def _small(text: str, color: str = "inherit") -> str:
    return f'<div style="font-size:12px;padding:2px 12px;color:{color}">{escape(text)}</div>'
