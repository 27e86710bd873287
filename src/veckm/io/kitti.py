"""Frames of scanners: float32 numbers without a header, as of KITTI and nuScenes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from veckm.cloud import PointCloud, Template
from veckm.io.records import AXES, RecordSource, RecordWriter, column_dtype

_KITTI = (*AXES, "intensity")
_NUSCENES = (*_KITTI, "ring")
_FLOAT = np.dtype("<f4")
#: Rows that are looked at; coordinates beyond, in meters, are none of a scanner.
_LOOKED_AT, _FARTHEST = 4096, 1e5
_ADVICE = (
    "name its float32 columns if it has others, such as --columns x y z intensity ring "
    "(columns=... in Python)"
)


@dataclass(frozen=True)
class BinTemplate(Template):
    """The columns of a file."""

    columns: tuple[str, ...]


def source(path: Path, columns: tuple[str, ...] = ()) -> RecordSource:
    """A frame by range: x, y, z and intensity as KITTI has them; with ring, as of nuScenes, in
    files whose names end in .pcd.bin; or other columns. The sensor is at the origin."""
    named = columns
    if not columns:
        columns = _NUSCENES if path.name.lower().endswith(".pcd.bin") else _KITTI
    dtype, size = column_dtype(columns, _FLOAT), path.stat().st_size
    if size % dtype.itemsize:
        raise ValueError(
            f"its {size} bytes are not points of the {len(columns)} float32 numbers "
            f"{' '.join(columns)}; {_ADVICE}"
        )
    found = RecordSource(path, dtype, 0, size // dtype.itemsize, BinTemplate(columns))
    found.columns, found.viewpoint = named, np.zeros(3)
    if not named and found.count:
        _check_plausible(found)
    return found


def _check_plausible(frame: RecordSource) -> None:
    """Raise if the numbers cannot be those of a scanner: anything has 16 bytes somewhere."""
    count = min(_LOOKED_AT, frame.count)
    starts = np.linspace(0, frame.count - count, 2).astype(int)
    some = [frame.read(int(start), int(start) + count) for start in starts]
    xyz = np.concatenate([cloud.pos for cloud in some])
    intensity = np.concatenate([cloud.fields["intensity"] for cloud in some])
    with np.errstate(invalid="ignore"):
        size = np.abs(xyz)
        tiny = (size > 0) & (size < 1e-12)  # integers and halves of float64 look like this
        bad = (size > _FARTHEST) | tiny
        dark = (intensity < 0) | (intensity > 65535) | ~np.isfinite(intensity)
    if bad.any() or dark.any() or np.isnan(xyz).mean() > 0.9:
        what = "coordinates" if bad.any() else "intensities" if dark.any() else "NaN"
        raise ValueError(
            f"its {what} are not those of a scanner when read as {' '.join(frame.names)}; {_ADVICE}"
        )


def writer(file: IO[bytes], _path: Path, like: PointCloud, _count: int) -> RecordWriter:
    """A writer of frames, with the columns of the file that the cloud came from or of KITTI."""
    columns = like.source.columns if isinstance(like.source, BinTemplate) else _KITTI
    others = [name for name in like.fields if name not in columns]
    if others:
        raise ValueError(f"a .bin cannot store {others}; write .ply, .laz, .pcd or .npz")
    return RecordWriter(file, column_dtype(columns, _FLOAT))
