"""Numbers and columns for people to read."""

from __future__ import annotations


def entry(label: str, text: str) -> list[str]:
    """A line of a two-column list."""
    return [f"{label:<10} {text}"]


def number(value: float) -> str:
    """Three significant digits, without an exponent where one can do without."""
    if value == 0 or not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}"
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if "e" in digits else digits


def seconds(value: float) -> str:
    """A time with its unit."""
    if value < 1e-3:
        return f"{number(value * 1e6)} us"
    if value < 1:
        return f"{number(value * 1e3)} ms"
    return f"{number(value)} s"


def percent(value: float) -> str:
    """A relative error, two significant digits."""
    if value >= 1:
        return f"{value * 100:.0f} %"
    return f"{value * 100:.2g} %" if value >= 1e-5 else "< 0.001 %"


def counted(count: int, thing: str) -> str:
    """A number and what it counts, in the plural where there is one."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def bytes_of(count: int) -> str:
    """A size with its unit."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{number(size)} {unit}"
        size /= 1000
    return f"{number(size)} TB"
