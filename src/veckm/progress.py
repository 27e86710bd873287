"""Progress bars: only on a terminal, and only for work of more than a second.

Work of several passes has one bar, which names the pass: "2 of 4: normals".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

#: What is being displayed, the innermost last.
_active: list[_Passes] = []


class _Passes:
    """The passes of some work, and which of them is running."""

    def __init__(self, names: Sequence[str], prefix: str) -> None:
        self.names, self.prefix, self.now = list(names), prefix, ""
        self.labeled = 0  # bars with a label of their own that are open
        self._bar: Any = None
        self._lock = threading.Lock()

    def label(self, text: str = "") -> str:
        """The number and the name of the pass, and what is done in it."""
        if text in self.names:
            self.now, text = text, ""
        number = ""
        if self.now:
            number = f"{self.names.index(self.now) + 1} of {len(self.names)}: {self.now}"
        return self.prefix + ", ".join(filter(None, (number, text)))

    def close(self) -> None:
        """Wipe out the bar of the running pass."""
        with self._lock:
            if self._bar is not None:
                self._bar.close()
            self._bar = None

    def advance(self, steps: int = 1) -> None:
        """Count steps of a pass whose number of steps is not known before."""
        with self._lock:
            if self.labeled or not self.now:
                return
            if self._bar is None:
                self._bar = _tqdm(None, self.label(), "blocks")
            self._bar.update(steps)


@contextmanager
def passes(names: Sequence[str], shown: bool = True, prefix: str = "") -> Iterator[None]:
    """One bar for the passes of some work: those that :func:`begin` names, and every
    :func:`bar` inside. The prefix comes before all of them."""
    if not shown:
        yield
        return
    around = _active[-1].prefix if _active else ""
    _active.append(_Passes(names, around + prefix))
    try:
        yield
    finally:
        _active.pop().close()


def begin(name: str) -> None:
    """A pass begins. Does nothing if no passes are displayed, or none of this name."""
    if _active:
        _active[-1].close()
        _active[-1].label(name)


@contextmanager
def bar(
    total: int, label: str | None, unit: str = "it", done: int = 0
) -> Iterator[Callable[..., object]]:
    """A progress bar of `total` steps. Without a label the steps count for the running pass.

    Yields a function to call after each step, or after several with their number. Steps of another
    `unit`, such as points, are printed in thousands and millions. `done` steps are already done.
    """
    around = _active[-1] if _active else None
    if label is None:
        yield around.advance if around is not None else lambda _steps=1: None
        return
    if around is not None:
        around.close()
        around.labeled += 1
    try:
        with _tqdm(total, around.label(label) if around else label, unit, done) as shown:
            yield shown.update
    finally:
        if around is not None:
            around.labeled -= 1


def _tqdm(total: int | None, label: str, unit: str, done: int = 0) -> Any:
    from tqdm import tqdm

    scaled = unit not in ("it", "blocks")
    return tqdm(
        total=total,
        desc=label,
        leave=False,
        disable=None,
        delay=1.0,
        initial=done,
        unit=unit if unit == "it" else f" {unit}",
        unit_scale=scaled,
    )
