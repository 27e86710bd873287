"""The resolution that two clouds are compared at: one voxel size for both, from the clouds."""

from __future__ import annotations

import math

import numpy as np

#: Points that the size is found on, and steps that find it.
_SAMPLE, _STEPS = 100_000, 12
#: Shares of the most voxels that are near enough, and that are aimed at.
_NEAR, _AIM = 0.97, 0.985


def voxel_size(clouds: list[np.ndarray], voxels: int) -> float:
    """The smallest edge with which no cloud has more than `voxels` of them occupied, nor more than
    half as many as points."""
    some = [_axes(x[:: max(1, len(x) // _SAMPLE)]) for x in clouds]
    most = np.array([min(voxels, len(x) / 2) for x in clouds])
    edge = max(float(x.max()) for x in some) / voxels**0.5
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
    _, rows, counts = np.unique(_keys(_axes(x), voxel), return_inverse=True, return_counts=True)
    sums = [np.bincount(rows, x[:, axis], len(counts)) for axis in range(3)]
    return np.stack(sums, 1) / counts[:, None]


def _axes(x: np.ndarray) -> np.ndarray:  # (N, 3) -> (3, N)
    """Coordinates from the lowest, axis by axis: several times as fast as row by row."""
    columns = np.array(x.T, order="C")
    columns -= columns.min(1, keepdims=True)
    return columns


def _keys(columns: np.ndarray, voxel: float) -> np.ndarray:  # (3, N) -> (N,) int64
    """The number of the voxel of every point."""
    x, y, z = (columns / max(voxel, 1e-300)).astype(np.int64)
    sizes = [int(cells.max()) + 1 for cells in (x, y, z)]
    if math.prod(sizes) >= 1 << 62:  # a point far away: count only what is occupied
        plane = np.unique(x * sizes[1] + y, return_inverse=True)[1]
    else:
        plane = x * sizes[1] + y
    keys: np.ndarray = plane * sizes[2] + z
    return keys
