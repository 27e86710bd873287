"""The points that the page displays: all of them, or a subset that keeps sparse regions whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veckm.cloud import PointCloud
from veckm.inputs import check_count, check_finite

#: Points per cell, about, where the density is estimated.
_PER_CELL = 32


@dataclass(frozen=True, eq=False)
class DisplayCloud:
    """A cloud, and the rows of it that are displayed.

    Attributes:
        name: of the cloud, for the page.
        cloud: the whole cloud, as it was read.
        pos: all points relative to ``center``, in the file's units.
        rows: the displayed points, ascending.
        center: of the bounding box, in the file's coordinates.
        size: half of the diagonal of the bounding box, the unit of the scene.

    Shapes:
        - pos: (N, 3) float32, rows: (M,) int64, center: (3,) float64
    """

    name: str
    cloud: PointCloud
    pos: Tensor
    rows: Tensor
    center: np.ndarray
    size: float

    @classmethod
    def of(
        cls,
        cloud: PointCloud,
        name: str = "cloud",
        *,
        limit: int = 2_000_000,
        frame: DisplayCloud | None = None,
    ) -> DisplayCloud:
        """Prepare a cloud of at least two points, all finite, for the page.

        Args:
            cloud, name: the points, and what the page calls them.
            limit: the largest number of points that are displayed.
            frame: another cloud whose center and size are used, to be compared with it.
        """
        if len(cloud) < 2:
            raise ValueError(
                f"{name}: has {len(cloud)} point{'' if len(cloud) == 1 else 's'}; "
                "a view needs at least two, since an encoding describes neighbors"
            )
        check_count(limit, "limit of points", least=2)
        xyz = cloud.xyz
        check_finite(torch.from_numpy(xyz), "cloud.xyz")
        low, high = xyz.min(0), xyz.max(0)
        center = (low + high) / 2 if frame is None else frame.center
        size = float(np.linalg.norm(high - low)) / 2 if frame is None else frame.size
        pos = torch.from_numpy((xyz - center).astype(np.float32))
        # Points that all coincide have no size; any will do.
        return cls(name, cloud, pos, torch.from_numpy(thin(xyz, limit)), center, size or 1.0)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def complete(self) -> bool:
        """Whether every point is displayed."""
        return len(self.rows) == len(self.pos)

    @property
    def note(self) -> str:
        """How many points are displayed, and which."""
        if self.complete:
            return f"{len(self.pos):,} points, all shown"
        return (
            f"{len(self.rows):,} of {len(self.pos):,} points shown: "
            "sparse regions whole, dense ones subsampled at random"
        )


def thin(xyz: np.ndarray, limit: int) -> np.ndarray:  # (N, 3) -> (M,) int64, ascending
    """Rows of at most ``limit`` points: every cell keeps at most a cap, the largest possible.

    A uniform subsample would leave nothing of sparse regions beside dense ones. Here a cell with
    fewer points than the cap keeps all of them, and a random part of the others is kept.
    """
    if len(xyz) <= limit:
        return np.arange(len(xyz))
    rng = np.random.default_rng(0)
    cell = _cells(xyz)
    order, counts = np.lexsort((rng.random(len(xyz)), cell)), np.bincount(cell)
    # The rank of each point within its cell, in random order; the lowest ranks are kept.
    rank = np.arange(len(xyz)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = np.argpartition(rank + rng.random(len(xyz)), limit)[:limit]
    return np.sort(order[kept])


def _cells(xyz: np.ndarray) -> np.ndarray:  # (N, 3) -> (N,) int64, without gaps
    """The cell of each point; on a surface a cell has about 32 points."""
    low = xyz.min(0)
    side = float((xyz.max(0) - low).max()) * (_PER_CELL / len(xyz)) ** 0.5
    index = np.floor((xyz - low) / (side or 1.0)).astype(np.int64)
    flat = np.ravel_multi_index(tuple(index.T), tuple(index.max(0) + 1))
    inverse: np.ndarray = np.unique(flat, return_inverse=True)[1]
    return inverse
