"""Frames of KITTI: float32 x, y, z and intensity, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np

from veckm.cloud import PointCloud, Template
from veckm.io.errors import FileError
from veckm.io.npy import from_records
from veckm.io.source import Source

_KITTI = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4")])


class KittiSource(Source):
    """A frame of KITTI by range: float32 x, y, z and intensity, without a header."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        if size % _KITTI.itemsize:
            raise FileError(
                path, f"has {size} bytes, which are not points of four float32 (KITTI's .bin)"
            )
        self.count = size // _KITTI.itemsize

    def read(self, start: int, stop: int) -> PointCloud:
        """Points of a range with their intensity."""
        self._check(start, stop)
        found = np.fromfile(self.path, _KITTI, stop - start, offset=start * _KITTI.itemsize)
        return from_records(found, KittiTemplate())


class KittiTemplate(Template):
    """Nothing is in such a file but its points."""


def read(path: Path) -> PointCloud:
    """A frame of KITTI."""
    source = KittiSource(path)
    return source.read(0, source.count)


class KittiWriter:
    """Writes KITTI's .bin, which has no place for other fields than intensity."""

    def __init__(self, file: IO[bytes], path: Path, like: PointCloud, count: int) -> None:
        others = [name for name in like.fields if name != "intensity"]
        if others:
            raise FileError(path, f"KITTI's .bin has no place for {others}; use another format")
        self._file, self._path, self._left = file, path, count

    def append(self, cloud: PointCloud) -> None:
        """The next points."""
        self._left -= len(cloud)
        records = np.zeros(len(cloud), _KITTI)
        for axis, values in zip("xyz", cloud.xyz.T, strict=True):
            records[axis] = values
        if "intensity" in cloud.fields:
            records["intensity"] = cloud.fields["intensity"]
        self._file.write(records.tobytes())

    def finish(self) -> None:
        """Nothing comes after the points."""
        if self._left:
            raise ValueError(f"{self._path}: got {self._left} points less than its header says")
