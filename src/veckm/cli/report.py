"""What `veckm encode` has to say, as data and as lines of text."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from veckm.cli.text import bytes_of, counted, entry, number, percent, seconds


@dataclass(frozen=True)
class Cloud:
    """What was read."""

    source: str
    points: int
    box: tuple[float, ...]  # sides of the bounding box
    dtype: str
    computed_in: str
    note: str | None = None

    def lines(self) -> list[str]:
        """As text."""
        box = " x ".join(number(side) for side in self.box)
        out = entry("cloud", f"{self.source}: {counted(self.points, 'point')}, {self.dtype}")
        out += entry("", f"box {box}, in the cloud's own units")
        if self.computed_in != self.dtype:
            out += entry("", f"computed in {self.computed_in} about the middle of the box")
        return out + (entry("note", self.note) if self.note else [])


@dataclass(frozen=True)
class Setting:
    """What was asked for, or suggested."""

    window: str
    radius: float
    suggested: bool
    neighbors: int
    dim: int
    alpha: float
    beta: float
    eps: float
    seed: int

    def lines(self) -> list[str]:
        """As text."""
        why = f"suggested: half the points see {self.neighbors} others or more within it"
        radius = f"radius {number(self.radius)}" + (f" ({why})" if self.suggested else "")
        detail = number(self.alpha * self.radius)
        size = f"{self.dim} complex numbers a point, seed {self.seed}"
        scale = f"detail {detail}: alpha {number(self.alpha)}, beta {number(self.beta)}"
        return entry("window", f"{self.window}, {radius}") + entry("encoding", f"{size}; {scale}")


@dataclass(frozen=True)
class Choice:
    """The engine, and what each was expected to cost."""

    engine: str
    asked: str
    eps: float
    expected: dict[str, float | None]  # seconds; None where the engine cannot do it

    def lines(self) -> list[str]:
        """As text."""
        auto = f"chosen by auto: the least expected time within eps = {self.eps:g}"
        out = entry("engine", f"{self.engine}, {auto if self.asked == 'auto' else 'as asked'}")
        known = [(s, name) for name, s in self.expected.items() if s is not None]
        for cost, name in sorted(known):
            mark = " <-" if name == self.engine else ""
            noisy = "   noisy, ignores eps: only when asked for" if name == "random" else ""
            out += entry("", f"  {name:<10} {seconds(cost):>9} expected{mark}{noisy}")
        return out


@dataclass(frozen=True)
class Result:
    """What came out."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    seconds: float
    points_per_second: float
    threads: int
    output: str | None

    def lines(self) -> list[str]:
        """As text."""
        speed = f"{self.points_per_second:,.0f} points/s on {counted(self.threads, 'thread')}"
        shape = "(" + ", ".join(str(n) for n in self.shape) + ")"
        what = f"{shape} {self.dtype}, {bytes_of(self.bytes)}"
        out = entry("time", f"{seconds(self.seconds)}, {speed}") + entry("result", what)
        return out + (entry("written", self.output) if self.output else [])


@dataclass(frozen=True)
class Measured:
    """One engine against the definition."""

    name: str
    seconds: float
    mean_error: float
    max_error: float


@dataclass(frozen=True)
class Check:
    """How the result compares with the definition, and with the paper's random features."""

    rows: int
    eps: float
    measured: tuple[Measured, ...]

    def lines(self) -> list[str]:
        """As text."""
        rows = counted(self.rows, "random row")
        out = ["", f"Against the definition (all pairs, float64), {rows}:", ""]
        out.append(f"  {'':<24} {'time':>9} {'mean error':>12} {'max error':>12}")
        for m in self.measured:
            errors = f"{percent(m.mean_error):>12} {percent(m.max_error):>12}"
            out.append(f"  {m.name:<24} {seconds(m.seconds):>9} {errors}")
        out.append(f"  {'asked for (eps)':<24} {'':>9} {percent(self.eps):>12}")
        return out + self._verdict()

    def _verdict(self) -> list[str]:
        if len(self.measured) < 2:
            return []
        ours, paper = self.measured
        text = (
            f"  {number(paper.seconds / ours.seconds)} times as fast as the paper's random features"
        )
        if ours.mean_error > 1e-5:  # else rounding, not a figure to be proud of
            text += f", mean error {number(paper.mean_error / ours.mean_error)} times smaller"
        return ["", f"{text}."]


@dataclass(frozen=True)
class Report:
    """All of it."""

    veckm: str
    cloud: Cloud
    setting: Setting
    engine: Choice
    result: Result
    check: Check | None

    def json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self), indent=2, allow_nan=False)


def finite(cost: float) -> float | None:
    """None for an infinite cost, which JSON has no word for."""
    return cost if math.isfinite(cost) else None
