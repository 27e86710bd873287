"""Clouds for tiles: dense here, thin there, with copies and points far from all others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veckm.data import shapes


def uneven(count: int, seed: int = 0) -> np.ndarray:  # (N, 3) float64
    """A statue in a wide street, far from zero; some copies, some points in the sky."""
    rng = np.random.default_rng(seed)
    street = shapes.lidar(count // 2, seed=seed).pos.double().numpy()
    statue = shapes.statue(count // 2, seed=seed).pos.double().numpy()
    sky = rng.normal(size=(12, 3)) * 0.5 + np.array([0.0, 0.0, 2.0])
    points = np.concatenate([2.0 * street, 0.4 * statue, 0.4 * statue[:50], sky])
    return rng.permutation(points) + np.array([431_000.0, 5_400_000.0, 250.0])


@pytest.fixture
def cloud(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A file with 6,062 points, and the points."""
    xyz = uneven(6000)
    path = tmp_path / "cloud.npy"
    np.save(path, xyz)
    return path, xyz
