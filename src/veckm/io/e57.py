"""E57, the exchange format of terrestrial scanners, through pye57 (extra ``e57``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from veckm.cloud import PointCloud
from veckm.extras import need

_XYZ = ("cartesianX", "cartesianY", "cartesianZ")
_SENSOR = ("sensorX", "sensorY", "sensorZ")  # the position of the pose, NaN without one


def read(path: Path) -> PointCloud:
    """All valid points of all scans in the coordinates of the file, one scan after the other.

    Fields are those that pye57 reads: intensity, colors, row and column. The field ``scan`` has
    the number of the scan if there are several. The poses of the scans are the viewpoints.
    """
    pye57 = need("pye57", "reading E57", "e57")
    size = path.stat().st_size
    with pye57.E57(str(path)) as file:
        scans = [_read_scan(file, number, size) for number in range(file.scan_count)]
        root = file.root
        crs = root["coordinateMetadata"].value() if root.isDefined("coordinateMetadata") else ""
    if not scans:
        raise ValueError("it has no scans")
    if len(scans) > 1:
        for number, scan in enumerate(scans):
            scan["scan"] = np.full(len(scan["cartesianX"]), number, np.uint16)
    lost = {name for scan in scans for name in scan if not all(name in each for each in scans)}
    if lost:
        raise ValueError(f"not all of its scans have {sorted(lost)}")
    joined = {name: np.concatenate([scan[name] for scan in scans]) for name in scans[0]}
    pos = np.stack([joined.pop(name) for name in _XYZ], axis=-1)
    viewpoint = np.stack([joined.pop(name) for name in _SENSOR], axis=-1)
    spherical = [name for name in joined if name.startswith("spherical")]
    fields = {name: values for name, values in joined.items() if name not in spherical}
    known = bool(np.isfinite(viewpoint).all())
    return PointCloud(pos, fields=fields, crs=crs or None, viewpoint=viewpoint if known else None)


def _read_scan(file: Any, number: int, size: int) -> dict[str, np.ndarray]:
    """A scan with its pose applied; raises if it promises more points than the file has bits."""
    header = file.get_header(number)
    if header.point_count > 8 * size:
        raise ValueError(f"it promises {header.point_count} points, more than it has room for")
    if not np.isfinite([*header.rotation, *header.translation]).all():
        raise ValueError("the pose of a scan is not finite")
    found: dict[str, np.ndarray] = file.read_scan(
        number, intensity=True, colors=True, row_column=True, ignore_missing_fields=True
    )
    place = header.translation if header.has_pose() else np.full(3, np.nan)
    count = len(found[_XYZ[0]])
    return found | {n: np.full(count, x) for n, x in zip(_SENSOR, place, strict=True)}
