"""The header of PLY files, and their records: elements of properties, in text or in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

KINDS = {
    **{"char": "i1", "short": "i2", "int": "i4", "float": "f4"},
    **{"uchar": "u1", "ushort": "u2", "uint": "u4", "double": "f8"},
    **{"int8": "i1", "int16": "i2", "int32": "i4", "float32": "f4"},
    **{"uint8": "u1", "uint16": "u2", "uint32": "u4", "float64": "f8"},
    # not in the format's description, but in files
    **{"bool": "u1", "int64": "i8", "uint64": "u8"},
}
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
#: Corners of all faces one after the other, and how many there are of each face.
Polygons = tuple[np.ndarray, np.ndarray]  # (S,), (P,)
_LONGEST = 1 << 20  # bytes; a header is a page of text


@dataclass(frozen=True)
class Property:
    """One number of a record, or a list of them."""

    name: str
    word: str  # its type as the header says it
    count: str | None = None  # the type of the length of a list; None for a single number

    @property
    def kind(self) -> str:
        """NumPy's name of the type, without the byte order."""
        return KINDS[self.word]

    @property
    def line(self) -> str:
        """The line of the header."""
        return f"property {f'list {self.count} ' if self.count else ''}{self.word} {self.name}"


@dataclass(frozen=True)
class Element:
    """So many records of the same properties."""

    name: str
    count: int
    properties: tuple[Property, ...]


@dataclass(frozen=True)
class Header:
    """What a PLY file says before its numbers.

    Attributes:
        format: one of :data:`ORDERS`.
        elements: in the order of the file.
        notes: comments and obj_info lines, each with the number of header lines before it.
        size: bytes up to the first record.
        newline: how its lines end.
    """

    format: str
    elements: tuple[Element, ...]
    notes: tuple[tuple[int, str], ...] = ()
    size: int = 0
    newline: str = "\n"

    @property
    def order(self) -> str:
        """The byte order as NumPy says it; empty for text."""
        return ORDERS[self.format]

    def encode(self) -> bytes:
        """The header as bytes."""
        lines = ["ply", f"format {self.format} 1.0"]
        for element in self.elements:
            lines.append(f"element {element.name} {element.count}")
            lines += [item.line for item in element.properties]
        for at, note in self.notes:
            lines.insert(min(at, len(lines)), note)
        return (self.newline.join([*lines, "end_header"]) + self.newline).encode("latin-1")


def parse(data: bytes) -> Header:
    """The header of a file, from its first bytes."""
    end = data.find(b"end_header", 0, _LONGEST)
    if not data.startswith(b"ply") or end < 0:
        raise ValueError("it has no PLY header")
    text = data[:end].decode("latin-1")
    newline = "\r\n" if text.startswith("ply\r\n") else "\n"
    format: str | None = None
    notes: list[tuple[int, str]] = []
    elements: list[tuple[str, int, list[Property]]] = []
    for at, line in enumerate(text.splitlines()[1:], start=1):
        match line.split():
            case ["format", name, *_] if name in ORDERS:
                format = name
            case ["element", name, count]:
                elements.append((name, _whole(count), []))
            case ["property", "list", count, word, name] if {count, word} <= set(KINDS):
                _last(elements).append(Property(name, word, count))
            case ["property", word, name] if word in KINDS:
                _last(elements).append(Property(name, word))
            case ["comment" | "obj_info", *_]:
                notes.append((at, line.rstrip("\r\n")))
            case []:
                pass
            case _:
                raise ValueError(f"its header has the line {line[:80]!r}")
    if format is None:
        raise ValueError("its header names no format")
    after = data.find(b"\n", end)
    return Header(
        format,
        tuple(Element(name, count, tuple(fields)) for name, count, fields in elements),
        tuple(notes),
        after + 1 if after >= 0 else len(data),
        newline,
    )


def _whole(word: str) -> int:
    if not (word.isascii() and word.lstrip("+-").isdigit()) or len(word) > 20:
        raise ValueError(f"its header counts {word[:40]!r} of an element")
    return int(word)


