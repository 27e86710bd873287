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


def check_chunks(file: IO[bytes], header: LasHeader, length: int) -> None:
    """Raise if the chunks of compressed points cannot hold as many points as the header promises.

    lazrs allocates what the table of chunks and the layers of each chunk promise.
    """
    found = header.vlrs.get("LasZipVlr")
    if not found:
        raise ValueError("it is compressed, but no record describes how")
    data, count, size = found[0].record_data, header.point_count, header.point_format.size
    vlr = lazrs.LazVlr(data)
    if vlr.item_size() != size:
        raise ValueError(f"its points have {size} bytes, but compressed ones {vlr.item_size()}")
    if not count:
        return
    start = header.offset_to_point_data
    end = _table_place(file, start, length, size)
    file.seek(start)
    table = lazrs.read_chunk_table(file, vlr)
    points, sizes = np.array(table, dtype=np.float64).T
    if not vlr.uses_variable_size_chunks():
        full = max(vlr.chunk_size(), 1)
        if len(table) != -(-count // full):
            raise ValueError(f"the header promises {count} points, but has {len(table)} chunks")
        points[-1] = count - full * (len(table) - 1)
    if points.sum() != count or sizes.sum() > end - start - 8:
        raise ValueError(f"the header promises {count} points, but its chunks hold others")
    if bool((points > sizes * _MOST_POINTS_PER_BYTE).any()):
        raise ValueError("a chunk is too short for its points")
    _check_counts(file, data, start + 8, points.astype(np.int64), sizes.astype(np.int64))


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


def _check_counts(
    file: IO[bytes], data: bytes, start: int, points: np.ndarray, sizes: np.ndarray
) -> None:
    """Raise where a chunk has other many points, or layers that are longer than itself."""
    number = int.from_bytes(data[32:34], "little")
    items = [struct.unpack_from("<HH", data, 34 + 6 * k) for k in range(number)]
    layers = sum(_LAYERS.get(kind, 0) + (size if kind == 14 else 0) for kind, size in items)
    item = sum(size for _, size in items)
    starts = start + np.cumsum(sizes) - sizes
    if not layers:  # only the last chunk can be short; it must hold its points by itself
        file.seek(int(starts[-1]))
        chunk = np.frombuffer(file.read(int(sizes[-1])), np.uint8)
        out, last = np.zeros(int(points[-1]) * item, np.uint8), (int(points[-1]), int(sizes[-1]))
        lazrs.decompress_points_with_chunk_table(chunk, data, out, [last])
        return
    for at, count, size in zip(starts.tolist(), points.tolist(), sizes.tolist(), strict=True):
        if not count:
            continue
        file.seek(at + item)
        head = np.frombuffer(file.read(4 + 4 * layers), "<u4").astype(np.int64)
        if len(head) <= layers or head[0] != count:
            raise ValueError(f"a chunk should have {count} points, but has others")
        if head[1:].sum() > size - item - 4 - 4 * layers:
            raise ValueError("a chunk has layers that are longer than itself")
