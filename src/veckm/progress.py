"""Progress bars for long work: only on a terminal, and only once it takes more than a second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def track(items: Sequence[T], label: str | None) -> Iterable[T]:
    """`items`, with a bar named `label`; no label, no bar. tqdm is silent off a terminal."""
    if label is None:
        return items
    return tqdm(items, desc=label, leave=False, disable=None, delay=1.0)
