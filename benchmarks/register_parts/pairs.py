"""Pairs of real scans with known motions, and when a motion counts as right."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

#: Degrees and share of the diameter (objects, LiDAR), meters (3DMatch).
DEGREES, SHARE, METERS = 5.0, 0.05, 0.2
#: Names of the files of each set begin so.
SETS = {
    "objects, noise 0": "fgr_noise0_",
    "objects, noise 1": "fgr_noise1_",
    "objects, noise 2": "fgr_noise2_",
    "3DMatch": "3dmatch_",
    "LiDAR": "lidar_",
}
#: A right match is within this many voxels, and the overlap within fewer.
RIGHT, OVERLAP = 2.5, 1.5


@dataclass(frozen=True)
class Pair:
    """Two clouds, the source turned at random, and the motion between them."""

    name: str
    set: str
    source: np.ndarray  # (N, 3) float64
    target: np.ndarray  # (M, 3)
    truth: np.ndarray  # (4, 4)

    def error(self, T: np.ndarray) -> tuple[float, float]:
        """Degrees, and the root mean square distance between right and found positions."""
        cos = (np.trace(self.truth[:3, :3].T @ T[:3, :3]) - 1) / 2
        off = moved(self.source, T) - moved(self.source, self.truth)
        return float(np.degrees(np.arccos(np.clip(cos, -1, 1)))), float(
            np.sqrt((off**2).sum(1).mean())
        )

    def right(self, T: np.ndarray) -> bool:
        """By the rule of the set."""
        degrees, rmse = self.error(T)
        if self.set == "3DMatch":
            return rmse < METERS
        off = (moved(self.source, T) - moved(self.source, self.truth)).mean(0)
        diameter = float(np.linalg.norm(np.ptp(self.source, 0)))
        return bool(degrees < DEGREES and np.linalg.norm(off) < SHARE * diameter)


def moved(x: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Points after a rigid motion."""
    out: np.ndarray = x @ T[:3, :3].T + T[:3, 3]
    return out


def pairs(folder: Path, only: Sequence[str]) -> Iterator[Pair]:
    """All pairs, or those whose names contain one of the words; turned by a seed of the name."""
    for kind, prefix in SETS.items():
        for path in sorted(folder.glob(f"{prefix}*.npz")):
            if only and not any(word in path.stem for word in only):
                continue
            data = np.load(path)
            R = np.eye(4)
            generator = np.random.default_rng(zlib.crc32(path.stem.encode()))
            R[:3, :3] = Rotation.random(random_state=generator).as_matrix()
            source = data["source"].astype(float) @ R[:3, :3].T
            truth = data["T"].astype(float) @ np.linalg.inv(R)
            yield Pair(path.stem, kind, source, data["target"].astype(float), truth)


def right_matches(
    p: np.ndarray,  # (n, 3) keypoints of the source
    q: np.ndarray,  # (m, 3)
    nearest: np.ndarray,  # (n,) the target keypoint with the nearest descriptor
    truth: np.ndarray,  # (4, 4)
    voxel: float,
) -> float:
    """The share of right ones among the matches of keypoints in the overlap."""
    there = moved(p, truth)
    inside = cKDTree(q).query(there)[0] < OVERLAP * voxel
    if not inside.any():
        return float("nan")
    off = np.linalg.norm(there - q[nearest], axis=1)
    return float((off[inside] < RIGHT * voxel).mean())
