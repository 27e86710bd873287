"""Progress bars: only on a terminal, and only for work of more than a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm


@contextmanager
def bar(
    total: int, label: str | None, unit: str = "it", done: int = 0
) -> Iterator[Callable[..., object]]:
    """A progress bar of `total` steps; none without a label.

    Yields a function to call after each step, or after several with their number. Steps of another
    `unit`, such as points, are printed in thousands and millions. `done` steps are already done.
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
