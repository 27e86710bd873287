"""The formats of files by their suffixes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from veckm.cloud import PointCloud
from veckm.io import e57, kitti, las, meshes, npy, npz, pcd, ply, text
from veckm.io.errors import FileError, NotByRange, guarded
from veckm.io.source import NewWriter, Source


@dataclass(frozen=True)
class Format:
    """What can be done with a format.

    Attributes:
        name: for messages.
        suffixes: of the file names.
        read: reads a whole file; by default through ``source``.
        source: opens a file to be read by range.
        writer: opens a file to be written piece by piece.
        write: writes a whole file, for formats that cannot be written piece by piece.
        mesh: whether such files may hold meshes.
        extent: whether a new header depends on the bounds of the cloud.
        options: keywords of the writer.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path], PointCloud] | None = None
    source: Callable[[Path], Source] | None = None
    writer: NewWriter | None = None
    write: Callable[..., None] | None = None
    mesh: bool = False
    extent: bool = False
    options: tuple[str, ...] = ()


FORMATS = (
    Format("PLY", (".ply",), ply.read, ply.PlySource, ply.writer, mesh=True, options=("format",)),
    Format(
        "LAS",
        (".las", ".laz"),
        None,
        las.LasSource,
        las.LasWriter,
        extent=True,
        options=("scale", "offset"),
    ),
    Format("PCD", (".pcd",), pcd.read, writer=pcd.writer, options=("data",)),
    Format("text", (".xyz", ".txt", ".csv", ".asc", ".pts"), text.read, writer=text.writer),
    Format("NPY", (".npy",), None, npy.source, npy.writer),
    Format("NPZ", (".npz",), npz.read, write=npz.write, options=("compress",)),
    Format("KITTI", (".bin",), None, kitti.source, kitti.writer),
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


def open_source(path: str | Path) -> Source:
    """Open a file to be read by range: LAS, LAZ, COPC, binary PLY, NPY, KITTI's .bin."""
    path = Path(path)
    kind = find(path)
    if kind.source is None:
        raise NotByRange(path, f"cannot be read by range; {streams()} can, convert it to one first")
    with guarded(path, f"read as {kind.name}"):
        return kind.source(path)


def source_if_by_range(path: str | Path) -> Source | None:
    """The same, or None for a file that can only be read as a whole."""
    try:
        return open_source(path)
    except NotByRange:
        return None


def streams() -> str:
    """Names of the formats that are read by range and written piece by piece."""
    return ", ".join(kind.name for kind in FORMATS if kind.source and kind.writer)


def output_note(path: Path, output: Path) -> str:
    """What the user should know about an output, to follow its name in a report; may be empty."""
    copc = path.name.lower().endswith(".copc.laz") and output.suffix.lower() == ".laz"
    return ", a plain LAZ 1.4: the octree of the COPC is not kept" if copc else ""
