"""NPY: coordinates (N, 3) and more columns, or records with x, y and z. NPZ: named arrays, one of
them the coordinates."""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from veckm.cloud import PointCloud, Template
from veckm.io.records import AXES, RecordSource, RecordWriter, column_dtype, plan, to_cloud

_LONGEST = 1 << 16  # bytes of a header
_MOST_COLUMNS = 64
_MOST_DEFLATED = 1032  # the largest ratio of compression that deflate reaches
#: Archives that unpack to more bytes than this may do so by this factor at most: labels that are
#: all the same compress a thousand times, points hardly at all.
_HARMLESS, _MOST_UNPACKED = 1 << 28, 100


@dataclass(frozen=True)
class NpyTemplate(Template):
    """The records of a .npy file; those of a plain array are its columns."""

    dtype: np.dtype
    plain: bool = False


def source(path: Path, columns: tuple[str, ...] = ()) -> RecordSource:
    """A .npy file with an (N, 3) array or a wider one, whose further columns are column_4 and so
    on unless they are named, or with records that have x, y and z, by range."""
    with path.open("rb") as file:
        shape, fortran, dtype = _header(file)
        start = file.tell()
    if len(shape) == 1 and dtype.names:
        _check_records(dtype)
        fortran, plain = False, False
        if columns:
            raise ValueError("its columns have names already; leave columns out")
    else:
        _check_plain(shape, dtype, most=_MOST_COLUMNS)
        usual = (*AXES, *(f"column_{k}" for k in range(4, shape[1] + 1)))
        if columns and len(columns) != shape[1]:
            raise ValueError(f"it has {shape[1]} columns, but {len(columns)} names were given")
        dtype, plain = column_dtype(columns or usual, dtype), True
    kind = FortranSource if fortran else RecordSource
    found = kind(path, dtype, start, shape[0], NpyTemplate(dtype, plain))
    found.columns = columns
    return found


class FortranSource(RecordSource):
    """Columns in Fortran order: all x, all y, all z."""

    def _read(self, start: int, stop: int) -> PointCloud:
        found = np.empty(stop - start, self._dtype)
        kind = self._dtype["x"]
        for column, name in enumerate(self.names):
            at = self._start + (column * self.count + start) * kind.itemsize
            found[name] = np.fromfile(self.path, kind, stop - start, offset=at)
        return to_cloud(found, self._template)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
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


def _check_plain(shape: tuple[int, ...], dtype: np.dtype, most: int = 3) -> None:
    """Raise unless an array is (N, 3), or wider up to `most`, of float32 or float64."""
    if len(shape) != 2 or not 3 <= shape[1] <= most or shape[0] < 0:
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
    template = like.source if isinstance(like.source, NpyTemplate) else None
    dtype = plan(like, template.dtype if template else None, {})
    names = template.dtype.names if template and template.plain else AXES
    plain = dtype.names == names and len({dtype[name] for name in names or ()}) == 1
    described = npy_format.dtype_to_descr(dtype["x"] if plain else dtype)
    shape = (count, len(dtype.names or ())) if plain else (count,)
    about = {"descr": described, "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(file, about)
    return RecordWriter(file, dtype)


@dataclass(frozen=True)
class NpzTemplate(Template):
    """The array of coordinates, the order of all arrays, and those that are not per point."""

    name: str
    dtype: np.dtype
    order: tuple[str, ...]
    others: dict[str, np.ndarray]
    compressed: bool


def read_npz(path: Path) -> PointCloud:
    """A .npz file whose coordinates are named xyz, or are its only array."""
    size = path.stat().st_size
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not a .npz file, or it is cut short")
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        _check_size(entries, size)
        arrays = {e.filename.removesuffix(".npy"): _array(archive, e, size) for e in entries}
    order = tuple(arrays)
    name = order[0] if len(order) == 1 else "xyz"
    if name not in arrays:
        raise ValueError(f"it holds the arrays {list(arrays)}; name the coordinates xyz")
    xyz = arrays.pop(name)
    _check_plain(xyz.shape, xyz.dtype)
    fields = {
        key: np.ascontiguousarray(value, value.dtype.newbyteorder("="))
        for key, value in arrays.items()
        if value.ndim in (1, 2) and len(value) == len(xyz)
    }
    others = {key: value for key, value in arrays.items() if key not in fields}
    compressed = any(entry.compress_type == zipfile.ZIP_DEFLATED for entry in entries)
    template = NpzTemplate(name, xyz.dtype, order, others, compressed)
    native = np.ascontiguousarray(xyz, xyz.dtype.newbyteorder("="))
    return PointCloud(native, fields=fields, source=template)


def _check_size(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Raise before anything is unpacked that could fill the memory."""
    total = sum(entry.file_size for entry in entries)
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if os.name == "posix" else 1e11
    if total > max(_HARMLESS, _MOST_UNPACKED * size):
        raise ValueError(
            f"it has {size:,} bytes, but promises to unpack to {total:,}, more than "
            f"{_MOST_UNPACKED} times as many; if you trust it, unpack it and use its .npy files"
        )
    if total > room:
        raise ValueError(f"it unpacks to {total:,} bytes, more than this machine has memory")


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size: int) -> np.ndarray:
    """An array of an archive; it is not unpacked if it promises to be larger than it can be."""
    if entry.compress_size > size or entry.file_size > _MOST_DEFLATED * entry.compress_size + 64:
        raise ValueError(f"{entry.filename} promises {entry.file_size} bytes")
    body = io.BytesIO(archive.read(entry))
    shape, fortran, dtype = _header(body)
    data = body.getbuffer()[body.tell() :]
    number = math.prod(shape)
    if dtype.itemsize == 0 or min(shape, default=0) < 0 or number * dtype.itemsize > len(data):
        raise ValueError(f"{entry.filename} promises shape {shape}, more than it has room for")
    return np.frombuffer(data, dtype, number).reshape(shape, order="F" if fortran else "C")


def write_npz(file: IO[bytes], cloud: PointCloud, *, compress: bool | None = None) -> None:
    """Named arrays, the coordinates under the name that they had, or xyz; compressed by default if
    the file was that the cloud came from."""
    exact = cloud.xyz if cloud.origin.any() else cloud.pos
    new = NpzTemplate("xyz", exact.dtype, (), {}, False)
    template = cloud.source if isinstance(cloud.source, NpzTemplate) else new
    if template.name in cloud.fields:
        raise ValueError(f"{template.name!r} names the coordinates; rename that field")
    arrays = {template.name: exact.astype(template.dtype), **cloud.fields, **template.others}
    order = dict.fromkeys([*(key for key in template.order if key in arrays), *arrays])
    deflate = template.compressed if compress is None else compress
    kind = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", kind) as archive:
        for key in order:
            with archive.open(f"{key}.npy", "w", force_zip64=True) as part:
                npy_format.write_array(part, np.asanyarray(arrays[key]), allow_pickle=False)
