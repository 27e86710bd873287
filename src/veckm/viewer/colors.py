"""Numbers as colors that the color-blind tell apart, and the legend that says which is which."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np

#: From dark to light: viridis, at ten places.
RISING = (
    (68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142),
    (31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37),
)  # fmt: skip
#: From blue by a light gray to vermilion, both of Okabe and Ito: for numbers of either sign.
DIVERGING = ((0, 114, 178), (122, 176, 208), (235, 235, 235), (226, 163, 119), (213, 94, 0))
#: Of three numbers at once.
RED_GREEN_BLUE = ((220, 40, 40), (30, 160, 60), (50, 80, 230))

Ramp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Legend:
    """What the colors mean.

    Attributes:
        title: the quantity, with its unit.
        ends: what the ends of the ramp stand for; without a ramp, what each color stands for.
        ramp: the colors between the ends, or one for each entry of ``ends``.
        even: whether the colors between are those of a ramp.
        note: a sentence more.
    """

    title: str
    ends: tuple[str, ...]
    ramp: Ramp
    even: bool = True
    note: str = ""

    def html(self) -> str:
        """For the page."""
        body = self._bar() if self.even else self._keys()
        note = f'<div style="opacity:.7">{escape(self.note)}</div>' if self.note else ""
        head = f'<div style="font-weight:600">{escape(self.title)}</div>'
        return f'<div style="font-size:12px;padding:2px 12px">{head}{body}{note}</div>'

    def _bar(self) -> str:
        stops = ",".join(_css(color) for color in self.ramp)
        bar = f'<div style="height:10px;margin:3px 0;background:linear-gradient(to right,{stops})">'
        ends = "".join(f"<span>{escape(end)}</span>" for end in self.ends)
        return f'{bar}</div><div style="display:flex;justify-content:space-between">{ends}</div>'

    def _keys(self) -> str:
        rows = [
            f'<div><span style="display:inline-block;width:10px;height:10px;margin-right:6px;'
            f'background:{_css(color)}"></span>{escape(end)}</div>'
            for color, end in zip(self.ramp, self.ends, strict=True)
        ]
        return "".join(rows)


def _css(color: tuple[int, int, int]) -> str:
    return f"rgb({color[0]},{color[1]},{color[2]})"


@dataclass(frozen=True, eq=False)
class Paint:
    """A color for every point that is shown, and what it means.

    Shapes:
        - rgb: (M, 3) uint8
    """

    rgb: np.ndarray
    legend: Legend


def colored(
    values: np.ndarray,  # (...,)
    low: float,
    high: float,
    ramp: Ramp = RISING,
) -> np.ndarray:  # (..., 3) uint8
    """Colors of numbers between two ends; those beyond have the color of the end."""
    share = (np.asarray(values, dtype=np.float64) - low) / (high - low or 1.0)
    places = np.linspace(0, 1, len(ramp))
    stops = np.asarray(ramp, dtype=np.float64)
    parts = [np.interp(share, places, stops[:, channel]) for channel in range(3)]
    return np.rint(np.stack(parts, axis=-1)).astype(np.uint8)


def ranged(
    values: np.ndarray,  # (M,)
    title: str,
    ramp: Ramp = RISING,
    note: str = "",
) -> Paint:
    """Colors from the lowest to the highest value, but for one in fifty at either end."""
    low, high = np.percentile(values, [2, 98]).tolist()
    return Paint(colored(values, low, high, ramp), Legend(title, _ends(low, high), ramp, note=note))


def signed(
    values: np.ndarray,  # (M,)
    title: str,
    note: str = "",
) -> Paint:
    """Colors about zero, as far to either side; one in twenty lies beyond the ends."""
    end = float(np.percentile(np.abs(values), 95))
    legend = Legend(title, (f"{-end:.3g}", "0", f"{end:.3g}"), DIVERGING, note=note)
    return Paint(colored(values, -end, end, DIVERGING), legend)


def _ends(low: float, high: float) -> tuple[str, str]:
    """Both numbers with as many digits as it takes to tell them apart."""
    for digits in range(3, 12):
        a, b = f"{low:.{digits}g}", f"{high:.{digits}g}"
        if a != b:
            break
    return a, b


def eight_bits(colors: np.ndarray) -> np.ndarray:  # (M, 3) in a file's range -> (M, 3) uint8
    """A file's colors as the page wants them: bytes, 16-bit numbers and shares of one."""
    values = np.asarray(colors, dtype=np.float64)
    top = float(values.max(initial=0.0))
    if colors.dtype.kind == "f" and top <= 1.0:
        values = values * 255
    elif top > 255:
        values = values / 257
    out: np.ndarray = np.rint(values.clip(0, 255)).astype(np.uint8)
    return out
