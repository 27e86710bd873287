"""Encodings tile by tile are those of the whole cloud."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from veckm import VecKM
from veckm.io.errors import FileError
from veckm.scan import Encode, run

Cloud = tuple[Path, np.ndarray]


def whole(operation: Encode, xyz: np.ndarray) -> np.ndarray:
    """In memory, in float64, so that only the tiles are rounded."""
    x = torch.from_numpy(xyz - (xyz.min(0) + xyz.max(0)) / 2)
    encoder = VecKM(
        operation.dim,
        radius=operation.radius,
        detail=operation.detail,
        window=operation.window,
        engine="neighbors",
        norm=operation.norm,
        eps=operation.eps,
        seed=operation.seed,
    )
    return encoder(x, progress=False).numpy()


def off(found: np.ndarray, expected: np.ndarray) -> np.ndarray:  # (N,)
    return np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)


@pytest.mark.parametrize(
    "operation",
    [
        Encode(16, (0.05,)),
        Encode(8, (0.05, 0.2), norm="mean", eps=1e-3),
        Encode(8, (0.1,), window="ball", norm=None, seed=3),
    ],
)
def test_tiles_equal_the_whole_cloud(tmp_path: Path, cloud: Cloud, operation: Encode) -> None:
    path, xyz = cloud
    report = run(path, tmp_path / "out.npy", operation, tile=1000)
    assert report.tiles >= 7
    found = np.load(tmp_path / "out.npy")
    assert found.dtype == np.complex64
    # Pairs at the cut itself are in or out by rounding. A Gaussian is 0.003 of its peak there, but
    # a ball is 1: points with a pair at its edge are left out.
    error = off(found, whole(operation, xyz))
    assert np.quantile(error, 0.999) < 2e-5
    if operation.window == "ball":
        far = np.flatnonzero(error >= 5e-3)
        gap = np.linalg.norm(xyz[far, None] - xyz, axis=2) - operation.radius[0]
        error[far[np.abs(gap).min(1) < 1e-7]] = 0
    assert error.max() < 5e-3


def test_a_halo_that_is_too_thin_would_show(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison above can fail."""
    path, xyz = cloud
    operation = Encode(8, (0.1,))
    thin = operation.reach / 2
    monkeypatch.setattr(Encode, "reach", property(lambda self: thin))
    run(path, tmp_path / "out.npy", operation, tile=1000)
    assert np.quantile(off(np.load(tmp_path / "out.npy"), whole(operation, xyz)), 0.9) > 1e-3


def test_the_grid_is_within_eps(tmp_path: Path, cloud: Cloud) -> None:
    path, xyz = cloud
    run(path, tmp_path / "out.npy", Encode(8, (0.1,), engine="grid", eps=1e-2), tile=2000)
    exact = whole(Encode(8, (0.1,), eps=1e-5), xyz)
    assert off(np.load(tmp_path / "out.npy"), exact).mean() < 1e-2


def test_half_precision_has_real_and_imaginary_parts_in_turn(tmp_path: Path, cloud: Cloud) -> None:
    path, _ = cloud
    run(path, tmp_path / "full.npy", Encode(4, (0.1,)), tile=3000)
    run(path, tmp_path / "half.npy", Encode(4, (0.1,), dtype="float16"), tile=3000)
    half = np.load(tmp_path / "half.npy")
    assert half.dtype == np.float16
    np.testing.assert_allclose(
        half, np.load(tmp_path / "full.npy").view(np.float32), rtol=1e-3, atol=1e-3
    )


def test_outputs_without_room_for_encodings_are_refused(tmp_path: Path, cloud: Cloud) -> None:
    with pytest.raises(FileError, match=r"out\.npz.*cannot be written by range"):
        run(cloud[0], tmp_path / "out.npz", Encode(4, (0.1,)))
    with pytest.raises(FileError, match=r"out\.ply.*too many fields"):
        run(cloud[0], tmp_path / "out.ply", Encode(256, (0.1,)))
    assert not list(tmp_path.glob("out*"))


def test_settings_are_checked_at_the_door() -> None:
    with pytest.raises(ValueError, match="engine must be 'neighbors' or 'grid'"):
        Encode(4, (0.1,), engine="auto")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="radius must be positive"):
        Encode(4, (-1.0,))
