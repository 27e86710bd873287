"""A look at all points of a file: ranges of its fields, classes, and density on the ground."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from veckm.cloud import PointCloud, written
from veckm.io.las import CLASSES

#: Points in a cell of the ground on average, and cells at most.
_PER_CELL, _MOST_CELLS = 16, 1 << 26
_CLASS_FIELD = "classification"


class Survey:
    """One look at all points, some at a time."""

    def __init__(self, low: np.ndarray, high: np.ndarray, count: int) -> None:
        """The box of the points and their number."""
        self.missing = 0  # points without coordinates
        self.ranges: dict[str, list[float]] = {}  # least and largest number of each field
        self.codes: Counter[int] = Counter()  # points of each class
        sides = (high - low)[:2]
        self._low, self._side = low[:2], float(np.sqrt(sides.prod() / count * _PER_CELL))
        cells = np.zeros(2, np.int64)
        if self._side > 0 and (sides / self._side).max() < _MOST_CELLS:
            cells = np.floor(sides / self._side).astype(np.int64) + 1
        self._ground = np.zeros(cells if cells.prod() <= _MOST_CELLS else (0, 0), bool)
        self._count = count

    def add(self, clouds: Iterable[PointCloud]) -> None:
        """Look at some points."""
        for cloud in clouds:
            xy = cloud.xyz[:, :2]
            good = np.isfinite(cloud.pos).all(1)
            self.missing += int((~good).sum())
            if self._ground.size:
                cell = ((xy[good] - self._low) / self._side).astype(np.int64)
                self._ground[tuple(np.clip(cell, 0, np.array(self._ground.shape) - 1).T)] = True
            for name, values in cloud.fields.items():
                self._add_field(name, values)

    def _add_field(self, name: str, values: np.ndarray) -> None:
        if values.dtype.kind not in "iufb" or not values.size:
            return
        if name.lower() == _CLASS_FIELD and values.dtype.kind in "iu":
            codes, counts = np.unique(values, return_counts=True)
            self.codes.update(dict(zip(codes.tolist(), counts.tolist(), strict=True)))
        found = [np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)]
        low, high = self.ranges.get(name, found)
        pair = [min(low, found[0]), max(high, found[1])]
        self.ranges[name] = [x if isinstance(x, int | float) else as_written(x) for x in pair]

    @property
    def density(self) -> float | None:
        """Points per unit of area, where the ground has any; None for an upright line or plane."""
        area = int(self._ground.sum()) * self._side**2
        return (self._count - self.missing) / area if area > 0 else None

    @property
    def classes(self) -> dict[str, int]:
        """Points of each class by its name."""
        return {
            CLASSES[code] if code < len(CLASSES) else f"class {code}": count
            for code, count in sorted(self.codes.items())
        }


def as_written(value: np.generic) -> Any:
    """A number without the digits that its dtype does not have."""
    return float(written(value)) if isinstance(value, np.float32) else value.item()
