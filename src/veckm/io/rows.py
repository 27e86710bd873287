"""Numbers as lines of text, in both directions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

_BLOCK = 1 << 16


def parse(lines: Sequence[bytes], dtype: np.dtype, delimiter: str | None = None) -> np.ndarray:
    """Lines of numbers as records (N,) of ``dtype``, whose fields are the columns in order."""
    if not lines:
        return np.zeros(0, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy only warns about lines without numbers
        try:
            found = np.loadtxt(
                lines, dtype, comments=None, delimiter=delimiter, ndmin=1, encoding="latin-1"
            )
        except UserWarning as error:
            raise ValueError(error) from None
    if len(found) != len(lines):
        raise ValueError(f"{len(lines) - len(found)} of {len(lines)} lines are empty")
    return np.asarray(found)


def render(arrays: Sequence[np.ndarray], delimiter: str = " ") -> bytes:
    """(N,) and (N, k) arrays as lines, each number in the fewest digits that give it back."""
    columns = [c for array in arrays for c in (array.T if array.ndim == 2 else array[None])]
    parts = []
    for start in range(0, len(columns[0]), _BLOCK):
        words = [_words(column[start : start + _BLOCK]) for column in columns]
        parts.append("\n".join(map(delimiter.join, zip(*words, strict=True))))
    return "\n".join([*parts, ""]).encode("ascii") if parts else b""


def _words(column: np.ndarray) -> list[str]:
    if column.dtype.kind in "iub":
        return list(map(str, (column.view("u1") if column.dtype.kind == "b" else column).tolist()))
    if column.dtype.itemsize == 8:
        return list(map(repr, column.tolist()))
    words: list[str] = column.astype(str).tolist()
    return words
