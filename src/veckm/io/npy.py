"""NPY: coordinates (N, 3), or records with x, y and z."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from veckm.cloud import PointCloud, Template
from veckm.io.errors import FileError
from veckm.io.source import Source

_HINT = "keep the coordinate columns only, a[:, :3]"
_LONGEST = 1 << 16  # bytes of a header


@dataclass(frozen=True)
class NpyTemplate(Template):
    """The dtype of a .npy file; None for the plain coordinates of other formats."""

    dtype: np.dtype


def read(path: Path) -> PointCloud:
    """A .npy file with an (N, 3) array, or with records that have x, y and z."""
    source = NpySource(path)
    return source.read(0, source.count)


class NpySource(Source):
    """A .npy file by range."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            try:
                shape, columns, dtype = npy_header(file)
                if not columns and len(shape) == 1 and dtype.names:
                    _check_records(dtype)
                else:
                    check_plain(shape, dtype)
            except (ValueError, EOFError) as error:
                raise FileError(path, error) from error
            self._at = file.tell()
        self.count, self._dtype, self._columns = shape[0], dtype, columns
        self._plain = dtype.names is None
        size = self.count * (3 if self._plain else 1) * dtype.itemsize
        if size > path.stat().st_size - self._at:
            raise FileError(
                path, f"cannot be read: it says {self.count} points, more than it has room for"
            )

    def read(self, start: int, stop: int) -> PointCloud:
        """Points of a range with all fields."""
        self._check(start, stop)
        number = stop - start
        if not self._plain:
            at = self._at + start * self._dtype.itemsize
            records = np.fromfile(self.path, self._dtype, number, offset=at)
            return from_records(records, NpyTemplate(self._dtype))
        size = self._dtype.itemsize
        if self._columns:  # Fortran order: all x, then all y, then all z
            pos = np.stack(
                [
                    np.fromfile(
                        self.path,
                        self._dtype,
                        number,
                        offset=self._at + size * (self.count * k + start),
                    )
                    for k in range(3)
                ],
                axis=-1,
            )
        else:
            at = self._at + 3 * size * start
            pos = np.fromfile(self.path, self._dtype, 3 * number, offset=at).reshape(-1, 3)
        return PointCloud(native(pos), source=NpyTemplate(self._dtype))


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether columns come first, and dtype; objects are refused, they are programs."""
    if file.read(6) != b"\x93NUMPY":
        raise ValueError("is not a .npy file, whatever its name says")
    file.seek(0)
    start = io.BytesIO(file.read(_LONGEST + 12))  # a length of 4 GB in it asks for no memory
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files of Python 2, which are read all the same
            version = npy_format.read_magic(start)
            read = npy_format.read_array_header_1_0
            if version != (1, 0):
                read = npy_format.read_array_header_2_0
            found = read(start, max_header_size=_LONGEST)
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, TokenError) as error:
        raise ValueError(f"cannot be read: {error}") from error
    file.seek(start.tell())
    shape, columns, dtype = found
    if dtype.hasobject:
        raise ValueError("cannot be read: it holds Python objects, which would be programs to run")
    return shape, columns, dtype


def check_plain(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise unless an array is (N, 3) of float32 or float64."""
    if len(shape) != 2 or shape[1] != 3 or shape[0] < 0:
        hint = f"; {_HINT}" if len(shape) == 2 else ""
        raise ValueError(f"holds an array of shape {shape}, not (N, 3){hint}")
    if dtype.newbyteorder("=") not in (np.float32, np.float64):
        raise ValueError(
            f"holds {dtype} numbers; save coordinates as float32 or float64, "
            "for example with a.astype('float64')"
        )


def _check_records(dtype: np.dtype) -> None:
    for name in dtype.names or ():
        base = dtype[name].base
        if base.kind not in "iufbSUcmM" or len(dtype[name].shape) > 1 or base.itemsize == 0:
            raise ValueError(f"its field {name!r} of {dtype[name]} cannot be a field of points")
    for axis in "xyz":
        if axis not in (dtype.names or ()) or dtype[axis].kind not in "iuf":
            raise ValueError(
                f"holds records {dtype.names}, which have no numbers called x, y and z"
            )
        if dtype[axis].shape:
            raise ValueError(f"its {axis} is an array of shape {dtype[axis].shape} a point")


def native(array: np.ndarray) -> np.ndarray:
    """The same numbers in the byte order of this machine."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def from_records(records: np.ndarray, template: Template) -> PointCloud:
    """A cloud from records with x, y, z and other fields."""
    wide = any(records.dtype[axis].newbyteorder("=") != np.float32 for axis in "xyz")
    pos = np.stack([records[axis] for axis in "xyz"], axis=-1).astype("f8" if wide else "f4")
    fields = {
        name: records[name].astype(records.dtype[name].base.newbyteorder("="), copy=False)
        for name in records.dtype.names or ()
        if name not in ("x", "y", "z")
    }
    return PointCloud(pos, fields=fields, source=template)


class NpyWriter:
    """Writes a .npy file: plain coordinates, or records where there are fields."""

    def __init__(self, file: IO[bytes], path: Path, like: PointCloud, count: int) -> None:
        self._file, self._path, self._left = file, path, count
        template = like.source if isinstance(like.source, NpyTemplate) else None
        self._dtype = _npy_dtype(like, template)
        self._plain = self._dtype.names is None
        shape = (count, 3) if self._plain else (count,)
        described = {"descr": npy_format.dtype_to_descr(self._dtype), "fortran_order": False}
        npy_format.write_array_header_1_0(file, {**described, "shape": shape})

    def append(self, cloud: PointCloud) -> None:
        """The next points."""
        self._left -= len(cloud)
        xyz = cloud.xyz if cloud.origin.any() else cloud.pos
        if self._plain:
            self._file.write(xyz.astype(self._dtype).tobytes())
            return
        records = np.empty(len(cloud), self._dtype)
        for name in self._dtype.names or ():
            axis = "xyz".find(name)
            records[name] = xyz[:, axis] if axis >= 0 else cloud.fields[name]
        self._file.write(records.tobytes())

    def finish(self) -> None:
        """Nothing comes after the points."""
        if self._left:
            raise ValueError(f"{self._path}: got {self._left} points less than its header says")


def _npy_dtype(like: PointCloud, template: NpyTemplate | None) -> np.dtype:
    exact = like.pos.dtype if not like.origin.any() else np.dtype("f8")
    if not like.fields:
        return template.dtype if template and template.dtype.names is None else exact
    had = template.dtype if template and template.dtype.names else None
    axes = {axis: had[axis] if had is not None else exact for axis in "xyz"}
    order = [
        n for n in (had.names or () if had is not None else ()) if n in axes or n in like.fields
    ]
    order += [name for name in (*axes, *like.fields) if name not in order]
    parts: list[tuple[Any, ...]] = []
    for name in order:
        if name in axes:
            parts.append((name, axes[name]))
            continue
        values = like.fields[name]
        kind = values.dtype
        if (
            had is not None
            and name in (had.names or ())
            and had[name].base.newbyteorder("=") == kind
        ):
            kind = had[name].base
        parts.append((name, kind, values.shape[1:]))
    return np.dtype(parts)
