"""The header of LAS files, their variable length records and the layout of their points.

What is read is kept as bytes and only the numbers that change are written over: a record that
nobody here understands comes out as it went in.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from typing import IO, Any

import numpy as np

from veckm.cloud import Template

_SIZES = {0: 227, 1: 227, 2: 227, 3: 235, 4: 375}
_LASZIP = ("laszip encoded", 22204)
_EXTRA = ("LASF_Spec", 4)
_WKT = ("LASF_Projection", 2112)
_GEOKEYS = ("LASF_Projection", 34735)
_WKT_BIT = 16
#: Numbers of the extra bytes; 11-20 and 21-30 are two and three of them.
EXTRA_KINDS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")


@dataclass(frozen=True)
class Record:
    """A variable length record; the head has all but the length, which is that of the data."""

    head: bytes
    data: bytes

    @property
    def key(self) -> tuple[str, int]:
        """Who defined it, and its number."""
        name = self.head[2:18].split(b"\0")[0].decode("latin-1")
        return name, int.from_bytes(self.head[18:20], "little")

    def encode(self) -> bytes:
        """Head, length and data; the length is as wide as it was read."""
        width = len(self.head) - 52
        size = len(self.data).to_bytes(width, "little")
        return self.head[:20] + size + self.head[20 + width :] + self.data


def make_record(key: tuple[str, int], text: str, data: bytes) -> Record:
    """A new record, as short ones are before the points."""
    head = struct.pack("<H16sHH32s", 0, key[0].encode(), key[1], 0, text.encode())
    return Record(head, data)


@dataclass(frozen=True)
class Extra:
    """A field of the extra bytes of a point."""

    name: str
    kind: str
    width: int = 1
    scale: tuple[float, ...] | None = None
    offset: tuple[float, ...] | None = None


@dataclass(frozen=True)
class LasTemplate(Template):
    """All of a LAS file but its points.

    Attributes:
        head: the header, with whatever comes before the first record.
        records: variable length records, without that of the compression.
        gap: bytes between the records and the points.
        late: extended records, which come after the points.
        wave: which of them holds waveforms, or None.
        packed: where among the records that of the compression was; None for LAS.
        extras: fields of the extra bytes.
        octree: the chunks of a COPC, so that it can be written as one.
    """

    head: bytes
    records: tuple[Record, ...] = ()
    gap: bytes = b""
    late: tuple[Record, ...] = ()
    wave: int | None = None
    packed: int | None = None
    extras: tuple[Extra, ...] = field(default=())
    octree: Any = None  # veckm.io.copc.Octree, which knows this file

    def subset(self) -> LasTemplate:
        """Some points are no octree any more."""
        return replace(self, octree=None)

    @property
    def minor(self) -> int:
        """The version is 1.minor."""
        return self.head[25]

    @property
    def format(self) -> int:
        """The number of the point format."""
        return self.head[104] & 63

    @property
    def size(self) -> int:
        """Bytes a point."""
        return int.from_bytes(self.head[105:107], "little")

    @property
    def scale(self) -> np.ndarray:  # (3,)
        """Step of the coordinates."""
        return np.frombuffer(self.head, "<f8", 3, 131)

    @property
    def offset(self) -> np.ndarray:  # (3,)
        """Where the coordinates count from."""
        return np.frombuffer(self.head, "<f8", 3, 155)

    @property
    def bounds(self) -> np.ndarray:  # (2, 3)
        """Least and largest coordinates as the header says."""
        return np.frombuffer(self.head, "<f8", 6, 179).reshape(3, 2).T[::-1]

    def crs(self) -> str | None:
        """WKT, or the EPSG code of GeoTIFF keys."""
        all_records = {record.key: record for record in (*self.late, *self.records)}
        if _WKT in all_records:
            text = all_records[_WKT].data.split(b"\0")[0].decode("utf-8", "replace").strip()
            if text:
                return text
        return _epsg(all_records[_GEOKEYS].data) if _GEOKEYS in all_records else None

    def with_crs(self, wkt: str) -> LasTemplate:
        """The same with another coordinate reference system."""
        if "[" not in wkt:
            raise ValueError(
                f"LAS takes a coordinate reference system as WKT, got {wkt[:40]!r}; "
                "pyproj.CRS(...).to_wkt() gives it"
            )
        record = make_record(_WKT, "OGC WKT", wkt.encode() + b"\0")
        kept = [r for r in self.records if r.key[0] != "LASF_Projection"]
        late = tuple(r for r in self.late if r.key != _WKT)
        flags = int.from_bytes(self.head[6:8], "little") | _WKT_BIT
        head = self.head[:6] + flags.to_bytes(2, "little") + self.head[8:]
        return replace(self, head=head, records=(*kept, record), late=late)

    def with_extras(self, new: list[Extra]) -> LasTemplate:
        """The same with more fields a point; version 1.4, which is the first that names them."""
        if not new:
            return self
        described = b"".join(_describe(extra) for extra in new)
        rest = self._undescribed()
        if rest:
            hidden = [Extra("extra_bytes", "u1", min(255, rest - at)) for at in range(0, rest, 255)]
            described = b"".join(_describe(each, opaque=True) for each in hidden) + described
        size = self.size + sum(np.dtype(e.kind).itemsize * e.width for e in new)
        if size > 65535:
            raise ValueError(f"LAS points have at most 65,535 bytes, these would have {size}")
        head = self.head[:105] + size.to_bytes(2, "little") + self.head[107:]
        records = list(self.records)
        at = next((i for i, r in enumerate(records) if r.key == _EXTRA), None)
        if at is None:
            records.append(make_record(_EXTRA, "Extra Bytes Record", described))
        else:
            records[at] = replace(records[at], data=records[at].data + described)
        out = replace(self, head=head, records=tuple(records), extras=(*self.extras, *new))
        return out if out.minor >= 4 else out._upgraded()

    def _undescribed(self) -> int:
        """Extra bytes of the points that no record explains."""
        described = sum(
            e.width * np.dtype(e.kind).itemsize for e in self.extras if e.name != "extra_bytes"
        )
        return self.size - base_dtype(self.format).itemsize - described

    def _upgraded(self) -> LasTemplate:
        """The header of version 1.4 with the same contents."""
        old = _SIZES[self.minor]
        known = self.head[:old].ljust(375, b"\0")
        rest = self.head[old:]
        size = (375 + len(rest)).to_bytes(2, "little")
        return replace(self, head=known[:25] + b"\4" + known[26:94] + size + known[96:] + rest)


def base_dtype(format: int) -> np.dtype:
    """Records of a point format without extra bytes."""
    from laspy import PointFormat

    found: np.dtype = PointFormat(format).dtype()
    return found


def new_template(format: int, scale: np.ndarray, offset: np.ndarray) -> LasTemplate:
    """The header of a new file of version 1.4."""
    size = base_dtype(format).itemsize
    head = bytearray(375)
    head[:4], head[24:26] = b"LASF", b"\1\4"
    head[6:8] = (1 | _WKT_BIT).to_bytes(2, "little")  # GPS time counts from 1980; CRS is WKT
    head[26:31], head[58:63] = b"OTHER", b"veckm"
    struct.pack_into("<H", head, 94, 375)
    struct.pack_into("<BH", head, 104, format, size)
    struct.pack_into("<6d", head, 131, *scale, *offset)
    return LasTemplate(bytes(head))


def parse(file: IO[bytes], length: int) -> tuple[LasTemplate, int, int, bytes | None]:
    """All but the points, where they start, how many, and what says how they are packed."""
    head = file.read(375)
    if head[:4] != b"LASF":
        raise ValueError("it does not start with LASF")
    minor = head[25] if len(head) > 25 else 255
    if len(head) < 227 or head[24] != 1 or minor not in _SIZES:
        raise ValueError(f"its version is {head[24:25].hex()}.{minor}; 1.0 to 1.4 are supported")
    size, start, number = struct.unpack_from("<HII", head, 94)
    if not _SIZES[minor] <= size <= start <= length or 54 * number > start - size:
        raise ValueError(
            f"its header of {size} bytes and {number} records do not fit before the points at "
            f"{start} of {length} bytes"
        )
    file.seek(0)
    head = file.read(size)
    records, at = _records(file.read(start - size), number, 54)
    late, wave = _late(file, head, length)
    packed = [i for i, record in enumerate(records) if record.key == _LASZIP]
    compressed = bool(head[104] & 0xC0)
    if compressed and not packed:
        raise ValueError("it is compressed, but no record says how")
    laszip = records[packed[0]].data if compressed else None
    kept = tuple(record for record in records if record.key != _LASZIP)
    file.seek(size + at)
    gap = file.read(start - size - at)
    place = packed[0] if packed else None
    template = LasTemplate(head, kept, gap, late, wave, place)
    if template.format > 10:
        raise ValueError(f"its point format is {template.format}; 0 to 10 are supported")
    template = replace(template, extras=_extras(template))
    return template, start, _count(head), laszip


def _count(head: bytes) -> int:
    legacy = int.from_bytes(head[107:111], "little")
    return legacy or (int.from_bytes(head[247:255], "little") if head[25] >= 4 else 0)


def _records(data: bytes, number: int, size: int) -> tuple[list[Record], int]:
    """So many records from the start of ``data``, and where they end."""
    found: list[Record] = []
    at, width = 0, size - 52
    for _ in range(number):
        head = data[at : at + size]
        length = int.from_bytes(head[20 : 20 + width], "little")
        if len(head) < size or at + size + length > len(data):
            raise ValueError(f"record {len(found) + 1} of {number} ends beyond its place")
        found.append(Record(head, data[at + size : at + size + length]))
        at += size + length
    return found, at


def _late(file: IO[bytes], head: bytes, length: int) -> tuple[tuple[Record, ...], int | None]:
    """Extended records, and which of them holds the waveforms."""
    wave = int.from_bytes(head[227:235], "little") if head[25] >= 3 else 0
    start, number = struct.unpack_from("<QI", head, 235) if head[25] >= 4 else (0, 0)
    found: list[Record] = []
    if number:
        if start > length or 60 * number > length - start:
            raise ValueError(f"it says {number} extended records at {start} of {length} bytes")
        file.seek(start)
        found, _ = _records(file.read(), number, 60)
    place = start
    for at, record in enumerate(found):
        if place == wave:
            return tuple(found), at
        place += 60 + len(record.data)
    if 0 < wave <= length - 60 and not number:
        file.seek(wave)
        return tuple(_records(file.read(), 1, 60)[0]), 0
    return tuple(found), None


def _extras(template: LasTemplate) -> tuple[Extra, ...]:
    """Fields of the extra bytes as the records describe them; what is left is one more."""
    room = template.size - base_dtype(template.format).itemsize
    if room < 0:
        raise ValueError(f"its points have {template.size} bytes, too few for their format")
    data = next((r.data for r in template.records if r.key == _EXTRA), b"")
    found: list[Extra] = []
    taken = set(standard_names(template.format)) | {"X", "Y", "Z", "x", "y", "z", "extra_bytes"}
    for at in range(0, len(data) - 191, 192):
        extra = _parse_extra(data[at : at + 192])
        if extra is None or extra.width * np.dtype(extra.kind).itemsize > room:
            break  # it cannot be told where the next would be
        room -= extra.width * np.dtype(extra.kind).itemsize
        name, number = extra.name or "extra", 1
        while name in taken:
            number += 1
            name = f"{extra.name or 'extra'}_{number}"
        taken.add(name)
        found.append(replace(extra, name=name))
    return (*found, Extra("extra_bytes", "u1", room)) if room else tuple(found)


def _parse_extra(data: bytes) -> Extra | None:
    number, options = data[2], data[3]
    name = data[4:36].split(b"\0")[0].decode("utf-8", "replace")
    if number == 0:
        return Extra(name, "u1", options) if options else None
    if number > 30:
        return None
    kind, width = EXTRA_KINDS[(number - 1) % 10], (number - 1) // 10 + 1
    scale = np.frombuffer(data, "<f8", width, 112) if options & 8 else np.ones(width)
    offset = np.frombuffer(data, "<f8", width, 136) if options & 16 else np.zeros(width)
    usable = np.isfinite(scale).all() and np.isfinite(offset).all() and scale.all()
    if not options & 24 or not usable:
        return Extra(name, kind, width)
    return Extra(name, kind, width, tuple(scale.tolist()), tuple(offset.tolist()))


def _describe(extra: Extra, opaque: bool = False) -> bytes:
    """The 192 bytes that name a field of the extra bytes."""
    data = bytearray(192)
    if opaque:
        data[3] = extra.width
    else:
        data[2] = EXTRA_KINDS.index(extra.kind) + 1 + 10 * (extra.width - 1)
    name = extra.name.encode()
    if len(name) > 32:
        raise ValueError(f"LAS names have at most 32 bytes, {extra.name!r} has {len(name)}")
    data[4 : 4 + len(name)] = name
    return bytes(data)


def standard_names(format: int) -> list[str]:
    """Fields of a point format without X, Y and Z; those of a few bits have their own names."""
    from laspy import PointFormat

    names: list[str] = list(PointFormat(format).standard_dimension_names)
    return [name for name in names if name not in ("X", "Y", "Z")]


def _epsg(data: bytes) -> str | None:
    """The code of a projected or else of a geographic system in GeoTIFF keys."""
    keys = np.frombuffer(data[: len(data) // 8 * 8], "<u2").reshape(-1, 4)[1:]
    codes = {int(key): int(value) for key, place, _, value in keys if place == 0}
    code = codes.get(3072) or codes.get(2048)
    return f"EPSG:{code}" if code and re.fullmatch(r"\d{4,5}", str(code)) and code < 32767 else None
