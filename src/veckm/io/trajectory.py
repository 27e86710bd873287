"""Where a moving sensor was: a table of times and positions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veckm.io.errors import FileError

#: Seconds that points may lie before the first or after the last time.
_OUTSIDE = 1.0


def sensor_positions(path: Path, time: np.ndarray) -> np.ndarray:  # (N,) -> (N, 3)
    """The positions at the times of points, between those of a file of time, x, y, z per line.

    The file is text, with a header or without, or an array .npy; further columns are ignored.
    """
    track = _read(path)
    track = track[np.argsort(track[:, 0], kind="stable")]
    first, last, low, high = track[0, 0], track[-1, 0], time.min(), time.max()
    if low < first - _OUTSIDE or high > last + _OUTSIDE:
        raise FileError(
            path, f"has times {first:.10g} to {last:.10g}, the points {low:.10g} to {high:.10g}"
        )
    return np.stack([np.interp(time, track[:, 0], column) for column in track[:, 1:4].T], 1)


def _read(path: Path) -> np.ndarray:  # (T, 4 or more) float64
    try:
        if path.suffix.lower() == ".npy":
            track = np.asarray(np.load(path, allow_pickle=False), np.float64)
        else:
            text = path.read_text(encoding="utf-8").replace(",", " ").replace(";", " ")
            lines = text.splitlines() or [""]
            named = lines[0].strip("#/ \t")[:1] not in "-+.0123456789"
            track = np.asarray(np.loadtxt(lines[int(named) :], ndmin=2), np.float64)
    except (ValueError, UnicodeDecodeError) as error:
        raise FileError(path, f"is not a table of numbers: {error}") from error
    if track.ndim != 2 or track.shape[1] < 4 or not len(track) or not np.isfinite(track).all():
        raise FileError(path, f"must have columns time, x, y, z, got shape {track.shape}")
    return track
