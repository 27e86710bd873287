"""Numbers as lines of text, both ways."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np

_BLOCK = 1 << 16


def parse(lines: Sequence[bytes], dtype: np.dtype, delimiter: str | None = None) -> np.ndarray:
    """Lines of numbers as records (N,) of ``dtype``, whose fields are the columns in order."""
    if not lines:
        return np.zeros(0, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # lines without numbers are an error, not a remark
        try:
            found = np.loadtxt(
                lines, dtype, comments=None, delimiter=delimiter, ndmin=1, encoding="latin-1"
            )
        except UserWarning as error:
            raise ValueError(error) from None
    if len(found) != len(lines):
        raise ValueError(f"{len(lines) - len(found)} of {len(lines)} lines are empty")
    return np.asarray(found)


def flatten(arrays: Iterable[np.ndarray]) -> list[np.ndarray]:
    """(N,) and (N, k) arrays as columns (N,)."""
    return [column for array in arrays for column in (array.T if array.ndim == 2 else array[None])]


def render(columns: Sequence[np.ndarray], delimiter: str = " ") -> bytes:
    """Columns (N,) as lines, each number in the fewest digits that give it back."""
    parts = []
    for start in range(0, len(columns[0]) if columns else 0, _BLOCK):
        words = [_words(column[start : start + _BLOCK]) for column in columns]
        parts.append("\n".join(map(delimiter.join, zip(*words, strict=True))))
    return "\n".join([*parts, ""]).encode("ascii") if parts else b""


def _words(column: np.ndarray) -> list[str]:
    if column.dtype.kind in "iu":
        return list(map(str, column.tolist()))
    if column.dtype.kind == "b":
        return ["1" if value else "0" for value in column.tolist()]
    if column.dtype.itemsize == 8:
        return list(map(repr, column.tolist()))
    words: list[str] = column.astype(str).tolist()
    return words
