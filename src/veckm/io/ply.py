"""PLY: text and both byte orders; other elements, properties and comments are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from veckm.cloud import PointCloud, Template
from veckm.io import rows
from veckm.io.errors import FileError, NotByRange, guarded
from veckm.io.records import (
    AXES,
    WIDER,
    RecordSource,
    RecordWriter,
    check_kinds,
    check_room,
    file_names,
    plan,
    to_cloud,
)

_NORMALS = ("nx", "ny", "nz")
_WORDS = {
    **{"i1": "char", "i2": "short", "i4": "int", "f4": "float"},
    **{"u1": "uchar", "u2": "ushort", "u4": "uint", "f8": "double"},
}
_KINDS = {
    **{word: kind for kind, word in _WORDS.items()},
    **{"int8": "i1", "int16": "i2", "int32": "i4", "float32": "f4"},
    **{"uint8": "u1", "uint16": "u2", "uint32": "u4", "float64": "f8"},
    # not in the format's description, but in files
    **{"bool": "u1", "int64": "i8", "uint64": "u8"},
}
#: The format has no integers of 64 bits, and other readers refuse them.
_WIDER = {**WIDER, "i8": "f8", "u8": "f8"}
_ORDERS: dict[str, Any] = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_LONGEST = 1 << 20  # bytes of a header


@dataclass(frozen=True)
class Property:
    """A number of a record, or a list of numbers if it has the type of the length."""

    name: str
    word: str
    length: str | None = None

    @property
    def line(self) -> str:
        """The line of the header."""
        return f"property {f'list {self.length} ' if self.length else ''}{self.word} {self.name}"


@dataclass(frozen=True)
class Element:
    """A table of records."""

    name: str
    count: int
    properties: tuple[Property, ...]

    def dtype(self, lengths: Sequence[int]) -> np.dtype:
        """The records, with the length of each list."""
        parts: list[tuple[Any, ...]] = []
        for item, length in zip(self.properties, lengths, strict=True):
            if item.length:
                parts.append((f"\0{item.name}", _KINDS[item.length]))
            parts.append((item.name, _KINDS[item.word], *([(length,)] if item.length else [])))
        return np.dtype(parts)


@dataclass(frozen=True)
class Header:
    """The header of a PLY file.

    Attributes:
        format: ascii, binary_little_endian or binary_big_endian.
        elements: in the order of the file.
        notes: comments and obj_info lines, each with the number of header lines before it.
        size: its length in bytes.
        newline: the end of its lines.
    """

    format: str
    elements: tuple[Element, ...]
    notes: tuple[tuple[int, str], ...] = ()
    size: int = 0
    newline: str = "\n"

    @property
    def vertex(self) -> int:
        """Which of the elements has the points."""
        for at, element in enumerate(self.elements):
            if set(AXES) <= {item.name for item in element.properties if not item.length}:
                return at
        names = [element.name for element in self.elements]
        raise ValueError(f"none of its elements {names} has x, y and z")

    def encode(self) -> bytes:
        """The header as bytes."""
        lines = ["ply", f"format {self.format} 1.0"]
        for element in self.elements:
            lines.append(f"element {element.name} {element.count}")
            lines += [item.line for item in element.properties]
        for at, note in self.notes:
            lines.insert(min(at, len(lines)), note)
        return (self.newline.join([*lines, "end_header"]) + self.newline).encode("latin-1")


@dataclass(frozen=True)
class PlyTemplate(Template):
    """The header, the records of the points, and the bytes of the elements around them."""

    header: Header
    dtype: np.dtype
    before: bytes = b""
    after: bytes = b""

    def subset(self) -> Template:
        """Faces refer to points by number: without all points there are no faces."""
        only = (self.header.elements[self.header.vertex],)
        return PlyTemplate(replace(self.header, elements=only), self.dtype)


def _read_header(path: Path) -> Header:
    with path.open("rb") as file:
        data = file.read(_LONGEST)
    end = data.find(b"end_header")
    if not data.startswith(b"ply") or end < 0:
        raise ValueError("it has no PLY header")
    text = data[:end].decode("latin-1")
    format: str | None = None
    notes: list[tuple[int, str]] = []
    elements: list[Element] = []
    for at, line in enumerate(text.splitlines()[1:], start=1):
        match line.split():
            case ["format", name, *_] if name in _ORDERS:
                format = name
            case ["element", name, count] if count.isascii() and count.lstrip("+-").isdigit():
                elements.append(Element(name, int(count[:20]), ()))
            case ["property", *words] if elements and len(words) in (2, 4):
                item = Property(words[-1], words[-2], words[1] if len(words) == 4 else None)
                if item.word not in _KINDS or (item.length and item.length not in _KINDS):
                    raise ValueError(f"its header has the line {line[:80]!r}")
                elements[-1] = replace(elements[-1], properties=(*elements[-1].properties, item))
            case ["comment" | "obj_info", *_]:
                notes.append((at, line.rstrip("\r\n")))
            case []:
                pass
            case _:
                raise ValueError(f"its header has the line {line[:80]!r}")
    if format is None:
        raise ValueError("its header names no format")
    newline = "\r\n" if text.startswith("ply\r\n") else "\n"
    size = data.find(b"\n", end) + 1 or len(data)
    return Header(format, tuple(elements), tuple(notes), size, newline)


def element_count(path: Path, name: str) -> int:
    """How many records the header promises of an element."""
    return sum(each.count for each in _read_header(path).elements if each.name == name)


def read(path: Path) -> PointCloud:
    """The points of a PLY file; faces and other elements are kept to be written back."""
    header = _read_header(path)
    if _ORDERS[header.format]:
        return PlySource(path).read_all()
    vertex, element = header.vertex, header.elements[header.vertex]
    body = path.read_bytes()[header.size :]
    lines = [line for line in body.split(b"\n") if line.strip()]
    first = sum(each.count for each in header.elements[:vertex])
    if first < 0:
        raise ValueError("its header counts fewer than no records")
    check_room(element.count, max(len(lines) - first, 0))
    last = first + element.count
    lengths = _text_lengths(element, lines[first].split() if element.count else [])
    records = rows.parse(lines[first:last], element.dtype(lengths))
    before, after = (
        b"".join(line + b"\n" for line in part) for part in (lines[:first], lines[last:])
    )
    return _to_cloud(records, PlyTemplate(header, records.dtype, before, after))


def _text_lengths(element: Element, words: list[bytes]) -> list[int]:
    lengths, at = [], 0
    for item in element.properties:
        lengths.append(int(words[at]) if item.length and at < len(words) else 1)
        if not 0 <= lengths[-1] <= max(len(words), 1):
            raise ValueError(f"its list {item.name} does not fit into its line")
        at += lengths[-1] + bool(item.length)
    return lengths


def _to_cloud(records: np.ndarray, template: PlyTemplate) -> PointCloud:
    for name in records.dtype.names or ():
        length = records.dtype[name[1:]].shape[0] if name.startswith("\0") else 0
        if name.startswith("\0") and bool((records[name] != length).any()):
            raise ValueError(f"lists of different lengths as in {name[1:]} cannot be a field")
    return to_cloud(records, template)


class PlySource(RecordSource):
    """A binary PLY file by range."""

    def __init__(self, path: Path) -> None:
        header = _read_header(path)
        order = _ORDERS[header.format]
        if not order:
            raise NotByRange(path, "is a PLY file in text, which cannot be read by range")
        element = header.elements[header.vertex]
        length = path.stat().st_size
        body = np.memmap(path, np.uint8, "r")
        at = header.size
        for each in header.elements[: header.vertex]:
            least = sum(np.dtype(_KINDS[p.length or p.word]).itemsize for p in each.properties)
            check_room(each.count, (length - at) // max(least, 1))
            if any(item.length for item in each.properties):
                for _ in range(each.count):
                    at = _walk(body, at, each, order)[1]
            else:
                at += each.count * least
        lengths = [1] * len(element.properties)
        if element.count and any(item.length for item in element.properties):
            lengths = _walk(body, at, element, order)[0]
        dtype = element.dtype(lengths)
        only = PlyTemplate(replace(header, elements=(element,)), dtype)
        super().__init__(path, dtype.newbyteorder(order), at, element.count, only)
        self._whole = PlyTemplate(header, dtype)

    def _convert(self, records: np.ndarray) -> PointCloud:
        with guarded(self.path, "read as PLY"):
            assert isinstance(self._template, PlyTemplate)
            return _to_cloud(records, self._template)

    def like(self) -> PointCloud:
        """A cloud without points that has all that is needed to write such a file."""
        return replace(super().like(), source=self._complete())

    def read_all(self) -> PointCloud:
        """The whole file."""
        return replace(super().read_all(), source=self._complete())

    def _complete(self) -> PlyTemplate:
        """The template with the elements around the points."""
        start = self._whole.header.size
        with self.path.open("rb") as file:
            file.seek(start)
            before = file.read(self._start - start)
            file.seek(self._start + self.count * self._dtype.itemsize)
            return replace(self._whole, before=before, after=file.read())


def _walk(body: np.ndarray, at: int, element: Element, order: str) -> tuple[list[int], int]:
    """The lengths of the lists of the record at ``at``, and where it ends."""
    lengths = []
    for item in element.properties:
        length = 1
        if item.length:
            kind = np.dtype(order + _KINDS[item.length])
            length = int(np.frombuffer(body[at : at + kind.itemsize].tobytes(), kind)[0])
            at += kind.itemsize
        at += length * np.dtype(_KINDS[item.word]).itemsize
        if not 0 <= length <= len(body) or at > len(body):
            raise ValueError("it ends in the middle of a record")
        lengths.append(length)
    return lengths, at


def writer(
    file: IO[bytes], path: Path, like: PointCloud, count: int, *, format: str | None = None
) -> RecordWriter:
    """A writer of PLY; the format is by default that of the file that the cloud came from."""
    template = like.source if isinstance(like.source, PlyTemplate) else None
    old = template.header if template else Header("binary_little_endian", ())
    kind = format or old.format
    if kind not in _ORDERS:
        raise ValueError(f"format is one of {' '.join(_ORDERS)}, got {kind!r}")
    if len(old.elements) > 1 and kind != old.format:
        raise FileError(path, f"its faces are in {old.format}; leave format as it is")
    dtype = plan(like, template.dtype if template else None, _WIDER)
    check_kinds(path, dtype, "PLY")
    had = old.elements[old.vertex].properties if template else ()
    names = file_names(like.fields, _NORMALS, [item.name for item in had])
    properties = _properties(path, dtype, {item.name: item for item in had}, names)
    element = Element("vertex", count, properties)
    elements = list(old.elements) or [element]
    at = old.vertex if template else 0
    elements[at] = replace(element, name=elements[at].name)
    header = replace(old, format=kind, elements=tuple(elements))
    parts: list[tuple[Any, ...]] = []
    for name in dtype.names or ():
        item = next((p for p in properties if p.name == name and p.length), None)
        if item is not None and item.length:
            parts.append((f"\0{name}", _KINDS[item.length]))
        parts.append((name, dtype[name].base, dtype[name].shape))
    file.write(header.encode() + (template.before if template else b""))
    stored = np.dtype(parts).newbyteorder(_ORDERS[kind] or "=")
    delimiter, tail = None if _ORDERS[kind] else " ", template.after if template else b""
    return RecordWriter(file, path, stored, count, delimiter, tail)


def _properties(
    path: Path, dtype: np.dtype, had: dict[str, Property], names: dict[str, str]
) -> tuple[Property, ...]:
    """Properties of the file; new fields of several columns become numbered ones."""
    found = []
    for name in dtype.names or ():
        kind, width = dtype[name].base.newbyteorder("=").str[1:], dtype[name].shape
        old, shown = had.get(name), names.get(name, name)
        if old and _KINDS[old.word] == kind and bool(old.length) == bool(width):
            found.append(old)
            continue
        if not shown or shown.split() != [shown] or not shown.isascii():
            raise FileError(path, f"PLY cannot have a field named {shown!r}; rename it")
        numbered = [f"{shown}_{k}" for k in range(width[0])] if width else [shown]
        found += [Property(each, _WORDS[kind]) for each in numbered]
    return tuple(found)
