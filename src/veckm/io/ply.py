"""PLY: text and both byte orders; other elements, properties and comments are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from veckm.cloud import PointCloud, Template
from veckm.io import records
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


class Property(NamedTuple):
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
    properties: list[Property] = field(default_factory=list)

    def dtype(self, lengths: Sequence[int] = ()) -> np.dtype:
        """The records, with the length of each list; by default all lists are empty."""
        parts: list[tuple[Any, ...]] = []
        for item, length in zip(
            self.properties, lengths or [0] * len(self.properties), strict=True
        ):
            if item.length:
                parts.append((f"\0{item.name}", item.length))
            parts.append((item.name, item.kind, (length,) if item.length else ()))
        return np.dtype(parts)


@dataclass(frozen=True)
class PlyTemplate(Template):
    """How a file was written."""

    format: str = "binary_little_endian"
    lines: tuple[str, ...] = ("ply", "format", "element vertex 0")  # up to end_header
    elements: tuple[Element, ...] = (Element("vertex", 0),)
    vertex: int = 0  # which of the elements has the points
    size: int = 0  # bytes of the header
    newline: str = "\n"
    dtype: np.dtype | None = None  # the records of the points
    #: The bytes before and after the points; None to leave the other elements out.
    others: tuple[bytes, bytes] | None = None

    def subset(self) -> Template:
        """Faces refer to points by number: without all points there are no faces."""
        return replace(self, others=None)


def read_header(path: Path) -> PlyTemplate:
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
                elements[-1].properties.append(Property(name, _KINDS[word], None, line))
            case ["property", _, length, word, name] if (
                elements and word in _KINDS and length in _KINDS
            ):
                item = Property(name, _KINDS[word], _KINDS[length], line)
                elements[-1].properties.append(item)
            case ["comment" | "obj_info", *_] | []:
                pass
            case _:
                raise ValueError(f"its header has the line {line[:80]!r}")
    if format is None:
        raise ValueError("its header names no format")
    found = [{item.name for item in each.properties if not item.length} for each in elements]
    vertex = next((at for at, names in enumerate(found) if set(AXES) <= names), None)
    if vertex is None:
        raise ValueError(f"none of its elements {[e.name for e in elements]} has x, y and z")
    size = data.find(b"\n", end) + 1 or len(data)
    return PlyTemplate(format, tuple(lines), tuple(elements), vertex, size, newline)


def read(path: Path) -> PointCloud:
    """The points of a PLY file; faces and other elements are kept to be written back."""
    binary = source(path)
    if binary is not None:
        return binary.read_all()
    header = read_header(path)
    element = header.elements[header.vertex]
    lines = [line for line in path.read_bytes()[header.size :].split(b"\n") if line.strip()]
    first = sum(each.count for each in header.elements[: header.vertex])
    last = first + element.count
    check_room(element.count, max(len(lines) - first, 0))
    lengths = text_lengths(element, lines[first].split() if element.count else [])
    found = records.parse(lines[first:last], element.dtype(lengths))
    others = (b"\n".join([*lines[:first], b""]), b"\n".join([*lines[last:], b""]))
    return records.to_cloud(found, replace(header, dtype=found.dtype, others=others))


def text_lengths(element: Element, words: list[bytes]) -> list[int]:
    """The lengths of the lists of a line."""
    lengths, at = [], 0
    for item in element.properties:
        lengths.append(int(words[at]) if item.length and at < len(words) else 1)
        if not 0 <= lengths[-1] <= max(len(words), 1):
            raise ValueError(f"its list {item.name} does not fit into its line")
        at += lengths[-1] + bool(item.length)
    return lengths


def source(path: Path) -> PlySource | None:
    """A binary file by range; None for a file in text."""
    header = read_header(path)
    return PlySource(path, header) if _ORDERS[header.format] else None


class PlySource(RecordSource):
    """A binary PLY file by range."""

    def __init__(self, path: Path, header: PlyTemplate) -> None:
        order = _ORDERS[header.format]
        body, at = np.memmap(path, np.uint8, "r"), header.size
        for each in header.elements[: header.vertex]:
            least = each.dtype().itemsize
            check_room(each.count, (len(body) - at) // max(least, 1))
            if any(item.length for item in each.properties):
                for _ in range(each.count):
                    at = _walk(body, at, each, order)[1]
            else:
                at += each.count * least
        element = header.elements[header.vertex]
        dtype = element.dtype(_walk(body, at, element, order)[0] if element.count else ())
        self._ply = replace(header, dtype=dtype)
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
            file.seek(self._ply.size)
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
    template = like.source if isinstance(like.source, PlyTemplate) else PlyTemplate()
    format = format or template.format
    if format not in _ORDERS:
        raise ValueError(f"format is one of {' '.join(_ORDERS)}, got {format!r}")
    if template.others and len(template.elements) > 1 and format != template.format:
        raise ValueError(f"its faces are in {template.format}; leave format as it is")
    dtype = records.plan(like, template.dtype, _WIDER)
    had = {item.name: item for item in template.elements[template.vertex].properties}
    names = records.file_names(like.fields, _NORMALS, had)
    parts: list[tuple[Any, ...]] = []
    lines: dict[str, list[str]] = {}
    for name in dtype.names or ():
        kind, old = dtype[name], had.get(name)
        word = kind.base.newbyteorder("=").str[1:]
        if old and old.kind == word and bool(old.length) == bool(kind.shape):
            lines[name] = [old.line]
            parts += [(f"\0{name}", old.length)] if old.length else []
        else:
            stored = names.get(name, name)
            records.check_storable("PLY", [(stored, kind)])
            columns = [f"{stored}_{k}" for k in range(kind.shape[0])] if kind.shape else [stored]
            lines[name] = [f"property {_WORDS[word]} {column}" for column in columns]
        parts.append((name, kind.base, kind.shape))
    shown = [*_header_lines(template, lines, count, format), "end_header", ""]
    before, after = template.others or (b"", b"")
    file.write(template.newline.join(shown).encode("latin-1") + before)
    records_of = np.dtype(parts).newbyteorder(_ORDERS[format] or "=")
    return RecordWriter(file, records_of, None if _ORDERS[format] else " ", after)


def _header_lines(
    template: PlyTemplate, new: dict[str, list[str]], count: int, format: str
) -> Iterator[str]:
    """The lines of a header with the properties of the points replaced by ``new`` ones."""
    at, left = -1, dict(new)
    for line in template.lines:
        word = line.split() or [""]
        if word[0] == "element":
            if at == template.vertex:
                yield from chain(*left.values())
                left = {}
            at += 1
        match word[0], at == template.vertex:
            case "format", _:
                yield f"format {format} 1.0"
            case "element", True:
                yield f"element {word[1]} {count}"
            case "property", True:
                yield from left.pop(word[-1], [])
            case (("element" | "property"), False) if template.others is None:
                pass
            case _:
                yield line
    yield from chain(*left.values())
