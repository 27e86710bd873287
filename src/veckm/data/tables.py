"""Checks that the readers of datasets share; every error names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch


def read_table(path: Path, columns: int) -> np.ndarray:  # (N, columns) float64
    """The numbers of a text file, separated by spaces or commas."""
    data = path.read_bytes().replace(b",", b" ")
    try:
        table = np.array(data.split(), dtype=np.float64).reshape(-1, columns)
    except ValueError as error:
        raise ValueError(
            f"{path}: is not a table of numbers with {columns} columns"
            f"{_first_wrong(data, columns)}: {error}"
        ) from error
    if not len(table):
        raise ValueError(f"{path}: is empty")
    bad = np.flatnonzero(~np.isfinite(table).all(1))
    if len(bad):
        raise ValueError(f"{path}: has NaN or infinite values, the first in line {bad[0] + 1}")
    return table


def _first_wrong(data: bytes, columns: int) -> str:
    """The first line that is not as many numbers, for people to mend it."""
    for number, line in enumerate(data.splitlines(), 1):
        try:
            if len([float(word) for word in line.split()]) in (0, columns):
                continue
        except ValueError:
            pass
        return f", line {number} is {line[:80].decode('latin-1')!r}"
    return ""


def check_labels(path: Path, label: np.ndarray, count: int, first: int = 0) -> None:
    """Whole numbers from ``first``, ``count`` of them."""
    wrong = np.flatnonzero((label != np.floor(label)) | (label < first) | (label >= first + count))
    if len(wrong):
        raise ValueError(
            f"{path}: has the label {label.reshape(-1)[wrong[0]]} at {wrong[0]}; labels are whole "
            f"numbers from {first} to {first + count - 1}"
        )


def subset_rows(
    path: Path, have: int, want: int, generator: torch.Generator, repeat: bool = False
) -> np.ndarray:  # (want,)
    """A random choice of rows; all of them in their order if just as many are wanted.

    With ``repeat`` a cloud that is too small gives all its rows, and then some a second time.
    """
    if have < want and not repeat:
        raise ValueError(
            f"{path}: has {have} points, fewer than the {want} asked for; ask for at most {have}"
        )
    if have == want:
        return np.arange(have)
    if have < want:
        more = torch.randint(have, (want - have,), generator=generator).numpy()
        return np.concatenate((np.arange(have), more))
    return torch.randperm(have, generator=generator)[:want].numpy()


def unit_ball(
    pos: np.ndarray,  # (N, 3)
) -> np.ndarray:  # (N, 3) float32
    """About the mean, with the farthest point at distance one."""
    pos = pos - pos.mean(0)
    size = np.sqrt((pos * pos).sum(-1)).max()
    return np.asarray(pos / (size if size > 0 else 1.0), dtype=np.float32)
