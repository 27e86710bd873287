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
from veckm.io.records import AXES, RecordSource, RecordWriter, plan, to_cloud

_LONGEST = 1 << 16  # bytes of a header


@dataclass(frozen=True)
class NpyTemplate(Template):
    """The records of a .npy file; plain coordinates are records of x, y and z."""

    dtype: np.dtype


def source(path: Path) -> RecordSource:
    """A .npy file with an (N, 3) array, or with records that have x, y and z, by range."""
    with path.open("rb") as file:
        shape, fortran, dtype = header(file)
        start = file.tell()
    if len(shape) == 1 and dtype.names:
        _check_records(dtype)
        fortran = False
    else:
        check_plain(shape, dtype)
        dtype = np.dtype([(axis, dtype) for axis in AXES])
    kind = FortranSource if fortran else RecordSource
    return kind(path, dtype, start, shape[0], NpyTemplate(dtype))


class FortranSource(RecordSource):
    """Coordinates in Fortran order: all x, all y, all z."""

    def _read(self, start: int, stop: int) -> PointCloud:
        found = np.empty(stop - start, self._dtype)
        kind = self._dtype["x"]
        for column, axis in enumerate(AXES):
            at = self._start + (column * self.count + start) * kind.itemsize
            found[axis] = np.fromfile(self.path, kind, stop - start, offset=at)
        return to_cloud(found, self._template)


def header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether the order is Fortran's, and dtype; Python objects are refused."""
    start = io.BytesIO(file.read(_LONGEST + 12))  # the length in it could ask for 4 GB
    if not start.getvalue().startswith(b"\x93NUMPY"):
        raise ValueError("it is not a .npy file, whatever its name is")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files of Python 2, which are read all the same
            first = npy_format.read_magic(start) == (1, 0)
            parse = npy_format.read_array_header_1_0 if first else npy_format.read_array_header_2_0
            shape, fortran, dtype = parse(start, max_header_size=_LONGEST)
    except MemoryError as error:  # the header is Python source, which may be nested too deeply
        raise ValueError(f"its header is broken: {error}") from error
    file.seek(start.tell())
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which could run programs")
    return shape, fortran, dtype


def check_plain(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise unless an array is (N, 3) of float32 or float64."""
    if len(shape) != 2 or shape[1] != 3 or shape[0] < 0:
        hint = "; keep the coordinate columns only, a[:, :3]" if len(shape) == 2 else ""
        raise ValueError(f"it holds an array of shape {shape}, not (N, 3){hint}")
    if dtype.newbyteorder("=") not in (np.float32, np.float64):
        raise ValueError(
            f"it holds {dtype} numbers; save coordinates as float32 or float64, "
            "for example with a.astype('float64')"
        )


def _check_records(dtype: np.dtype) -> None:
    names = dtype.names or ()
    for name in names:
        base = dtype[name].base
        if base.kind not in "iufbSUcmM" or len(dtype[name].shape) > 1 or base.itemsize == 0:
            raise ValueError(f"its field {name!r} of {dtype[name]} cannot be a field of points")
    if not all(axis in names and dtype[axis].kind in "iuf" for axis in AXES):
        raise ValueError(f"it holds records {names}, which have no numbers named x, y and z")


def writer(file: IO[bytes], _path: Path, like: PointCloud, count: int) -> RecordWriter:
    """A writer of plain coordinates, or of records if there are fields."""
    dtype = plan(like, like.source.dtype if isinstance(like.source, NpyTemplate) else None, {})
    plain = dtype.names == AXES and len({dtype[axis] for axis in AXES}) == 1
    described = npy_format.dtype_to_descr(dtype["x"] if plain else dtype)
    shape = (count, 3) if plain else (count,)
    npy_format.write_array_header_1_0(
        file, {"descr": described, "fortran_order": False, "shape": shape}
    )
    return RecordWriter(file, dtype, count)
