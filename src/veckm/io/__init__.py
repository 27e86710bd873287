"""Clouds from files and to files; what is not touched comes out as it went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veckm.cloud import PointCloud
from veckm.io import meshes
from veckm.io.errors import FileError
from veckm.io.formats import READABLE, WRITABLE, check_options, find, guarded
from veckm.io.ranges import Sink, Source, create_sink, open_source, source_if_by_range
from veckm.io.whole import writing

__all__ = [
    "READABLE",
    "WRITABLE",
    "FileError",
    "Sink",
    "Source",
    "create_sink",
    "open_source",
    "read",
    "source_if_by_range",
    "write",
]


def read(path: str | Path, *, samples: int | None = None, seed: int = 0) -> PointCloud:
    """The points of a file with everything that it says about them.

    PLY, LAS, LAZ, COPC, PCD, XYZ, TXT, ASC, CSV, PTS, NPY, NPZ, KITTI's .bin and E57. Of meshes
    (PLY, OBJ, STL, OFF, GLB) ``samples`` points are drawn, uniform by area.

    Args:
        path: the file; its name says its format.
        samples: of a mesh, how many points to draw.
        seed: of the draws.

    Raises:
        FileError: if the file is not what it should be; the text begins with the path.
        OSError: if it cannot be opened.
    """
    path = Path(path)
    kind = find(path)
    with guarded(path, kind):
        if samples is not None:
            if not kind.mesh:
                raise FileError(path, "is no mesh to be sampled; leave samples out")
            return meshes.sample(path, samples, seed)
        if kind.read is None:
            path.stat()  # a file that is not there is a better reason
            raise FileError(path, "is a mesh: say how many samples=... points to draw from it")
        return kind.read(path)


def write(path: str | Path, cloud: PointCloud, **options: Any) -> None:
    """Write a cloud, whole or not at all, in the format of the name.

    A cloud that was read from a file of the same format is written as it came: fields in their
    order and dtypes, scale, offset, coordinate reference system, records and comments. Normals take
    the names of the format.

    Args:
        path: the file.
        cloud: the points.
        options: what the format lets one choose. PLY: ``format`` (ascii, binary_little_endian,
            binary_big_endian); LAS: ``scale``, ``offset``; PCD: ``data`` (ascii, binary,
            binary_compressed); NPZ: ``compress``.
    """
    path = Path(path)
    kind = find(path, write=True)
    chosen = check_options(kind, options)
    with guarded(path, kind, "written"), writing(path) as file:
        if kind.writer is None:
            assert kind.write is not None
            kind.write(file, path, cloud, **chosen)
            return
        writer = kind.writer(file, path, cloud, len(cloud), **chosen)
        writer.append(cloud)
        writer.finish()
