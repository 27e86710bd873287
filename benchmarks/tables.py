"""Markdown for the tables, and the claims that they must bear out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.harness import Row, seconds


@dataclass(frozen=True)
class Claim:
    """A sentence, the figure it asks for, and the figure that was measured."""

    text: str
    target: str
    measured: str
    holds: bool
    aim: str = ""

    @classmethod
    def at_least(cls, text: str, value: float, target: float, aim: float | None = None) -> Claim:
        """A ratio that must not be smaller."""
        aimed = "" if aim is None else f"≥ {aim:g}x"
        return cls(text, f"≥ {target:g}x", f"{value:.3g}x", value >= target, aimed)

    @classmethod
    def at_most(cls, text: str, value: float, target: float, aim: float | None = None) -> Claim:
        """A ratio that must not be larger."""
        aimed = "" if aim is None else f"≤ {aim:g}x"
        return cls(text, f"≤ {target:g}x", f"{value:.3g}x", value <= target, aimed)


def claims(found: Iterable[Claim]) -> str:
    """The claims as a table, misses in bold."""
    lines = [
        [c.text, c.target, c.aim or "-", c.measured, "PASS" if c.holds else "**MISS**"]
        for c in found
    ]
    return table(["claim", "target", "aim", "measured", ""], lines)


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns, readable as it is."""
    cells = [list(header), *[list(line) for line in lines]]
    width = [max(len(line[k]) for line in cells) for k in range(len(header))]
    rule = ["-" * w for w in width]
    text = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, width, strict=True)) + " |"
        for line in [cells[0], rule, *cells[1:]]
    ]
    return "\n".join(text)


def time(row: Row | None) -> str:
    """Median and interquartile range, or why there is none."""
    if row is None:
        return ""
    if row.seconds:
        return seconds(row.median) + (f" ± {seconds(row.spread)}" if len(row.seconds) > 1 else "")
    if row.note:
        return "failed"
    if row.estimate is not None and row.estimate != float("inf"):
        return f"not run (est. {seconds(row.estimate)})"
    return "refused"


def brief(row: Row | None) -> str:
    """The median alone, for wide tables."""
    if row is None:
        return ""
    return seconds(row.median) if row.seconds else time(row).replace("not run ", "")


def error(row: Row | None, which: str = "mean") -> str:
    """An error in per cent."""
    value = None if row is None else row.mean_error if which == "mean" else row.max_error
    if value is None:
        return ""
    if value >= 1:
        return f"{value * 100:.0f} %"
    return f"{value * 100:.2g} %" if value >= 1e-6 else "< 0.0001 %"


def size(count: int | None) -> str:
    """Bytes in MB."""
    return "" if count is None else f"{count / 1e6:,.0f} MB"
