"""PLY: text and both byte orders; other elements, properties and comments are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from veckm.cloud import PointCloud, Template
from veckm.io import ply_header, rows
from veckm.io.errors import FileError, NotByRange
from veckm.io.names import renamed
from veckm.io.ply_header import KINDS, Element, Header, Property, Records
from veckm.io.source import Source

_NORMALS = ("nx", "ny", "nz")
_WORDS = {
    **{"i1": "char", "i2": "short", "i4": "int", "f4": "float", "f2": "float", "b1": "uchar"},
    **{"u1": "uchar", "u2": "ushort", "u4": "uint", "f8": "double"},
    # The format has no whole numbers of 64 bits, and other readers refuse them.
    **{"i8": "double", "u8": "double"},
}
_FIRST = 1 << 16


@dataclass(frozen=True)
class PlyTemplate(Template):
    """The header, and the records that are not points as the bytes they are."""

    header: Header
    vertex: int  # which of the elements has the points
    before: bytes = b""
    after: bytes = b""

    def subset(self) -> Template:
        """Faces name points by number: without all points there are no faces."""
        only = (self.header.elements[self.vertex],)
        return PlyTemplate(replace(self.header, elements=only), 0)

    @property
    def points(self) -> Element:
        """The element that has the points."""
        return self.header.elements[self.vertex]


def read(path: Path) -> PointCloud:
    """The points of a PLY file; faces and other elements are kept to be written back."""
    header = _header(path)
    if header.order:
        source = PlySource(path)
        return replace(source.read(0, source.count), source=source.template())
    return _read_text(path, header)


def _header(path: Path) -> Header:
    with path.open("rb") as file:
        data = file.read(_FIRST)
        if b"end_header" not in data or b"\n" not in data.split(b"end_header", 1)[1]:
            data += file.read((1 << 20) - _FIRST)
        return ply_header.parse(data)


def _which(header: Header) -> int:
    """The element with the points."""
    for at, element in enumerate(header.elements):
        if {"x", "y", "z"} <= {item.name for item in element.properties}:
            return at
    names = [element.name for element in header.elements]
    raise ValueError(f"none of its elements {names} has x, y and z")


def _dtype(properties: Sequence[Property], order: str, lengths: Sequence[int]) -> np.dtype:
    """Records of the properties; a list is its length and so many numbers."""
    parts: list[tuple[Any, ...]] = []
    for item, length in zip(properties, lengths, strict=True):
        if item.count:
            parts.append((f"{item.name}\0count", order + KINDS[item.count]))
            parts.append((item.name, order + item.kind, (length,)))
        else:
            parts.append((item.name, order + item.kind))
    return np.dtype(parts)


def _cloud(records: np.ndarray, element: Element, template: PlyTemplate) -> PointCloud:
    for item in element.properties:
        if item.count and bool(
            (records[f"{item.name}\0count"] != records[item.name].shape[1]).any()
        ):
            raise ValueError(f"lists of different lengths as in {item.name} cannot be a field")
    singles = {item.name for item in element.properties if not item.count}
    if not {"x", "y", "z"} <= singles:
        raise ValueError("its coordinates are lists")
    wide = any(records.dtype[axis].newbyteorder("=") != np.float32 for axis in "xyz")
    fields = {
        item.name: records[item.name].astype(item.kind, copy=False)
        for item in element.properties
        if item.name not in ("x", "y", "z")
    }
    return PointCloud(
        _pos(records, np.dtype("f8" if wide else "f4")), fields=fields, source=template
    )


def _pos(records: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """x, y and z together; without a copy where nothing else is in the file."""
    kinds, offsets = zip(*(records.dtype.fields[axis][:2] for axis in "xyz"), strict=True)  # type: ignore[index]
    size = dtype.itemsize
    if (
        records.dtype.itemsize == 3 * size
        and offsets == (0, size, 2 * size)
        and set(kinds) == {dtype}
    ):
        return records.view(dtype).reshape(-1, 3)
    pos = np.empty((len(records), 3), dtype)
    for column, axis in enumerate("xyz"):
        pos[:, column] = records[axis]
    return pos


class PlySource(Source):
    """A binary PLY file by range."""

    def __init__(self, path: Path) -> None:
        self.path = path
        header = _header(path)
        if not header.order:
            raise NotByRange(path, "is a PLY file in text, which cannot be read by range")
        try:
            self._open(header)
        except (ValueError, LookupError, OverflowError) as error:
            raise FileError(path, f"cannot be read as PLY: {error}") from error

    def _open(self, header: Header) -> None:
        length = self.path.stat().st_size
        body = np.memmap(self.path, np.uint8, "r") if length else np.zeros(0, np.uint8)
        records = Records(body, header.order, header.size)
        self._vertex = _which(header)
        for element in header.elements[: self._vertex]:
            records.skip(element)
        self._element = header.elements[self._vertex]
        records.check_room(self._element)
        properties = self._element.properties
        lengths = [1] * len(properties)
        if self._element.count:
            lengths = [length for _, length in records.layout(properties, records.at)[0]]
        self._records = _dtype(properties, header.order, lengths)
        self._header, self._at, self.count = header, records.at, self._element.count
        self._end = self._at + self.count * self._records.itemsize
        if self._end > length:
            room = (length - self._at) // max(self._records.itemsize, 1)
            raise ValueError(f"it says {self.count} points, but has room for {room}")

    def template(self) -> PlyTemplate:
        """Everything but the points, read now."""
        with self.path.open("rb") as file:
            file.seek(self._header.size)
            before = file.read(self._at - self._header.size)
            file.seek(self._end)
            return PlyTemplate(self._header, self._vertex, before, file.read())

    def read(self, start: int, stop: int) -> PointCloud:
        """Points of a range with all fields."""
        self._check(start, stop)
        at = self._at + start * self._records.itemsize
        records = np.fromfile(self.path, self._records, stop - start, offset=at)
        if len(records) != stop - start:
            raise FileError(
                self.path, f"ended after {start + len(records)} points while being read"
            )
        try:
            return _cloud(records, self._element, self._part())
        except ValueError as error:
            raise FileError(self.path, f"cannot be read as PLY: {error}") from error

    def like(self) -> PointCloud:
        """No points, but all that is needed to write such a file."""
        return replace(self.read(0, 0), source=self.template())

    def _part(self) -> PlyTemplate:
        return PlyTemplate(replace(self._header, elements=(self._element,)), 0)


def _read_text(path: Path, header: Header) -> PointCloud:
    vertex = _which(header)
    element = header.elements[vertex]
    body = path.read_bytes()[header.size :]
    for each in header.elements:
        if each.count < 0 or each.count * 2 * max(len(each.properties), 1) > len(body) + 1:
            raise ValueError(f"it says {each.count} of {each.name}, more than it has room for")
    lines = [line for line in body.split(b"\n") if line.strip()]
    first = sum(each.count for each in header.elements[:vertex])
    found = lines[first : first + element.count]
    if len(found) < element.count:
        raise ValueError(f"it says {element.count} points, but has {len(found)} lines of them")
    words = found[0].split() if found else []
    records = rows.parse(found, _dtype(element.properties, "", _lengths(element, words)))
    before, after = (
        b"".join(line + b"\n" for line in part)
        for part in (lines[:first], lines[first + element.count :])
    )
    return _cloud(records, element, PlyTemplate(header, vertex, before, after))


def _lengths(element: Element, words: list[bytes]) -> list[int]:
    """How long the lists of a record in text are."""
    lengths, at = [], 0
    for item in element.properties:
        length = 1
        if item.count and words:
            length = int(words[at]) if at < len(words) else -1
            if not 0 <= length <= len(words):
                raise ValueError(f"its list {item.name} does not fit into its line")
        at += length + bool(item.count)
        lengths.append(length)
    return lengths


class PlyWriter:
    """Writes PLY piece by piece; the header says from the start how many points there will be."""

    def __init__(
        self,
        file: IO[bytes],
        path: Path,
        like: PointCloud,
        count: int,
        *,
        format: str | None = None,
    ) -> None:
        self._file, self._path, self._left = file, path, count
        template = like.source if isinstance(like.source, PlyTemplate) else None
        kind = format or (template.header.format if template else "binary_little_endian")
        if kind not in ply_header.ORDERS:
            raise ValueError(f"format is one of {' '.join(ply_header.ORDERS)}, got {kind!r}")
        others = template is not None and len(template.header.elements) > 1
        if template is not None and others and kind != template.header.format:
            raise FileError(
                path, f"its faces are in {template.header.format}; leave format as it is"
            )
        had = [item.name for item in template.points.properties] if template else []
        self._names = renamed(like.fields, _NORMALS, had)
        self._columns, properties = self._plan(like, template)
        element = Element("vertex", count, tuple(properties))
        if template is None:
            header, self._after = Header(kind, (element,)), b""
        else:
            element = replace(element, name=template.points.name)
            elements = list(template.header.elements)
            elements[template.vertex] = element
            header = replace(template.header, format=kind, elements=tuple(elements))
            self._after = template.after
        lengths = [1 if item.count is None else self._width(like, item) for item in properties]
        self._dtype = _dtype(properties, header.order or "=", lengths)
        self._text = not header.order
        file.write(header.encode() + (template.before if template else b""))

    def _width(self, like: PointCloud, item: Property) -> int:
        return int(like.fields[item.name].shape[1])

    def _plan(
        self, like: PointCloud, template: PlyTemplate | None
    ) -> tuple[list[tuple[str, int | None]], list[Property]]:
        """Properties of the file, and for each the column of the cloud that it comes from."""
        wide = like.pos.dtype != np.float32 or bool(like.origin.any())
        axis_word = "double" if wide else "float"
        had = {item.name: item for item in template.points.properties} if template else {}
        order = [name for name in had if name in like.fields or name in ("x", "y", "z")]
        order += [name for name in ("x", "y", "z") if name not in had]
        order += [name for name in like.fields if name not in had]
        columns: list[tuple[str, int | None]] = []
        properties: list[Property] = []
        for name in order:
            if name in ("x", "y", "z"):
                columns.append((name, None))
                properties.append(had.get(name, Property(name, axis_word)))
                continue
            values = like.fields[name]
            old = had.get(name)
            kept = old if old and np.dtype(old.kind) == values.dtype else None
            shown = self._names[name]
            if values.ndim == 1:
                columns.append((name, None))
                single = kept if kept and kept.count is None else None
                properties.append(single or Property(shown, self._word(name, values.dtype)))
            elif kept is not None and kept.count:
                columns.append((name, None))
                properties.append(kept)
            else:
                for k in range(values.shape[1]):
                    columns.append((name, k))
                    properties.append(Property(f"{shown}_{k}", self._word(name, values.dtype)))
        return columns, [_checked(self._path, item) for item in properties]

    def _word(self, name: str, dtype: np.dtype) -> str:
        word = _WORDS.get(f"{dtype.kind}{dtype.itemsize}")
        if word is None:
            raise FileError(self._path, f"PLY has no numbers like field {name!r}, {dtype}")
        return word

    def append(self, cloud: PointCloud) -> None:
        """The next points."""
        self._left -= len(cloud)
        if self._left < 0:
            raise ValueError(f"{self._path}: got {-self._left} points more than its header says")
        records = np.empty(len(cloud), self._dtype)
        xyz = cloud.xyz if cloud.origin.any() else cloud.pos
        names = [name for name in self._dtype.names or () if not name.endswith("\0count")]
        for name, (column, k) in zip(names, self._columns, strict=True):
            if column in ("x", "y", "z"):
                values = xyz[:, "xyz".index(column)]
            else:
                values = cloud.fields[column]
            records[name] = values if k is None else values[:, k]
            if f"{name}\0count" in (self._dtype.names or ()):
                records[f"{name}\0count"] = records[name].shape[1]
        if self._text:
            columns = [records[name] for name in self._dtype.names or ()]
            self._file.write(rows.render(rows.flatten(columns)))
        else:
            self._file.write(records.view(np.uint8).data if len(records) else b"")

    def finish(self) -> None:
        """The elements that come after the points."""
        if self._left:
            raise ValueError(f"{self._path}: {self._left} points are missing")
        self._file.write(self._after)


def _checked(path: Path, item: Property) -> Property:
    if not item.name or item.name.split() != [item.name] or not item.name.isascii():
        raise FileError(path, f"PLY cannot have a field called {item.name!r}; rename it")
    return item
