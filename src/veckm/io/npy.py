"""NPY: coordinates (N, 3), or records with x, y and z."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from veckm.cloud import PointCloud, Template
from veckm.io.errors import FileError, NotByRange
from veckm.io.records import AXES, RecordSource, RecordWriter, check_room, plan, to_cloud

_LONGEST = 1 << 16  # bytes of a header


@dataclass(frozen=True)
class NpyTemplate(Template):
    """The records of a .npy file; plain coordinates are records of x, y and z."""

    dtype: np.dtype


def read(path: Path) -> PointCloud:
    """A .npy file with an (N, 3) array, or with records that have x, y and z."""
    try:
        return source(path).read_all()
    except NotByRange:
        with path.open("rb") as file:
            (count, _), _, kind = header(file)
            check_room(count, (path.stat().st_size - file.tell()) // (3 * kind.itemsize))
            columns = np.fromfile(file, kind, 3 * count).reshape(3, count)
        dtype = np.dtype([(axis, kind) for axis in AXES])
        records = np.empty(count, dtype)
        for axis, values in zip(AXES, columns, strict=True):
            records[axis] = values
        return to_cloud(records, NpyTemplate(dtype))


def source(path: Path) -> RecordSource:
    """A .npy file by range."""
    with path.open("rb") as file:
        try:
            shape, fortran, dtype = header(file)
            if len(shape) == 1 and dtype.names:
                _check_records(dtype)
            else:
                check_plain(shape, dtype)
                if fortran:
                    raise NotByRange(path, "is in Fortran order, which cannot be read by range")
                dtype = np.dtype([(axis, dtype) for axis in AXES])
        except ValueError as error:
            raise error if isinstance(error, FileError) else FileError(path, error) from error
        return RecordSource(path, dtype, file.tell(), shape[0], NpyTemplate(dtype))


def header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether the order is Fortran's, and dtype; Python objects are refused."""
    if file.read(6) != b"\x93NUMPY":
        raise ValueError("is not a .npy file, whatever its name says")
    file.seek(0)
    start = io.BytesIO(file.read(_LONGEST + 12))  # the length in it could ask for 4 GB
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files of Python 2, which are read all the same
            first = npy_format.read_magic(start) == (1, 0)
            parse = npy_format.read_array_header_1_0 if first else npy_format.read_array_header_2_0
            shape, fortran, dtype = parse(start, max_header_size=_LONGEST)
    except Exception as error:  # the header is Python source: tokenize and ast raise what they like
        raise ValueError(f"cannot be read: {error}") from error
    file.seek(start.tell())
    if dtype.hasobject:
        raise ValueError("cannot be read: it holds Python objects, which could run programs")
    return shape, fortran, dtype


def check_plain(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise unless an array is (N, 3) of float32 or float64."""
    if len(shape) != 2 or shape[1] != 3 or shape[0] < 0:
        hint = "; keep the coordinate columns only, a[:, :3]" if len(shape) == 2 else ""
        raise ValueError(f"holds an array of shape {shape}, not (N, 3){hint}")
    if dtype.newbyteorder("=") not in (np.float32, np.float64):
        raise ValueError(
            f"holds {dtype} numbers; save coordinates as float32 or float64, "
            "for example with a.astype('float64')"
        )


def _check_records(dtype: np.dtype) -> None:
    names = dtype.names or ()
    for name in names:
        base = dtype[name].base
        if base.kind not in "iufbSUcmM" or len(dtype[name].shape) > 1 or base.itemsize == 0:
            raise ValueError(f"its field {name!r} of {dtype[name]} cannot be a field of points")
    if not all(axis in names and dtype[axis].kind in "iuf" for axis in AXES):
        raise ValueError(f"holds records {names}, which have no numbers named x, y and z")


def writer(file: IO[bytes], path: Path, like: PointCloud, count: int) -> RecordWriter:
    """A writer of plain coordinates, or of records if there are fields."""
    dtype = plan(like, like.source.dtype if isinstance(like.source, NpyTemplate) else None, {})
    plain = dtype.names == AXES and len({dtype[axis] for axis in AXES}) == 1
    shown = dtype["x"] if plain else dtype
    described = {"descr": npy_format.dtype_to_descr(shown), "fortran_order": False}
    shape = (count, 3) if plain else (count,)
    npy_format.write_array_header_1_0(file, {**described, "shape": shape})
    return RecordWriter(file, path, dtype, count)
