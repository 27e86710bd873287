"""All figures, as PNG and SVG."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from experiments.figures import (
    alignment,
    cost,
    encodings,
    kernel,
    normals,
    reconstruction,
    scales,
    sizes,
)
from experiments.figures.style import styled
from veckm.io.atomic import writing

Effort = Literal["quick", "full"]
#: A PNG knows which program wrote it, an SVG when; without, the same numbers give the same file.
_WITHOUT = {"png": {"Software": None}, "svg": {"Date": None}}


@dataclass(frozen=True)
class Drawing:
    """A figure: what it shows, how its numbers are found, how they are drawn."""

    title: str
    compute: Callable[[bool], Any]  # of whether it is to be quick
    draw: Callable[[Any], Figure]


@dataclass(frozen=True)
class Made:
    """A figure that was written."""

    name: str
    title: str
    paths: tuple[Path, ...]
    seconds: float


FIGURES: dict[str, Drawing] = {
    "encodings": Drawing(encodings.TITLE, encodings.compute, encodings.draw),
    "cost": Drawing(cost.TITLE, cost.compute, cost.draw),
    "kernel": Drawing(kernel.TITLE, kernel.compute, kernel.draw),
    "reconstruction": Drawing(reconstruction.TITLE, reconstruction.compute, reconstruction.draw),
    "scales": Drawing(scales.TITLE, scales.compute, scales.draw),
    "sizes": Drawing(sizes.TITLE, sizes.compute, sizes.draw),
    "normals_house": Drawing(normals.TITLE, normals.house, normals.draw),
    "normals_street": Drawing(normals.STREET, normals.street, normals.draw),
    "alignment": Drawing(alignment.TITLE, alignment.compute, alignment.draw),
}


def make(folder: str | Path, names: Sequence[str] = (), effort: Effort = "full") -> Iterator[Made]:
    """Compute, draw and write figures, one after another.

    Args:
        folder: where; it is made if it is not there.
        names: of the figures; all of them if there are none.
        effort: ``"quick"`` for small clouds, to see that it works.
    """
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise ValueError(f"there is no figure {unknown[0]!r}: choose from {', '.join(FIGURES)}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or FIGURES:
        drawing, start = FIGURES[name], time.perf_counter()
        numbers = drawing.compute(effort == "quick")
        paths = tuple(folder / f"{name}.{kind}" for kind in _WITHOUT)
        with styled():
            figure = drawing.draw(numbers)
            for path in paths:
                kind = path.suffix[1:]
                with writing(path) as file:
                    figure.savefig(file, format=kind, metadata=_WITHOUT[kind])
        yield Made(name, drawing.title, paths, time.perf_counter() - start)
