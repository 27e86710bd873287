"""The formats of files by their suffixes, and reading them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veckm.cloud import PointCloud
from veckm.io import e57, kitti, las, meshes, npy, pcd, ply, text
from veckm.io.errors import FileError, guarded
from veckm.io.source import Source


@dataclass(frozen=True)
class Format:
    """What can be done with a format."""

    name: str  # for messages
    suffixes: tuple[str, ...]
    read: Callable[..., PointCloud] | None = None  # a whole file; by default by its source
    source: Callable[..., Source | None] | None = None  # to read by range, if it can be
    #: To write piece by piece: from a binary file, its path, a cloud with the fields, the count and
    #: options it makes an object with ``append(cloud)`` and ``finish()``.
    writer: Callable[..., Any] | None = None
    write: Callable[..., None] | None = None  # a whole file, where pieces are not possible
    mesh: bool = False  # whether such files may hold meshes
    extent: bool = False  # whether a new header depends on the bounds of the cloud
    options: tuple[str, ...] = ()  # keywords of the writer
    columns: bool = False  # whether reading takes the names of columns as well


FORMATS = (
    Format("PLY", (".ply",), ply.read, ply.source, ply.writer, mesh=True, options=("format",)),
    Format(
        "LAS",
        (".las", ".laz"),
        source=las.LasSource,
        writer=las.LasWriter,
        extent=True,
        options=("scale", "offset"),
    ),
    Format("PCD", (".pcd",), pcd.read, writer=pcd.writer, options=("data",)),
    Format(
        "text",
        (".xyz", ".txt", ".csv", ".asc", ".pts"),
        text.read,
        writer=text.writer,
        columns=True,
    ),
    Format("NPY", (".npy",), source=npy.source, writer=npy.writer, columns=True),
    Format("NPZ", (".npz",), npy.read_npz, write=npy.write_npz, options=("compress",)),
    Format("KITTI", (".bin",), source=kitti.source, writer=kitti.writer, columns=True),
    Format("E57", (".e57",), e57.read),
    Format("mesh", tuple(s for s in meshes.SUFFIXES if s != ".ply"), mesh=True),
)

#: Suffixes of the files that are read.
READABLE = tuple(suffix for kind in FORMATS for suffix in kind.suffixes)
#: Suffixes of the files that are written.
WRITABLE = tuple(
    suffix for kind in FORMATS if kind.writer or kind.write for suffix in kind.suffixes
)


def find(path: Path, write: bool = False) -> Format:
    """The format of a file by its name."""
    suffix = path.suffix.lower()
    known = WRITABLE if write else READABLE
    if suffix not in known:
        action = "write" if write else "read"
        raise FileError(
            path, f"cannot {action} {path.suffix or 'such'} files; supported: {' '.join(known)}"
        )
    return next(kind for kind in FORMATS if suffix in kind.suffixes)


def read(
    path: str | Path,
    *,
    samples: int | None = None,
    seed: int = 0,
    columns: Sequence[str] = (),
) -> PointCloud:
    """The points of a file with all their fields.

    PLY, LAS, LAZ, COPC, PCD, XYZ, TXT, ASC, CSV, PTS, NPY, NPZ, KITTI's .bin and E57 (extra
    ``e57``). Meshes (PLY, OBJ, STL, OFF, GLB; extra ``mesh``) are sampled, uniform by area.

    Args:
        path: the file; its suffix determines the format.
        samples: number of points to sample from a mesh.
        seed: of the samples.
        columns: names of all columns, x, y and z among them, of a file that names none: text, a
            plain NPY array, or a .bin of float32, by default x, y, z and intensity as of KITTI
            (and ring, as of nuScenes, if its name ends in .pcd.bin).

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
            return kind.read(path, *_columns(path, kind, columns))
        source = source_if_by_range(path, columns)
        if source is not None:
            return source.read_all()
        path.stat()  # a missing file is the better error
        raise FileError(path, "is a mesh: give samples=..., the number of points to sample")


def _columns(path: Path, kind: Format, columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The argument for the names of columns, if the format takes any."""
    if columns and not kind.columns:
        raise FileError(path, f"{kind.name} names its own fields; leave columns out")
    return (tuple(columns),) if kind.columns else ()


def open_source(path: str | Path, columns: Sequence[str] = ()) -> Source:
    """Open a file to be read by range: LAS, LAZ, COPC, binary PLY, NPY, KITTI's .bin; `columns`
    as for :func:`read`."""
    source = source_if_by_range(path, columns)
    if source is None:
        why = "is a PLY file in text, which" if find(Path(path)).source else "is a file that"
        raise FileError(path, f"{why} cannot be read by range; {streams()} can, convert it first")
    return source


def source_if_by_range(path: str | Path, columns: Sequence[str] = ()) -> Source | None:
    """The same, or None for a file that can only be read as a whole."""
    path = Path(path)
    kind = find(path)
    with guarded(path, f"read as {kind.name}"):
        names = _columns(path, kind, columns)
        return None if kind.source is None else kind.source(path, *names)


def streams() -> str:
    """Names of the formats that are read by range and written piece by piece."""
    return ", ".join(kind.name for kind in FORMATS if kind.source and kind.writer)