def _last(elements: list[tuple[str, int, list[Property]]]) -> list[Property]:
    if not elements:
        raise ValueError("its header has a property before any element")
    return elements[-1][2]


@dataclass
class Records:
    """Words (float64) or bytes (uint8) of the body, and how far it has been read."""

    units: np.ndarray
    order: str  # of the bytes; empty for words
    at: int = 0

    def size(self, word: str) -> int:
        """Units that a number takes."""
        return np.dtype(KINDS[word]).itemsize if self.order else 1

    def cast(self, units: np.ndarray, word: str) -> np.ndarray:
        """The last axis of ``units`` as numbers."""
        if not self.order:
            return units
        return np.ascontiguousarray(units).view(self.order + KINDS[word])

    def layout(self, fields: Sequence[Property], at: int) -> tuple[list[tuple[int, int]], int]:
        """Where the numbers of a record that starts at ``at`` are and how many, and its end."""
        places = []
        for field in fields:
            length = 1
            if field.count:
                here = self.units[at : at + self.size(field.count)]
                if len(here) < self.size(field.count):
                    raise ValueError("it ends in the middle of a record")
                found = self.cast(here, field.count)[0]
                if not (np.isfinite(found) and 0 <= found <= len(self.units)):
                    raise ValueError(f"a list in it says that it has {found} entries")
                length = int(found)
                at += self.size(field.count)
            places.append((at, length))
            at += length * self.size(field.word)
            if at > len(self.units):
                raise ValueError("it ends in the middle of a record")
        return places, at

    def read(self, element: Element) -> dict[str, Polygons]:
        """All records of an element: of every field the numbers, and how many a record has."""
        count, fields = element.count, element.properties
        self.check_room(element)
        if not (count and fields):
            none = np.zeros(0, dtype=np.int64)
            return {field.name: (none, none) for field in fields}
        return self._read_even(count, fields) or self._read_ragged(count, fields)

    def check_room(self, element: Element) -> None:
        """Raise if the element cannot be as long as it says."""
        least = sum(self.size(field.count or field.word) for field in element.properties)
        if element.count < 0 or element.count * least > len(self.units) - self.at:
            raise ValueError(
                f"it says {element.count} of element {element.name}, more than it has room for"
            )
        if element.count and not element.properties:
            raise ValueError(f"its element {element.name} has no properties")

    def _read_even(self, count: int, fields: Sequence[Property]) -> dict[str, Polygons] | None:
        """All at once, if all lists are as long as in the first record; otherwise None."""
        places, end = self.layout(fields, self.at)
        width = end - self.at
        if self.at + count * width > len(self.units):
            return None
        block = self.units[self.at : self.at + count * width].reshape(count, width)
        found = {}
        for field, (place, length) in zip(fields, places, strict=True):
            at = place - self.at
            if field.count:
                lengths = self.cast(block[:, at - self.size(field.count) : at], field.count)
                if bool((lengths != length).any()):
                    return None
            numbers = self.cast(block[:, at : at + length * self.size(field.word)], field.word)
            found[field.name] = numbers.reshape(-1), np.full(count, length)
        self.at += count * width
        return found

    def _read_ragged(self, count: int, fields: Sequence[Property]) -> dict[str, Polygons]:
        """One record after the other."""
        rows: list[list[np.ndarray]] = []
        for _ in range(count):
            places, end = self.layout(fields, self.at)
            spans = [
                self.units[place : place + length * self.size(field.word)]
                for field, (place, length) in zip(fields, places, strict=True)
            ]
            rows.append([self.cast(u, f.word) for u, f in zip(spans, fields, strict=True)])
            self.at = end
        found = {}
        for field, column in zip(fields, zip(*rows, strict=True), strict=True):
            found[field.name] = np.concatenate(column), np.array([len(part) for part in column])
        return found

    def skip(self, element: Element) -> None:
        """Go past an element."""
        self.check_room(element)
        if not any(field.count for field in element.properties):
            self.at += element.count * sum(self.size(field.word) for field in element.properties)
            return
        for _ in range(element.count):
            self.at = self.layout(element.properties, self.at)[1]
