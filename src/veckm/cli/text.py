"""Numbers and labeled lines for people to read."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tqdm import tqdm


def labeled(label: str, text: str) -> str:
    """A line with the label in a column of its own."""
    return f"{label:<10} {text}"


def number(value: float) -> str:
    """Three significant digits, in scientific notation only where it is needed."""
    return f"{float(f'{value:.3g}'):,.10g}"


def box(sides: Iterable[float]) -> str:
    """The sides of a bounding box, for example ``2 x 1 x 0.5``."""
    return " x ".join(number(side) for side in sides)


def seconds(value: float) -> str:
    """A duration with its unit, from microseconds to hours."""
    for limit, unit, size in ((1e-3, "us", 1e-6), (1, "ms", 1e-3), (90, "s", 1), (5400, "min", 60)):
        if value < limit:
            return f"{number(value / size)} {unit}"
    return f"{number(value / 3600)} h"


def counted(count: int, noun: str) -> str:
    """A number and what it counts, in the plural unless it is 1."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def pace(points: int, spent: float) -> str:
    """A duration, the points per second, and on how many threads."""
    threads = counted(torch.get_num_threads(), "thread")
    return f"{seconds(spent)}, {points / spent:,.0f} points/s on {threads}"


def bytes_of(count: float) -> str:
    """A size with its unit."""
    return str(tqdm.format_sizeof(count, "B"))
