"""Clouds from files, and arrays to files that are whole or not there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from veckm.cloud import PointCloud
from veckm.io import FileError, read, write
from veckm.io.whole import writing


def read_cloud(path: Path) -> PointCloud:
    """The points of a file, checked: there are some, and all are finite."""
    cloud = read(path)
    xyz = cloud.pos
    if not len(xyz):
        raise FileError(path, "has no points")
    bad = np.flatnonzero(~np.isfinite(xyz).all(1))
    if len(bad):
        raise FileError(
            path,
            f"{len(bad):,} of {len(xyz):,} points have NaN or infinite coordinates, "
            f"the first in row {bad[0]}; drop them first, a[np.isfinite(a).all(1)]",
        )
    return cloud


def points_of(cloud: PointCloud) -> Tensor:  # (N, 3) float32 or float64
    """The coordinates as the file means them."""
    xyz = cloud.pos if not cloud.origin.any() else cloud.xyz
    return torch.from_numpy(np.ascontiguousarray(xyz))


def write_cloud(path: Path, cloud: PointCloud) -> None:
    """Write a cloud whole or not at all."""
    write(path, cloud)


def check_output(
    path: Path,
    source: Path | None,
    what: str = "encodings",
    kinds: tuple[str, ...] = (".npy",),
) -> None:
    """Raise now what would go wrong after the work is done."""
    if path.suffix.lower() not in kinds:
        raise ValueError(
            f"{path}: {what} are written as {' or '.join(kinds)}; choose a name that ends so"
        )
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}; make it first")
    if source is not None and path.exists() and path.samefile(source):
        raise ValueError(f"{path}: is the cloud itself; choose another name for its {what}")

    try:
        tempfile.TemporaryFile(dir=path.resolve().parent).close()
    except OSError as error:
        raise OSError(f"{path}: cannot write in {path.parent}: {error.strerror}") from error


def write_array(path: Path, array: np.ndarray) -> None:
    """Write a .npy file whole or not at all."""
    with writing(path) as file:
        np.save(file, array, allow_pickle=False)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a .npz file whole or not at all."""
    with writing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
