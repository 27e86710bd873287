"""Point clouds that are read by range, so that they need not fit into memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from veckm.cloud import PointCloud
from veckm.io.errors import guarded

#: Points that are held at a time while a whole file is scanned.
BLOCK = 1 << 20


class Source(ABC):
    """A file whose points can be read by range. Pickled as its path.

    Attributes:
        path: the file.
        count: its number of points.
        columns: the names that its columns were given, if it has none.
    """

    path: Path
    count: int
    columns: tuple[str, ...] = ()

    @abstractmethod
    def _read(self, start: int, stop: int) -> PointCloud:
        """Points of a range that is within the file; whatever it raises becomes a FileError."""

    def _read_xyz(self, start: int, stop: int) -> np.ndarray:
        return self._read(start, stop).xyz

    def read(self, start: int, stop: int) -> PointCloud:
        """Points ``start`` up to but not including ``stop``, with all fields."""
        with self._checked(start, stop):
            return self._read(start, stop)

    def read_xyz(self, start: int, stop: int) -> np.ndarray:  # (stop - start, 3) float64
        """The coordinates only."""
        with self._checked(start, stop):
            return self._read_xyz(start, stop)

    def read_all(self) -> PointCloud:
        """The whole file."""
        return self.read(0, self.count)

    def like(self) -> PointCloud:
        """A cloud without points that has all that is needed to write such a file."""
        return self.read(0, 0)

    def bounds(self) -> np.ndarray:  # (2, 3) float64
        """Minimum and maximum of the coordinates of all points; headers may be wrong."""
        low, high = np.full(3, np.inf), np.full(3, -np.inf)
        for start in range(0, self.count, BLOCK):
            xyz = self.read_xyz(start, min(start + BLOCK, self.count))
            low, high = np.fmin(low, np.fmin.reduce(xyz)), np.fmax(high, np.fmax.reduce(xyz))
        return np.stack([low, high]) if self.count else np.zeros((2, 3))

    def __reduce__(self) -> tuple[Any, ...]:
        from veckm.io.formats import open_source  # which imports this module

        return open_source, (str(self.path), self.columns)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {self.count:,} points)"

    def _checked(self, start: int, stop: int) -> AbstractContextManager[None]:
        if not 0 <= start <= stop <= self.count:
            raise ValueError(
                f"{self.path}: has {self.count} points, the range {start} to {stop} is outside"
            )
        return guarded(self.path, "read")
