"""NPZ: named arrays, the coordinates among them."""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from veckm.cloud import PointCloud, Template
from veckm.io import npy

#: The largest ratio of compression that deflate reaches.
_MOST_DEFLATED = 1032


@dataclass(frozen=True)
class NpzTemplate(Template):
    """The array of coordinates, the order of all arrays, and those that are not per point."""

    name: str
    dtype: np.dtype
    order: tuple[str, ...]
    others: dict[str, np.ndarray]
    compressed: bool


def read(path: Path) -> PointCloud:
    """A .npz file whose coordinates are named xyz, or are its only array."""
    size = path.stat().st_size
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not a .npz file, or it is cut short")
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        arrays = {
            entry.filename.removesuffix(".npy"): _array(archive, entry, size) for entry in entries
        }
    order = tuple(arrays)
    name = order[0] if len(order) == 1 else "xyz"
    if name not in arrays:
        raise ValueError(f"it holds the arrays {list(arrays)}; name the coordinates xyz")
    xyz = arrays.pop(name)
    npy.check_plain(xyz.shape, xyz.dtype)
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


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size: int) -> np.ndarray:
    """An array of an archive; it is not unpacked if it promises to be larger than it can be."""
    if entry.compress_size > size or entry.file_size > _MOST_DEFLATED * entry.compress_size + 64:
        raise ValueError(f"{entry.filename} promises {entry.file_size} bytes")
    body = io.BytesIO(archive.read(entry))
    shape, fortran, dtype = npy.header(body)
    data = body.getbuffer()[body.tell() :]
    number = math.prod(shape)
    if dtype.itemsize == 0 or min(shape, default=0) < 0 or number * dtype.itemsize > len(data):
        raise ValueError(f"{entry.filename} promises shape {shape}, more than it has room for")
    return np.frombuffer(data, dtype, number).reshape(shape, order="F" if fortran else "C")


def write(file: IO[bytes], cloud: PointCloud, *, compress: bool | None = None) -> None:
    """Named arrays, the coordinates under the name that they had, or xyz.

    Args:
        file: an open binary file.
        cloud: the points.
        compress: smaller and slower; by default as in the file that the cloud came from.
    """
    exact = cloud.xyz if cloud.origin.any() else cloud.pos
    template = NpzTemplate("xyz", exact.dtype, (), {}, False)
    if isinstance(cloud.source, NpzTemplate):
        template = cloud.source
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
