"""PLY: text and both byte orders; other elements, properties and comments are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from veckm.cloud import PointCloud, Template
from veckm.io import records, rows
from veckm.io.errors import NotByRange
from veckm.io.records import AXES, RecordSource, RecordWriter, check_room

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
_WIDER = {**records.WIDER, "i8": "f8", "u8": "f8"}
_ORDERS: dict[str, Any] = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_LONGEST = 1 << 20  # bytes of a header


@dataclass(frozen=True)
class Property:
    """A number of a record, or a list of numbers if ``length`` is the dtype of its length."""

    name: str
    kind: str
    length: str | None
    line: str


@dataclass(frozen=True)
class Element:
    """A table of records."""

    name: str
    count: int
    properties: tuple[Property, ...] = ()

    @property
    def has_lists(self) -> bool:
        return any(item.length for item in self.properties)

    def dtype(self, lengths: Sequence[int]) -> np.dtype:
        """The records, with the length of each list."""
        parts: list[tuple[Any, ...]] = []
        for item, length in zip(self.properties, lengths, strict=True):
            if item.length:
                parts.append((f"\0{item.name}", item.length))
            parts.append((item.name, item.kind, (length,) if item.length else ()))
        return np.dtype(parts)


@dataclass(frozen=True)
class Header:
    """The header of a PLY file.

    Attributes:
        format: ascii, binary_little_endian or binary_big_endian.
        lines: as in the file, without end_header.
        elements: in the order of the file.
        size: its length in bytes.
        newline: the end of its lines.
    """

    format: str = "binary_little_endian"
    lines: tuple[str, ...] = ("ply", "format", "element vertex 0")
    elements: tuple[Element, ...] = (Element("vertex", 0),)
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


@dataclass(frozen=True)
class PlyTemplate(Template):
    """How a file was written.

    Attributes:
        header: of the file.
        dtype: the records of the points.
        others: the bytes before and after the points; None to leave the other elements out.
    """

    header: Header
    dtype: np.dtype
    others: tuple[bytes, bytes] | None = None

    def subset(self) -> Template:
        """Faces refer to points by number: without all points there are no faces."""
        return replace(self, others=None)


def read_header(path: Path) -> Header:
    """The header of a file; raises ValueError if it is none."""
    with path.open("rb") as file:
        data = file.read(_LONGEST)
    end = data.find(b"end_header")
    if not data.startswith(b"ply") or end < 0:
        raise ValueError("it has no PLY header")
    newline = "\r\n" if data.startswith(b"ply\r\n") else "\n"
    lines = [line.rstrip("\r") for line in data[:end].decode("latin-1").split("\n")[:-1]]
    format: str | None = None
    elements: list[Element] = []
    for line in lines[1:]:
        match line.split():
            case ["format", name, *_] if name in _ORDERS:
                format = name
            case ["element", name, count] if count.isascii() and count.isdigit():
                elements.append(Element(name, int(count[:20])))
            case ["property", word, name] if elements and word in _KINDS:
                _add(elements, Property(name, _KINDS[word], None, line))
            case ["property", _, length, word, name] if (
                elements and word in _KINDS and length in _KINDS
            ):
                _add(elements, Property(name, _KINDS[word], _KINDS[length], line))
            case ["comment" | "obj_info", *_] | []:
                pass
            case _:
                raise ValueError(f"its header has the line {line[:80]!r}")
    if format is None:
        raise ValueError("its header names no format")
    size = data.find(b"\n", end) + 1 or len(data)
    return Header(format, tuple(lines), tuple(elements), size, newline)


def _add(elements: list[Element], item: Property) -> None:
    elements[-1] = replace(elements[-1], properties=(*elements[-1].properties, item))


def read(path: Path) -> PointCloud:
    """The points of a PLY file; faces and other elements are kept to be written back."""
    header = read_header(path)
    if _ORDERS[header.format]:
        return PlySource(path).read_all()
    element = header.elements[header.vertex]
    lines = [line for line in path.read_bytes()[header.size :].split(b"\n") if line.strip()]
    first = sum(each.count for each in header.elements[: header.vertex])
    last = first + element.count
    check_room(element.count, max(len(lines) - first, 0))
    lengths = _text_lengths(element, lines[first].split() if element.count else [])
    found = rows.parse(lines[first:last], element.dtype(lengths))
    others = (b"\n".join([*lines[:first], b""]), b"\n".join([*lines[last:], b""]))
    return records.to_cloud(found, PlyTemplate(header, found.dtype, others))


def _text_lengths(element: Element, words: list[bytes]) -> list[int]:
    """The lengths of the lists of a line."""
    lengths, at = [], 0
    for item in element.properties:
        lengths.append(int(words[at]) if item.length and at < len(words) else 1)
        if not 0 <= lengths[-1] <= max(len(words), 1):
            raise ValueError(f"its list {item.name} does not fit into its line")
        at += lengths[-1] + bool(item.length)
    return lengths


class PlySource(RecordSource):
    """A binary PLY file by range."""

    def __init__(self, path: Path) -> None:
        header = read_header(path)
        order = _ORDERS[header.format]
        if not order:
            raise NotByRange(path, "is a PLY file in text, which cannot be read by range")
        body, at = np.memmap(path, np.uint8, "r"), header.size
        for each in header.elements[: header.vertex]:
            least = each.dtype([0] * len(each.properties)).itemsize
            check_room(each.count, (len(body) - at) // max(least, 1))
            if each.has_lists:
                for _ in range(each.count):
                    at = _walk(body, at, each, order)[1]
            else:
                at += each.count * least
        element = header.elements[header.vertex]
        lengths = [0] * len(element.properties)
        if element.count and element.has_lists:
            lengths = _walk(body, at, element, order)[0]
        dtype = element.dtype(lengths)
        self._ply = PlyTemplate(header, dtype)
        super().__init__(path, dtype.newbyteorder(order), at, element.count, self._ply)

    def like(self) -> PointCloud:
        """A cloud without points that has all that is needed to write such a file."""
        return replace(super().like(), source=self._whole())

    def read_all(self) -> PointCloud:
        """The whole file."""
        return replace(super().read_all(), source=self._whole())

    def _whole(self) -> PlyTemplate:
        """The template with the elements around the points."""
        with self.path.open("rb") as file:
            file.seek(self._ply.header.size)
            before = file.read(self._start - file.tell())
            file.seek(self._start + self.count * self._dtype.itemsize)
            return replace(self._ply, others=(before, file.read()))


def _walk(body: np.ndarray, at: int, element: Element, order: str) -> tuple[list[int], int]:
    """The lengths of the lists of the record at ``at``, and where it ends."""
    lengths = []
    for item in element.properties:
        length = 1
        if item.length:
            kind = np.dtype(order + item.length)
            length = int(np.frombuffer(body[at : at + kind.itemsize].tobytes(), kind)[0])
            at += kind.itemsize
        at += length * np.dtype(item.kind).itemsize
        if not 0 <= length <= len(body) or at > len(body):
            raise ValueError("it ends in the middle of a record")
        lengths.append(length)
    return lengths, at


def writer(
    file: IO[bytes], _path: Path, like: PointCloud, count: int, *, format: str | None = None
) -> RecordWriter:
    """A writer of PLY; the format is by default that of the file that the cloud came from."""
    template = like.source if isinstance(like.source, PlyTemplate) else None
    header = template.header if template else Header()
    others = template.others if template else None
    format = format or header.format
    if format not in _ORDERS:
        raise ValueError(f"format is one of {' '.join(_ORDERS)}, got {format!r}")
    if others and len(header.elements) > 1 and format != header.format:
        raise ValueError(f"its faces are in {header.format}; leave format as it is")
    dtype = records.plan(like, template.dtype if template else None, _WIDER)
    vertex = header.vertex if template else 0
    had = {item.name: item for item in header.elements[vertex].properties}
    names = records.file_names(like.fields, _NORMALS, had)
    parts: list[tuple[Any, ...]] = []
    lines: dict[str, list[str]] = {}
    for name in dtype.names or ():
        kind, old = dtype[name], had.get(name)
        if old and _same_kind(old, kind):
            lines[name] = [old.line]
            parts += [(f"\0{name}", old.length)] if old.length else []
        else:
            lines[name] = _new_lines(names.get(name, name), kind)
        parts.append((name, kind.base, kind.shape))
    shown = _header_lines(header, vertex, lines, count, bool(others))
    form = f"format {format} 1.0"
    shown = [form if line.split()[:1] == ["format"] else line for line in shown]
    before, after = others or (b"", b"")
    file.write(header.newline.join([*shown, "end_header", ""]).encode("latin-1") + before)
    stored = np.dtype(parts).newbyteorder(_ORDERS[format] or "=")
    return RecordWriter(file, stored, count, None if _ORDERS[format] else " ", after)


def _same_kind(old: Property, kind: np.dtype) -> bool:
    same = old.kind == kind.base.newbyteorder("=").str[1:]
    return same and bool(old.length) == bool(kind.shape)


def _new_lines(name: str, kind: np.dtype) -> list[str]:
    """The properties of a new field; several columns are numbered."""
    records.check_storable("PLY", [(name, kind)])
    word = _WORDS[kind.base.newbyteorder("=").str[1:]]
    names = [f"{name}_{k}" for k in range(kind.shape[0])] if kind.shape else [name]
    return [f"property {word} {each}" for each in names]


def _header_lines(
    header: Header, vertex: int, new: dict[str, list[str]], count: int, others: bool
) -> list[str]:
    """The lines of a header with the properties of the points replaced by ``new`` ones."""
    words = [line.split() or [""] for line in header.lines]
    starts = [at for at, (word, *_) in enumerate(words) if word == "element"]
    start, stop = [*starts, len(words)][vertex : vertex + 2]

    def outside(part: slice) -> list[str]:
        pairs = zip(header.lines[part], words[part], strict=True)
        return [line for line, word in pairs if others or word[0] not in ("element", "property")]

    points, left = [f"element {words[start][1]} {count}"], dict(new)
    for line, word in zip(header.lines[start + 1 : stop], words[start + 1 : stop], strict=True):
        points += left.pop(word[-1], []) if word[0] == "property" else [line]
    points += [line for lines in left.values() for line in lines]
    return [*outside(slice(start)), *points, *outside(slice(stop, None))]
