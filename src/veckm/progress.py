"""Progress bars for long work: only on a terminal, and only once it takes more than a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm


@contextmanager
def bar(
    total: int, label: str | None, unit: str = "it", done: int = 0
) -> Iterator[Callable[..., object]]:
    """A bar of `total` steps; no label, no bar.

    What it yields is called after each step, or after several with their number. Steps of another
    `unit`, as points, are counted in thousands and millions. `done` steps were done before.
    """
    if label is None:
        yield lambda _steps=1: None
        return
    with tqdm(
        total=total,
        desc=label,
        leave=False,
        disable=None,
        delay=1.0,
        initial=done,
        unit=unit,
        unit_scale=unit != "it",
    ) as shown:
        yield shown.update
