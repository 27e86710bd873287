"""Point clouds from files and to files; what is not changed is written as it was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veckm.cloud import PointCloud
from veckm.io import meshes
from veckm.io.atomic import writing
from veckm.io.errors import FileError, guarded
from veckm.io.formats import READABLE, WRITABLE, find, open_source, source_if_by_range
from veckm.io.sink import Sink, create_sink
from veckm.io.source import Source

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
    """The points of a file with all their fields.

    PLY, LAS, LAZ, COPC, PCD, XYZ, TXT, ASC, CSV, PTS, NPY, NPZ, KITTI's .bin and E57 (extra
    ``e57``). Meshes (PLY, OBJ, STL, OFF, GLB; extra ``mesh``) are sampled, uniform by area.

    Args:
        path: the file; its suffix determines the format.
        samples: number of points to sample from a mesh.
        seed: of the samples.

    Raises:
        FileError: if the file is broken; the message begins with the path.
        OSError: if it cannot be opened.
        MissingExtra: if the format needs a package that is not installed.
    """
    path = Path(path)
    kind = find(path)
    with guarded(path, f"read as {kind.name}"):
        if samples is not None:
            if not kind.mesh:
                raise FileError(path, "is not a mesh that can be sampled; leave samples out")
            return meshes.sample(path, samples, seed)
        if kind.read is not None:
            return kind.read(path)
        if kind.source is not None:
            return kind.source(path).read_all()
        path.stat()  # a missing file is the better error
        raise FileError(path, "is a mesh: give samples=..., the number of points to sample")


def write(path: str | Path, cloud: PointCloud, **options: Any) -> None:
    """Write a cloud in the format of the name; if it fails, nothing is written.

    A cloud that was read from a file of the same format keeps its fields in their order and dtypes,
    scale, offset, coordinate reference system, records and comments. Normals are renamed as the
    format names them. A COPC is written as LAZ, without its octree.

    Args:
        path: the file.
        cloud: the points.
        options: of the format. PLY: ``format`` (ascii, binary_little_endian, binary_big_endian);
            LAS: ``scale``, ``offset``; PCD: ``data`` (ascii, binary); NPZ: ``compress``.
    """
    path = Path(path)
    kind = find(path, write=True)
    unknown = set(options) - set(kind.options)
    if unknown:
        raise TypeError(f"{kind.name} files have no option {', '.join(sorted(unknown))}")
    if kind.write is not None:
        with guarded(path, f"written as {kind.name}"), writing(path) as file:
            kind.write(file, cloud, **options)
        return
    sink = Sink(path, cloud, len(cloud), **options)
    sink.append(cloud)
    sink.commit()
