"""Real scans, where there are some: eps is kept on them too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from clouds import frequencies
from tolerance import mean_error
from torch import Generator, Tensor

from veckm import encode, suggest_radius

pytestmark = pytest.mark.data


def load(folder: Path, name: str) -> Tensor:
    """The points of a file, float32; a missing file is skipped by its name."""
    path = folder / name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    if path.suffix == ".bin":  # KITTI: x y z intensity
        return torch.from_numpy(np.fromfile(path, np.float32).reshape(-1, 4)[:, :3].copy())
    loaded = np.load(path)
    array = loaded if isinstance(loaded, np.ndarray) else loaded["xyz"]
    return torch.from_numpy(np.ascontiguousarray(array, np.float32))


def assert_keeps_eps(
    pos: Tensor, A: Tensor, beta: float, eps: float, engine: str, generator: Generator
) -> None:
    """All rows by the engine, 300 of them by the definition in float64."""
    G = encode(pos, A, beta=beta, engine=engine, eps=eps)  # type: ignore[arg-type]
    rows = torch.randperm(len(pos), generator=generator)[:300]
    x = pos.double()
    truth = encode(x, A, beta=beta, engine="dense", queries=x[rows])
    assert mean_error(G[rows], truth) <= eps


@pytest.mark.parametrize("name", ["netsuke100k.npy", "boxunion2100k.npy", "bunny100k.npz"])
@pytest.mark.parametrize("beta", [10.0, 20.0])
def test_the_grid_keeps_eps_on_scanned_shapes(
    name: str, beta: float, shared_data: Path, generator: Generator
) -> None:
    pos = load(shared_data, f"pcpnet/{name}")
    pos = (pos - pos.mean(0)) / (pos - pos.mean(0)).norm(dim=1).max()
    A = frequencies(3, 32, 60.0, generator)
    assert_keeps_eps(pos, A, beta, 1e-2, "grid", generator)


@pytest.mark.parametrize("engine", ["grid", "neighbors", "auto"])
def test_every_engine_keeps_eps_on_a_street(
    engine: str, shared_data: Path, generator: Generator
) -> None:
    frames = sorted(shared_data.glob("lidar/**/*.bin"))
    if not frames:
        pytest.skip(f"no KITTI frame under {shared_data / 'lidar'}")
    pos = load(shared_data, str(frames[0].relative_to(shared_data)))
    radius = suggest_radius(pos)
    A = frequencies(3, 32, 6 / radius, generator)
    assert_keeps_eps(pos, A, 1.8 / radius, 1e-2, engine, generator)
