"""The resolution that two clouds are compared at: one voxel size for both, from the clouds."""

from __future__ import annotations

import numpy as np

#: Points that the size is found on, and steps that find it.
_SAMPLE, _STEPS = 100_000, 12
#: Shares of the most voxels that are near enough, and that are aimed at.
_NEAR, _AIM = 0.97, 0.985


def voxel_size(clouds: list[np.ndarray], voxels: int) -> float:
    """The smallest edge with which no cloud has more than `voxels` of them occupied, nor more than
    half as many as points."""
    some = [x[:: max(1, len(x) // _SAMPLE)] for x in clouds]
    most = np.array([min(voxels, len(x) / 2) for x in clouds])
    edge = max(float(np.ptp(x, 0).max()) for x in some) / voxels**0.5
    low, high = 0.0, np.inf
    for _ in range(_STEPS):  # the number of voxels of a surface falls with the square of the edge
        counts = np.array([len(np.unique(_keys(x, edge))) for x in some])
        excess = float((counts / most).max())
        if _NEAR < excess <= 1:
            return float(edge)
        low, high = (edge, high) if excess > 1 else (low, edge)
        step = edge * (excess / _AIM) ** 0.5
        edge = step if low < step < high else (low + min(high, 3 * edge)) / 2
    return float(high) if np.isfinite(high) else edge


def downsample(x: np.ndarray, voxel: float) -> np.ndarray:  # (N, 3) -> (n, 3)
    """The mean of the points of every occupied voxel."""
    _, rows, counts = np.unique(_keys(x, voxel), return_inverse=True, return_counts=True)
    sums = [np.bincount(rows, x[:, axis], len(counts)) for axis in range(3)]
    return np.stack(sums, 1) / counts[:, None]


def _keys(x: np.ndarray, voxel: float) -> np.ndarray:  # (N,) int64
    """The number of the voxel of every point."""
    cells = np.floor((x - x.min(0)) / max(voxel, 1e-300)).astype(np.int64)
    keys: np.ndarray = np.ravel_multi_index(tuple(cells.T), tuple(cells.max(0) + 1))
    return keys
