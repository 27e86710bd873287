"""The points that are shown: all of them, or a choice that keeps sparse places whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veckm.cloud import PointCloud

#: More points than this are thinned before they are sent to the page.
LIMIT = 2_000_000
#: Points of a cell, about, where density is looked at.
_IN_CELL = 32


@dataclass(frozen=True, eq=False)
class Shown:
    """A cloud, and the rows of it that the page shows.

    Attributes:
        name: what the page calls it.
        cloud: the whole cloud, as its file has it.
        pos: all points about ``center``, in the file's units.
        rows: those that are shown, ascending.
        center: of the bounding box, in the file's coordinates.
        size: half of the diagonal of the bounding box; the scene is in units of it.

    Shapes:
        - pos: (N, 3) float32, rows: (M,) int64, center: (3,) float64
    """

    name: str
    cloud: PointCloud
    pos: Tensor
    rows: Tensor
    center: np.ndarray
    size: float

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def whole(self) -> bool:
        """Whether every point is shown."""
        return len(self.rows) == len(self.pos)

    @property
    def note(self) -> str:
        """How many points are shown, and which."""
        if self.whole:
            return f"{len(self.pos):,} points, all shown"
        return (
            f"{len(self.rows):,} of {len(self.pos):,} points shown: "
            "sparse places whole, dense ones thinned at random"
        )


def show(
    cloud: PointCloud,
    name: str = "cloud",
    *,
    limit: int = LIMIT,
    frame: Shown | None = None,
) -> Shown:
    """A cloud made ready for the page.

    Args:
        cloud: at least two points, all finite.
        name: what the page calls it.
        limit: the largest number of points that the page gets.
        frame: another cloud whose center and size this one takes, to be seen beside it.
    """
    if len(cloud) < 2:
        raise ValueError(
            f"{name}: has {len(cloud)} point{'' if len(cloud) == 1 else 's'}; "
            "a view needs at least two, for an encoding is about neighbors"
        )
    if limit < 2:
        raise ValueError(f"limit of points must be at least 2, got {limit}")
    xyz = cloud.xyz
    bad = int((~np.isfinite(xyz).all(1)).sum())
    if bad:
        raise ValueError(
            f"{name}: {bad:,} of {len(xyz):,} points have NaN or infinite coordinates; "
            "drop them first, cloud[np.isfinite(cloud.xyz).all(1)]"
        )
    low, high = xyz.min(0), xyz.max(0)
    center = (low + high) / 2 if frame is None else frame.center
    size = float(np.linalg.norm(high - low)) / 2 if frame is None else frame.size
    pos = torch.from_numpy((xyz - center).astype(np.float32))
    # Points that all coincide have no size; any will do.
    return Shown(name, cloud, pos, torch.from_numpy(thin(xyz, limit)), center, size or 1.0)


def thin(
    xyz: np.ndarray,  # (N, 3)
    limit: int,
    seed: int = 0,
) -> np.ndarray:  # (M,) int64, ascending
    """Rows of at most ``limit`` points: no cell keeps more than a cap, which is as high as can be.

    A random choice would leave nothing of thin places beside dense ones. Here a cell that has
    fewer points than the cap keeps them all; of the others a random part stays.
    """
    if len(xyz) <= limit:
        return np.arange(len(xyz))
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(xyz))
    cell = _cells(xyz)[shuffled]
    order = np.argsort(cell, kind="stable")
    counts = np.bincount(cell)
    # The rank of each point within its cell, in random order.
    rank = np.arange(len(xyz)) - np.repeat(np.cumsum(counts) - counts, counts)
    cap = _cap(counts, limit)
    kept = order[rank < cap]
    more = rng.permutation(order[rank == cap])[: limit - len(kept)]
    return np.sort(shuffled[np.concatenate([kept, more])])


def _cells(xyz: np.ndarray) -> np.ndarray:  # (N, 3) -> (N,) int64, without gaps
    """The number of the cell of each point; on a surface a cell has about 32 points."""
    low = xyz.min(0)
    side = float((xyz.max(0) - low).max()) * (_IN_CELL / len(xyz)) ** 0.5
    if side == 0:
        return np.zeros(len(xyz), dtype=np.int64)
    index = np.floor((xyz - low) / side).astype(np.int64)
    span = index.max(0) + 1
    flat = (index[:, 0] * span[1] + index[:, 1]) * span[2] + index[:, 2]
    inverse: np.ndarray = np.unique(flat, return_inverse=True)[1]
    return inverse.ravel()


def _cap(counts: np.ndarray, limit: int) -> int:
    """The largest cap at which the cells together keep no more than ``limit``."""
    low, high = 0, int(counts.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(counts, middle).sum()) <= limit:
            low = middle
        else:
            high = middle - 1
    return low
