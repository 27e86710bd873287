"""The clouds of the benchmark: a synthetic airborne scan, written in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import laspy
import numpy as np

#: Points on a square meter, as airborne scans have.
DENSITY = 10.0
_BLOCK = 1_000_000
_HOUSE = 40.0  # meters from one to the next


def terrain(points: int, seed: int = 0) -> Iterator[np.ndarray]:  # (M, 3) float64 each
    """Hills with flat-roofed houses, a few centimeters of noise; in chunks, strip by strip."""
    side = (points / DENSITY) ** 0.5
    rng = np.random.default_rng(seed)
    done = 0
    while done < points:
        m = min(_BLOCK, points - done)
        x = side * (done + m * rng.random(m)) / points
        y = side * rng.random(m)
        z = 20 * np.sin(x / 130) * np.cos(y / 170) + 2 * np.sin(x / 17) * np.sin(y / 23)
        inside = (np.abs(x % _HOUSE - 20) < 6) & (np.abs(y % _HOUSE - 20) < 5)
        roof = 8 + 20 * np.sin((x // _HOUSE) * _HOUSE / 130) * np.cos((y // _HOUSE) * _HOUSE / 170)
        z = np.where(inside, np.maximum(z, roof), z) + 0.02 * rng.standard_normal(m)
        yield np.stack([x + 5e5, y + 4e6, z], 1)
        done += m


def write_laz(path: Path, points: int) -> None:
    """As LAZ 1.4 with millimeters, intensity and time, as a survey would deliver it."""
    header = laspy.LasHeader(point_format=6, version="1.4")
    header.scales, header.offsets = np.full(3, 0.001), np.array([5e5, 4e6, 0.0])
    done = 0
    with laspy.open(path, "w", header=header) as file:
        for xyz in terrain(points):
            record = laspy.ScaleAwarePointRecord.zeros(len(xyz), header=header)
            record.x, record.y, record.z = xyz.T
            record.intensity = (np.arange(len(xyz)) + done) % 60_000
            record.gps_time = (np.arange(len(xyz)) + done) * 1e-5
            file.write_points(record)
            done += len(xyz)


def write_ply(path: Path, points: int) -> None:
    """As binary PLY with float coordinates, normals and colors: what mesh tools write."""
    kind = np.dtype(
        [(name, "<f4") for name in ("x", "y", "z", "nx", "ny", "nz")]
        + [(name, "u1") for name in ("red", "green", "blue")]
    )
    names = {"<f4": "float", "|u1": "uchar"}
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {points}"]
    lines += [f"property {names[kind[name].str]} {name}" for name in kind.names or ()]
    with path.open("wb") as file:
        file.write(("\n".join([*lines, "end_header"]) + "\n").encode())
        for xyz in terrain(points):
            rows = np.zeros(len(xyz), kind)
            for name, column in zip("xyz", (xyz - [5e5, 4e6, 0]).T, strict=True):
                rows[name] = column
            rows["nz"] = 1
            rows["green"] = 128
            file.write(rows.tobytes())
