"""Which format a file has by its name, and what is raised where it has not."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veckm.cloud import PointCloud
from veckm.io import e57, kitti, las, las_write, meshes, npy, npz, pcd, ply, text
from veckm.io.errors import FileError
from veckm.io.source import NewWriter, Source


@dataclass(frozen=True)
class Format:
    """What can be done with a kind of file.

    Attributes:
        name: for people.
        suffixes: how names of such files end.
        read: the whole file.
        source: by range.
        writer: piece by piece.
        write: the whole file, of formats that cannot be written piece by piece.
        mesh: whether such files may hold meshes.
        extent: whether a new header must know how large the cloud is.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path], PointCloud] | None = None
    source: Callable[[Path], Source] | None = None
    writer: NewWriter | None = None
    write: Callable[..., None] | None = None
    mesh: bool = False
    extent: bool = False


FORMATS = (
    Format("PLY", (".ply",), ply.read, ply.PlySource, ply.PlyWriter, mesh=True),
    Format("LAS", (".las", ".laz"), las.read, las.LasSource, las_write.LasWriter, extent=True),
    Format("PCD", (".pcd",), pcd.read, write=pcd.write),
    Format("text", (".xyz", ".txt", ".csv", ".asc", ".pts"), text.read, writer=text.TextWriter),
    Format("NPY", (".npy",), npy.read, npy.NpySource, npy.NpyWriter),
    Format("NPZ", (".npz",), npz.read, write=npz.write),
    Format("KITTI", (".bin",), kitti.read, kitti.KittiSource, kitti.KittiWriter),
    Format("E57", (".e57",), e57.read, write=e57.write),
    Format("mesh", tuple(s for s in meshes.SUFFIXES if s != ".ply"), mesh=True),
)

#: Endings of the files that are read.
READABLE = tuple(suffix for kind in FORMATS for suffix in kind.suffixes)
#: Endings of the files that are written.
WRITABLE = tuple(
    suffix for kind in FORMATS if kind.writer or kind.write for suffix in kind.suffixes
)


def find(path: Path, write: bool = False) -> Format:
    """The format of a file by its name."""
    suffix = path.suffix.lower()
    endings = WRITABLE if write else READABLE
    if suffix not in endings:
        doing = "write" if write else "read"
        raise FileError(
            path, f"cannot {doing} {path.suffix or 'such'} files; supported: {' '.join(endings)}"
        )
    return next(kind for kind in FORMATS if suffix in kind.suffixes)


def streams() -> str:
    """Names of the formats that go piece by piece both ways."""
    return ", ".join(kind.name for kind in FORMATS if kind.source and kind.writer)


@contextmanager
def guarded(path: Path, kind: Format, what: str = "read") -> Iterator[None]:
    """Turns what a format raises about a file into a :class:`FileError`."""
    try:
        yield
    except FileError:
        raise
    except (ValueError, ArithmeticError, LookupError, EOFError, struct.error) as error:
        raise FileError(path, f"cannot be {what} as {kind.name}: {error}") from error


def check_options(kind: Format, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a writer, checked."""
    import inspect

    function: Any = kind.writer or kind.write
    known = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    wrong = set(given) - set(known)
    if wrong:
        raise TypeError(f"{kind.name} files have the options {known}, got {sorted(wrong)}")
    return given
