"""LAS, LAZ and COPC read: versions 1.0 to 1.4, whole and by range, with all that is in them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import lazrs
import numpy as np
from laspy.point import dims

from veckm.cloud import PointCloud
from veckm.io import copc, las_header
from veckm.io.errors import FileError
from veckm.io.las_header import LasTemplate
from veckm.io.source import Source

#: Three million equal points took one byte for 630 of them: no file has more.
_MOST_POINTS_A_BYTE = 2048


def read(path: Path) -> PointCloud:
    """All points of a file with all fields."""
    source = LasSource(path)
    return source.read(0, source.count)


class LasSource(Source):
    """A LAS, LAZ or COPC file by range; of compressed ones the chunks that the range touches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        length = path.stat().st_size
        try:
            with path.open("rb") as file:
                self._template, self._start, self.count, self._laszip = las_header.parse(
                    file, length
                )
                self._dtype = record_dtype(self._template)
                if not np.isfinite([*self._template.scale, *self._template.offset]).all():
                    raise ValueError("its scale or offset is not a finite number")
                if self._laszip is None:
                    self._check_room(length)
                else:
                    self._open_chunks(file, length, self._laszip)
        except (ValueError, LookupError, struct.error) as error:
            raise FileError(path, f"cannot be read as LAS: {error}") from error

    def _check_room(self, length: int) -> None:
        room = (length - self._start) // self._dtype.itemsize
        if self.count > room:
            raise ValueError(f"it says {self.count} points, but has room for {room}")

    def _open_chunks(self, file: IO[bytes], length: int, laszip: bytes) -> None:
        """Where every chunk starts, in points and in bytes."""
        vlr = safely(lambda: lazrs.LazVlr(np.frombuffer(laszip, np.uint8)))
        if vlr.item_size() != self._dtype.itemsize:
            raise ValueError(
                f"its points have {self._dtype.itemsize} bytes, but those that are compressed "
                f"{vlr.item_size()}"
            )
        if not self.count:
            self._points, self._bytes = np.zeros(1, np.int64), np.zeros(1, np.int64)
            return
        end = self._check_table(file, length)
        file.seek(self._start)
        table = safely(lambda: lazrs.read_chunk_table(file, vlr))
        points, sizes = (np.array(column, dtype=np.float64) for column in zip(*table, strict=True))
        if not vlr.uses_variable_size_chunks():
            size = vlr.chunk_size()
            if len(table) != -(-self.count // max(size, 1)):
                raise ValueError(f"it says {self.count} points, but has {len(table)} chunks")
            points[-1] = self.count - size * (len(table) - 1)
        if points.sum() != self.count or sizes.sum() > end - self._start - 8:
            raise ValueError(f"it says {self.count} points, but its chunks are of another number")
        if bool((points > sizes * _MOST_POINTS_A_BYTE).any()):
            raise ValueError("one of its chunks is too short for its points")
        self._points = np.concatenate([[0], np.cumsum(points)]).astype(np.int64)
        self._bytes = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64) + self._start + 8
        self._table = [*table[:-1], (int(points[-1]), table[-1][1])]
        if vlr.uses_variable_size_chunks() and copc.has_octree(self._template):
            octree = copc.Octree(
                tuple(np.diff(self._points).tolist()), tuple(self._bytes[:-1].tolist())
            )
            self._template = replace(self._template, octree=octree)

    def _check_table(self, file: IO[bytes], length: int) -> int:
        """Where the table of chunks is; raises if it cannot be as long as it says."""
        file.seek(self._start)
        place = int.from_bytes(file.read(8), "little", signed=True)
        if place == -1:  # of files that were written without going back
            file.seek(length - 8)
            place = int.from_bytes(file.read(8), "little", signed=True)
        if not self._start + 8 <= place <= length - 8:
            raise ValueError("its table of chunks is not within the file")
        file.seek(place)
        number = struct.unpack("<II", file.read(8))[1]
        if not 1 <= number <= (place - self._start - 8) // self._dtype.itemsize:
            raise ValueError(f"it says {number} chunks, more than it has room for")
        return place

    def read(self, start: int, stop: int) -> PointCloud:
        """Points of a range with all fields."""
        records = self._records(start, stop)
        fields = {
            name: get_field(records, name, self._template) for name in field_names(self._template)
        }
        return PointCloud(
            self._pos(records),
            self._template.offset,
            fields,
            self._template.crs(),
            self._template,
        )

    def read_xyz(self, start: int, stop: int) -> np.ndarray:
        """The coordinates only."""
        xyz: np.ndarray = self._pos(self._records(start, stop)) + self._template.offset
        return xyz

    def bounds(self, exact: bool = True) -> np.ndarray:
        """Least and largest coordinates: of the points, or as the header says."""
        found = self._template.bounds
        if not exact and np.isfinite(found).all() and (found[0] <= found[1]).all():
            return found.copy()
        return super().bounds()

    def _pos(self, records: np.ndarray) -> np.ndarray:
        return np.stack(
            [records[axis] * step for axis, step in zip("XYZ", self._template.scale, strict=True)],
            axis=-1,
        )

    def _records(self, start: int, stop: int) -> np.ndarray:
        self._check(start, stop)
        if start == stop:
            return np.zeros(0, self._dtype)
        try:
            if self._laszip is not None:
                return self._unpack(start, stop, self._laszip)
        except (ValueError, EOFError, struct.error) as error:
            raise FileError(self.path, f"cannot be read as LAZ: {error}") from error
        at = self._start + start * self._dtype.itemsize
        found = np.fromfile(self.path, self._dtype, stop - start, offset=at)
        if len(found) < stop - start:
            raise FileError(self.path, f"ended after {start + len(found)} points while being read")
        return found

    def _unpack(self, start: int, stop: int, laszip: bytes) -> np.ndarray:
        first = int(np.searchsorted(self._points, start, "right")) - 1
        last = int(np.searchsorted(self._points, stop, "left"))
        with self.path.open("rb") as file:
            file.seek(int(self._bytes[first]))
            data = file.read(int(self._bytes[last] - self._bytes[first]))
        if len(data) != self._bytes[last] - self._bytes[first]:
            raise EOFError("it ended while being read")
        _check_layers(data, laszip, [size for _, size in self._table[first:last]])
        begin = int(self._points[first])
        out = np.zeros(int(self._points[last]) - begin, self._dtype)
        safely(
            lambda: lazrs.decompress_points_with_chunk_table(
                np.frombuffer(data, np.uint8),
                np.frombuffer(laszip, np.uint8),
                out.view(np.uint8),
                self._table[first:last],
            )
        )
        return out[start - begin : stop - begin]


