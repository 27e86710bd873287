"""The points that the page displays: all of them, or a subset that keeps sparse regions whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veckm.cloud import PointCloud
from veckm.inputs import check_count

#: Points per cell, about, where the density is estimated.
_PER_CELL = 32
#: Points that are drawn where a cloud fills the page, several for every pixel; more as the camera
#: comes nearer. A browser without a graphics card takes almost a second for a million.
DRAWN = 1_000_000
#: Points that are moved at a time, without a copy of all of them in float64.
_BLOCK = 1 << 18


@dataclass(frozen=True, eq=False)
class DisplayCloud:
    """A cloud, and the rows of it that are displayed.

    Attributes:
        name: of the cloud, for the page.
        cloud: the points that have coordinates.
        pos: the same relative to ``center``, in the file's units.
        rows: the displayed points, ascending.
        center: of the bounding box, in the file's coordinates.
        size: half of the diagonal of the bounding box, the unit of the scene.
        numbers: which points of the file have coordinates; None if all have.

    Shapes:
        - pos: (N, 3) float32, rows: (M,) int64, center: (3,) float64
    """

    name: str
    cloud: PointCloud
    pos: Tensor
    rows: Tensor
    center: np.ndarray
    size: float
    numbers: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        cloud: PointCloud,
        name: str = "cloud",
        *,
        limit: int = 5_000_000,
        frame: DisplayCloud | None = None,
    ) -> DisplayCloud:
        """Prepare a cloud of at least two points for the page; those with NaN are left out.

        Args:
            cloud, name: the points, and what the page calls them.
            limit: the largest number of points that are displayed.
            frame: another cloud whose center and size are used, to be compared with it.
        """
        check_count(limit, "limit of points", least=2)
        finite, numbers = np.isfinite(cloud.pos).all(1), None
        if not finite.all():
            numbers = np.flatnonzero(finite)
            cloud = cloud[numbers]
        if len(cloud) < 2:
            raise ValueError(
                f"{name}: has {len(cloud)} point{'' if len(cloud) == 1 else 's'}; "
                "a view needs at least two"
            )
        low, high = cloud.pos.min(0).astype(np.float64), cloud.pos.max(0).astype(np.float64)
        center = (low + high) / 2 + cloud.origin if frame is None else frame.center
        size = float(np.linalg.norm(high - low)) / 2 if frame is None else frame.size
        pos = np.empty(cloud.pos.shape, dtype=np.float32)
        for start in range(0, len(pos), _BLOCK):
            pos[start : start + _BLOCK] = cloud.pos[start : start + _BLOCK] + (
                cloud.origin - center
            )
        rows = torch.from_numpy(thin(pos, limit))
        # Points that all coincide have no size; any will do.
        return cls(name, cloud, torch.from_numpy(pos), rows, center, size or 1.0, numbers)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def complete(self) -> bool:
        """Whether every point is displayed."""
        return len(self.rows) == len(self.pos)

    @property
    def at(self) -> Tensor:  # (M, 3)
        """The displayed points, relative to ``center``."""
        return self.pos if self.complete else self.pos[self.rows]

    def number(self, row: int) -> int:
        """Which point of the file a displayed one is."""
        found = int(self.rows[row])
        return found if self.numbers is None else int(self.numbers[found])

    @property
    def note(self) -> str:
        """How many points are displayed, and which."""
        text = f"{len(self.pos):,} points, all shown"
        if not self.complete:
            text = (
                f"{len(self.rows):,} of {len(self.pos):,} points shown: "
                "sparse regions whole, dense ones subsampled at random"
            )
        if len(self) > DRAWN:
            text += f"; from afar a sample of {DRAWN:,} is drawn"
        return text if self.numbers is None else f"{text}; those with NaN coordinates left out"


def thin(xyz: np.ndarray, limit: int) -> np.ndarray:  # (N, 3) -> (M,) int64, ascending
    """Rows of at most ``limit`` points: every cell keeps at most a cap, the largest possible.

    A uniform subsample would leave nothing of sparse regions beside dense ones. Here every point
    draws a number below the count of its cell, and the lowest are kept: a cell with fewer points
    than the cap keeps all of them, and a random part of the others is kept.
    """
    if len(xyz) <= limit:
        return np.arange(len(xyz))
    cell, counts = cells(xyz, _PER_CELL)[1:]
    rank = np.random.default_rng(0).random(len(xyz), dtype=np.float32) * counts[cell]
    return np.sort(np.argpartition(rank, limit)[:limit])


def cells(
    xyz: np.ndarray,
    per_cell: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # (N, 3) -> (C, 3), (N,), (C,)
    """Cells of a cubic grid that have points, the cell of each point, and how many each has.

    On a surface a cell has about ``per_cell`` points; cells are in the order of their indices.
    """
    low = xyz.min(0)
    side = grid_side(xyz, per_cell)
    shape = np.floor((xyz.max(0) - low) / side).astype(np.int64) + 1
    flat = np.zeros(len(xyz), dtype=np.int64)
    for axis in range(3):
        flat *= shape[axis]
        flat += ((xyz[:, axis] - low[axis]) / side).astype(np.int64).clip(0, shape[axis] - 1)
    found, cell, counts = np.unique(flat, return_inverse=True, return_counts=True)
    return np.stack(np.unravel_index(found, tuple(shape)), axis=1), cell, counts


def grid_side(xyz: np.ndarray, per_cell: float) -> float:  # (N, 3)
    """Side of a cell with about so many points, were they spread over a square."""
    extent = float((xyz.max(0) - xyz.min(0)).max())
    return extent * min(1.0, (per_cell / len(xyz)) ** 0.5) or 1.0
