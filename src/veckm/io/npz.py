"""NPZ: named arrays, the coordinates among them."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from veckm.cloud import PointCloud, Template
from veckm.io.errors import FileError
from veckm.io.npy import check_plain, native, npy_header


@dataclass(frozen=True)
class NpzTemplate(Template):
    """Which array of a .npz file has the coordinates, its dtype, and what is not of the points."""

    name: str
    dtype: np.dtype
    order: tuple[str, ...]
    others: dict[str, np.ndarray] = field(default_factory=dict)
    packed: bool = False


def read(path: Path) -> PointCloud:
    """A .npz file whose coordinates are called xyz, or are its only array."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            raise FileError(path, "is not a .npz file, whatever its name says")
        try:
            with zipfile.ZipFile(file) as archive:
                arrays, packed = _arrays(archive, size)
        except _BROKEN as error:
            raise FileError(path, f"cannot be read: {error}") from error
    name = "xyz" if "xyz" in arrays else next(iter(arrays), "xyz")
    if "xyz" not in arrays and len(arrays) != 1:
        raise FileError(path, f"cannot be read: it holds {list(arrays)}; call the coordinates xyz")
    xyz = arrays[name]
    check_plain(xyz.shape, xyz.dtype)
    fields = {
        key: native(value)
        for key, value in arrays.items()
        if key != name and value.ndim in (1, 2) and len(value) == len(xyz)
    }
    others = {key: v for key, v in arrays.items() if key != name and key not in fields}
    template = NpzTemplate(name, xyz.dtype, tuple(arrays), others, packed)
    return PointCloud(native(xyz), fields=fields, source=template)


_BROKEN = (ValueError, OSError, EOFError, LookupError, NotImplementedError, zipfile.BadZipFile)
#: Deflate turns at most so many equal bytes into one.
_MOST_DEFLATED = 1032


def _arrays(archive: zipfile.ZipFile, size: int) -> tuple[dict[str, np.ndarray], bool]:
    """The arrays of an archive; none is unpacked that says it is larger than it can be."""
    found, packed = {}, False
    for info in archive.infolist():
        if info.compress_size > size or info.file_size > _MOST_DEFLATED * info.compress_size + 64:
            raise ValueError(f"{info.filename} says it has {info.file_size} bytes")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{info.filename} is compressed in an unknown way")
        if info.flag_bits & 1:
            raise ValueError(f"{info.filename} is encrypted")
        packed |= info.compress_type == zipfile.ZIP_DEFLATED
        body = io.BytesIO(_unzipped(archive, info))
        shape, columns, dtype = npy_header(body)
        number = int(np.prod([float(n) for n in shape])) if min(shape, default=0) >= 0 else -1
        data = body.getbuffer()[body.tell() :]
        if dtype.itemsize == 0 or not 0 <= number * dtype.itemsize <= len(data):
            raise ValueError(
                f"{info.filename} says it has shape {shape}, more than it has room for"
            )
        flat = np.frombuffer(data, dtype, number)
        name = info.filename.removesuffix(".npy")
        found[name] = flat.reshape(shape, order="F" if columns else "C")
    return found, packed


def _unzipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    try:
        return archive.read(info)
    except (zlib.error, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{info.filename} cannot be unpacked: {error}") from error


def write(file: IO[bytes], path: Path, cloud: PointCloud, *, compress: bool | None = None) -> None:
    """Named arrays, the coordinates under the name that they had or xyz.

    Args:
        file: where to.
        path: its name, for errors.
        cloud: the points.
        compress: smaller and slower; by default as it came.
    """
    template = cloud.source if isinstance(cloud.source, NpzTemplate) else None
    name = template.name if template else "xyz"
    if name in cloud.fields:
        raise FileError(path, f"{name!r} is the name of the coordinates; rename that field")
    xyz = cloud.xyz if cloud.origin.any() else cloud.pos
    arrays = {name: xyz.astype(template.dtype) if template else xyz, **cloud.fields}
    arrays.update(template.others if template else {})
    order = [key for key in (template.order if template else ()) if key in arrays]
    order += [key for key in arrays if key not in order]
    packed = template.packed if template and compress is None else bool(compress)
    kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", kind) as archive:
        for key in order:
            with archive.open(f"{key}.npy", "w", force_zip64=True) as part:
                npy_format.write_array(part, np.asanyarray(arrays[key]), allow_pickle=False)