#: Kinds of items that are compressed in layers, and how many; bytes have one each.
_LAYERS = {10: 9, 11: 1, 12: 2, 13: 1, 14: 0}


def _check_layers(data: bytes, laszip: bytes, sizes: list[int]) -> None:
    """Raise where a chunk says that its layers are longer than it is; lazrs would make room."""
    number = int.from_bytes(laszip[32:34], "little")
    items = [struct.unpack_from("<HH", laszip, 34 + 6 * k) for k in range(number)]
    layers = sum(_LAYERS.get(kind, 0) + (size if kind == 14 else 0) for kind, size in items)
    head = sum(size for _, size in items) + 4
    at = 0
    for size in sizes if layers else []:
        if size < head + 4 * layers:
            raise ValueError("one of its chunks ends before its layers")
        said = np.frombuffer(data, "<u4", layers, at + head)
        if int(said.sum(dtype=np.int64)) > size - head - 4 * layers:
            raise ValueError("one of its chunks has layers longer than itself")
        at += size


def safely(call: Callable[[], Any]) -> Any:
    """What lazrs raises, and its panics, which are no Exception, as a ValueError."""
    try:
        return call()
    except lazrs.LazrsError as error:
        raise ValueError(error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the compressed points are broken ({error})") from error


def record_dtype(template: LasTemplate) -> np.dtype:
    """Records of the points, extra bytes included."""
    parts = las_header.base_dtype(template.format).descr
    for extra in template.extras:
        kind = "<" + extra.kind
        parts.append((extra.name, kind) if extra.width == 1 else (extra.name, kind, (extra.width,)))
    return np.dtype(parts)


def field_names(template: LasTemplate) -> list[str]:
    """Fields of the points in the order of the file."""
    return las_header.standard_names(template.format) + [extra.name for extra in template.extras]


def bit_field(template: LasTemplate, name: str) -> tuple[str, int, int] | None:
    """The byte that holds a field of a few bits, its mask, and how far up it is."""
    found = dims.get_sub_fields_dict(template.format).get(name)
    if found is None:
        return None
    mask = found[1].mask
    return found[0], mask, (mask & -mask).bit_length() - 1


def get_field(records: np.ndarray, name: str, template: LasTemplate) -> np.ndarray:
    """The values of a field, scaled where the file scales them."""
    bits = bit_field(template, name)
    if bits is not None:
        byte, mask, shift = bits
        return np.asarray((records[byte] & mask) >> shift)
    extra = next((e for e in template.extras if e.name == name), None)
    if extra is None or extra.scale is None or extra.offset is None:
        return np.asarray(records[name])
    scale, offset = np.array(extra.scale), np.array(extra.offset)
    if extra.width == 1:
        return np.asarray(records[name] * scale[0] + offset[0])
    return np.asarray(records[name] * scale + offset)
