"""Clouds from files, and arrays to files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

SUPPORTED = ".npy with an (N, 3) array, or .npz with one called xyz"
_MAGIC = {".npy": b"\x93NUMPY", ".npz": b"PK"}


def read_cloud(path: Path) -> Tensor:  # (N, 3) float32 or float64
    """The points of a file, checked."""
    if path.suffix.lower() not in (".npy", ".npz"):
        raise ValueError(
            f"{path}: cannot read {path.suffix or 'such'} files; supported: {SUPPORTED}"
        )
    array = _load(path)
    if array.ndim != 2 or array.shape[1] != 3:
        hint = "; keep the coordinate columns only, a[:, :3]" if array.ndim == 2 else ""
        raise ValueError(f"{path}: holds an array of shape {array.shape}, not (N, 3){hint}")
    native = array.dtype.newbyteorder("=")
    if native not in (np.float32, np.float64):
        raise ValueError(
            f"{path}: holds {array.dtype} numbers; save coordinates as float32 or float64, "
            "for example with a.astype('float64')"
        )
    if not len(array):
        raise ValueError(f"{path}: has no points")
    bad = np.flatnonzero(~np.isfinite(array).all(1))
    if len(bad):
        raise ValueError(
            f"{path}: {len(bad):,} of {len(array):,} points have NaN or infinite coordinates, "
            f"the first in row {bad[0]}; drop them first, a[np.isfinite(a).all(1)]"
        )
    return torch.from_numpy(np.ascontiguousarray(array, native))


def _load(path: Path) -> np.ndarray:
    kind = path.suffix.lower()
    with path.open("rb") as file:
        if not file.read(8).startswith(_MAGIC[kind]):
            raise ValueError(f"{path}: is not a {kind} file, whatever its name says")
        file.seek(0)
        try:
            # Pickled objects are programs: a cloud is never worth running one.
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else _coordinates(loaded)
        except (ValueError, EOFError, BadZipFile, zlib.error) as error:
            raise ValueError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error


def _coordinates(archive: NpzFile) -> np.ndarray:
    """The array called xyz, or the only one."""
    names = list(archive.keys())
    if "xyz" not in names and len(names) != 1:
        raise ValueError(f"it holds {names}; call the coordinates xyz")
    return np.asarray(archive["xyz" if "xyz" in names else names[0]])


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
    _write(path, lambda file: np.save(file, array, allow_pickle=False))


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a .npz file whole or not at all."""
    _write(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def _write(path: Path, fill: Callable[[IO[bytes]], None]) -> None:
    """Beside the file first, then moved over it."""
    path = path.resolve()  # through a link, not over it
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, _mode(path))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _mode(path: Path) -> int:
    """What a file that open() makes would have: mkstemp's own is for its owner alone."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
