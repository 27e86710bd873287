"""Frames of KITTI: float32 x, y, z and intensity, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np

from veckm.cloud import PointCloud
from veckm.io.records import RecordSource, RecordWriter

_KITTI = np.dtype([(name, "<f4") for name in ("x", "y", "z", "intensity")])


def source(path: Path) -> RecordSource:
    """A frame by range."""
    size = path.stat().st_size
    if size % _KITTI.itemsize:
        raise ValueError(f"its {size} bytes are not points of four float32 (KITTI)")
    return RecordSource(path, _KITTI, 0, size // _KITTI.itemsize)


def writer(file: IO[bytes], _path: Path, like: PointCloud, _count: int) -> RecordWriter:
    """A writer of frames, which have no other fields than intensity."""
    others = [name for name in like.fields if name != "intensity"]
    if others:
        raise ValueError(f"KITTI's .bin cannot store {others}; use another format")
    return RecordWriter(file, _KITTI)
