"""Checks of LAS and LAZ files that laspy and lazrs leave out: lengths before anything is read."""

from __future__ import annotations

import struct
from typing import IO

import lazrs
import numpy as np
from laspy.header import LasHeader

#: Three million equal points compress to one byte per 630 points: no file has more.
_MOST_POINTS_PER_BYTE = 2048
#: Kinds of items that are compressed in layers, and how many; extra bytes have one each.
_LAYERS = {10: 9, 11: 1, 12: 2, 13: 1, 14: 0}


class ExactReader:
    """A file that refuses to read beyond its end, where others would return less or allocate."""

    def __init__(self, file: IO[bytes], length: int) -> None:
        self.file, self.length = file, length
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes."""
        if not 0 <= size <= self.length - self.tell():
            raise ValueError(f"it ends within a record of {size} bytes")
        return self.file.read(size)

    def check_records(self) -> None:
        """Raise if the header is none, or promises more records than fit before the points."""
        head = self.read(min(self.length, 104))
        self.seek(0)
        if head[:4] != b"LASF":
            raise ValueError("it does not start with LASF")
        if len(head) < 104 or head[24] != 1 or head[25] > 4:
            raise ValueError("its version is not 1.0 to 1.4")
        start, number = struct.unpack_from("<II", head, 96)
        if 54 * number > start or start > self.length:
            raise ValueError(f"its {number} records do not fit before the points at {start}")


class Chunks:
    """The chunks of compressed points, read by range.

    The seek of lazrs 0.8, which laspy uses, goes to wrong points where chunks differ in length, as
    in COPC, so ranges are decompressed from the chunks that they touch.
    """

    def __init__(self, file: IO[bytes], header: LasHeader, length: int) -> None:
        """Raise if the chunks cannot hold as many points as the header promises."""
        found = header.vlrs.get("LasZipVlr")
        if not found:
            raise ValueError("it is compressed, but no record describes how")
        self._dtype, self._laszip = header.point_format.dtype(), bytes(found[0].record_data)
        vlr, count, size = lazrs.LazVlr(self._laszip), header.point_count, self._dtype.itemsize
        if vlr.item_size() != size:
            raise ValueError(f"its points have {size} bytes, but compressed ones {vlr.item_size()}")
        start = header.offset_to_point_data
        end = _table_place(file, start, length, size) if count else start + 8
        file.seek(start)
        table = lazrs.read_chunk_table(file, vlr) if count else []
        points, sizes = np.array(table, dtype=np.float64).reshape(-1, 2).T
        if count and not vlr.uses_variable_size_chunks():
            full = max(vlr.chunk_size(), 1)
            if len(table) != -(-count // full):
                raise ValueError(f"the header promises {count} points, but has {len(table)} chunks")
            points[-1] = count - full * (len(table) - 1)
        if points.sum() != count or sizes.sum() > end - start - 8:
            raise ValueError(f"the header promises {count} points, but its chunks hold others")
        if bool((points > sizes * _MOST_POINTS_PER_BYTE).any()):
            raise ValueError("a chunk is too short for its points")
        self._table = [(int(n), int(size)) for n, size in zip(points, sizes, strict=True)]
        self._points = np.concatenate([[0], np.cumsum(points)]).astype(np.int64)
        self._bytes = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64) + start + 8

    def read(self, file: IO[bytes], start: int, stop: int) -> np.ndarray:  # (stop - start,)
        """Records of a range that is not empty."""
        first = int(np.searchsorted(self._points, start, "right")) - 1
        last = int(np.searchsorted(self._points, stop, "left"))
        file.seek(int(self._bytes[first]))
        data = file.read(int(self._bytes[last] - self._bytes[first]))
        table, begin = self._table[first:last], int(self._points[first])
        _check_layers(data, self._laszip, table)
        out = np.zeros(int(self._points[last]) - begin, self._dtype)
        lazrs.decompress_points_with_chunk_table(
            np.frombuffer(data, np.uint8), self._laszip, out.view(np.uint8), table
        )
        return out[start - begin : stop - begin]


def _table_place(file: IO[bytes], start: int, length: int, size: int) -> int:
    """Where the table of chunks is; raises if it cannot be as long as it promises."""
    file.seek(start)
    place = int.from_bytes(file.read(8), "little", signed=True)
    if place == -1:  # a file that was written as a stream has it at its end
        file.seek(length - 8)
        place = int.from_bytes(file.read(8), "little", signed=True)
    if not start + 8 <= place <= length - 8:
        raise ValueError("its table of chunks is not within the file")
    file.seek(place)
    number = struct.unpack("<II", file.read(8))[1]
    if not 1 <= number <= (place - start - 8) // size:
        raise ValueError(f"it promises {number} chunks, more than it has room for")
    return place


def _check_layers(data: bytes, laszip: bytes, table: list[tuple[int, int]]) -> None:
    """Raise where a chunk promises layers longer than itself, which lazrs would allocate."""
    number = int.from_bytes(laszip[32:34], "little")
    items = [struct.unpack_from("<HH", laszip, 34 + 6 * k) for k in range(number)]
    layers = sum(_LAYERS.get(kind, 0) + (size if kind == 14 else 0) for kind, size in items)
    head, at = sum(size for _, size in items) + 4, 0
    for points, size in table if layers else []:
        if points and size < head + 4 * layers:
            raise ValueError("a chunk ends before its layers")
        promised = np.frombuffer(data, "<u4", layers, at + head) if points else np.zeros(0)
        if promised.sum(dtype=np.int64) > size - head - 4 * layers and points:
            raise ValueError("a chunk has layers that are longer than itself")
        at += size
