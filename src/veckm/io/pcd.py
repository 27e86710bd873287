"""PCD, the files of the Point Cloud Library: text, binary and (to be read) compressed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from veckm.cloud import PointCloud, Template
from veckm.io import records
from veckm.io.errors import FileWarning
from veckm.io.records import AXES, RecordWriter, check_room

_NORMALS = ("normal_x", "normal_y", "normal_z")
_LONGEST = 1 << 20  # bytes of a header
_LINES = (
    "# .PCD v0.7 - Point Cloud Data file format",
    *("VERSION 0.7", "FIELDS", "SIZE", "TYPE", "COUNT", "WIDTH", "HEIGHT"),
    *("VIEWPOINT 0 0 0 1 0 0 0", "POINTS", "DATA"),
)


@dataclass(frozen=True)
class PcdTemplate(Template):
    """The lines of the header, and what they describe."""

    lines: tuple[str, ...] = _LINES  # up to DATA
    dtype: np.dtype | None = None  # padding, which the file names ``_``, has unique names
    names: tuple[tuple[str, str], ...] = ()  # in the records, and in the file
    width: int = 0
    height: int = 0  # 1 if the cloud is not organized
    data: str = "binary"  # or ascii, binary_compressed

    def subset(self) -> Template:
        """Some points of an organized cloud are no longer organized."""
        return replace(self, width=0, height=0)


def read(path: Path) -> PointCloud:
    """The points of a PCD file, in the order of its rows and with the NaN it may have."""
    data = path.read_bytes()
    template, points, start = _read_header(data)
    body, dtype = data[start:], template.dtype
    assert dtype is not None
    if template.data == "ascii":
        lines = [line for line in body.split(b"\n") if line.strip()]
        check_room(points, len(lines))
        _compare(path, "POINTS", points, len(lines))
        found = records.parse(lines[:points], dtype)
    elif template.data == "binary":
        check_room(points, len(body) // dtype.itemsize)
        _compare(path, "POINTS", points, len(body) // dtype.itemsize)
        found = np.frombuffer(body, dtype, points)
    else:
        found = _decompress(body, points, dtype)
    _compare(path, "WIDTH times HEIGHT", template.width * template.height, points)
    return records.to_cloud(found, template, _viewpoint(template))


def _compare(path: Path, what: str, promised: int, there: int) -> None:
    if promised != there:
        text = f"{path}: its header has {what} = {promised}, but it holds {there} points"
        warnings.warn(FileWarning(text), stacklevel=3)


def _viewpoint(template: PcdTemplate) -> np.ndarray | None:
    """Where the sensor was. The zeros that most writers put there mean a camera at the origin only
    in an organized cloud, which is the picture of one."""
    words = next((line.split() for line in template.lines if line.startswith("VIEWPOINT")), [])
    try:
        place = np.array(words[1:4], np.float64)
    except ValueError:
        return None
    known = len(place) == 3 and np.isfinite(place).all() and (place.any() or template.height > 1)
    return place if known else None


def _decompress(body: bytes, points: int, dtype: np.dtype) -> np.ndarray:
    """Compressed points are stored column after column."""
    packed, size = (int(n) for n in np.frombuffer(body[:8], "<u4", 2))
    if size != points * dtype.itemsize:
        raise ValueError(f"the header promises {points} points, but there are {size} bytes of them")
    if packed > len(body) - 8:
        raise ValueError(f"it promises {packed} compressed bytes, but has {len(body) - 8}")
    raw, at = _decompress_lzf(body[8 : 8 + packed], size), 0
    found = np.empty(points, dtype)
    for name in dtype.names or ():
        column = np.frombuffer(raw, dtype[name].base, found[name].size, at)
        found[name], at = column.reshape(found[name].shape), at + column.nbytes
    return found


def _read_header(data: bytes) -> tuple[PcdTemplate, int, int]:
    """The template, the number of points, and where they start."""
    lines, found, at = [], {}, 0
    while "DATA" not in found:
        end = data.find(b"\n", at, _LONGEST)
        if end < 0:
            raise ValueError("it has no PCD header that ends with DATA")
        lines.append(data[at:end].decode("latin-1").rstrip("\r"))
        at = end + 1
        word, *values = lines[-1].split() or ["#"]
        if not word.startswith("#"):
            found["FIELDS" if word == "COLUMNS" else word] = values
    names, sizes, kinds = (found.get(word, []) for word in ("FIELDS", "SIZE", "TYPE"))
    counts = found.get("COUNT", ["1"] * len(names))
    parts: dict[str, tuple[Any, ...]] = {}
    for shown, size, kind, count in zip(names, sizes, kinds, counts, strict=True):
        if f"{kind}{size}" not in "I1 I2 I4 I8 U1 U2 U4 U8 F2 F4 F8".split():
            raise ValueError(f"its field {shown!r} has type {kind} and size {size}")
        name, width = shown, _number([count])
        while name in parts:
            name += "_"
        if not 1 <= width <= 1 << 16:
            raise ValueError(f"its field {shown!r} has count {count}")
        parts[name] = (name, f"<{kind.lower()}{size}", (width,) if width > 1 else ())
    if not all(axis in parts and not parts[axis][2] for axis in AXES):
        raise ValueError(f"its fields {names} have no x, y and z")
    width, height = (_number(found.get(word, ["0"])) for word in ("WIDTH", "HEIGHT"))
    points = _number(found["POINTS"]) if "POINTS" in found else width * height
    if found["DATA"][:1] not in (["ascii"], ["binary"], ["binary_compressed"]):
        raise ValueError(f"its DATA is {found['DATA']}, not ascii, binary or binary_compressed")
    dtype, pairs = np.dtype(list(parts.values())), tuple(zip(parts, names, strict=True))
    template = PcdTemplate(tuple(lines), dtype, pairs, width, height, found["DATA"][0])
    return template, points, at


def _number(words: list[str]) -> int:
    if len(words) != 1 or not words[0].isdecimal() or not words[0].isascii() or len(words[0]) > 18:
        raise ValueError(f"its header counts {' '.join(words)[:40]!r}")
    return int(words[0])


def writer(
    file: IO[bytes], _path: Path, like: PointCloud, count: int, *, data: str | None = None
) -> RecordWriter:
    """A writer of PCD, ``data="ascii"`` or ``"binary"``; compressed files come out binary."""
    template = like.source if isinstance(like.source, PcdTemplate) else PcdTemplate()
    data = data or ("ascii" if template.data == "ascii" else "binary")
    if data not in ("ascii", "binary"):
        raise ValueError(f"data is ascii or binary, got {data!r}")
    had = dict(template.names)
    names = {**records.file_names(like.fields, _NORMALS, had), **had}
    floats = [name for name in like.fields if names[name] in _NORMALS and name not in had]
    like = like.with_fields(**{name: like.fields[name].astype("f4") for name in floats})
    dtype = records.plan(like, template.dtype).newbyteorder("<")
    fields = [(names.get(name, name), dtype[name]) for name in dtype.names or ()]
    records.check_storable("PCD", fields)
    organized = template.width * template.height == count
    width, height = (template.width, template.height) if organized else (count, 1)
    new = {
        "FIELDS": " ".join(name for name, _ in fields),
        "SIZE": " ".join(str(kind.base.itemsize) for _, kind in fields),
        "TYPE": " ".join(kind.base.kind.upper() for _, kind in fields),
        "COUNT": " ".join(str((kind.shape or (1,))[0]) for _, kind in fields),
        **{"WIDTH": width, "HEIGHT": height, "POINTS": count, "DATA": data},
    }
    for line in template.lines:
        word = (line.split() or [""])[0].replace("COLUMNS", "FIELDS")  # as old files have it
        line = f"{word} {new[word]}" if word in new else line
        file.write(f"{line}\n".encode("latin-1"))
    return RecordWriter(file, dtype, " " if data == "ascii" else None)


def _decompress_lzf(data: bytes, size: int) -> bytearray:
    """The ``size`` bytes of LZF data, which are literal runs and copies of what came before.

    A byte below 32 starts a run of one more literal bytes than its value. Any other has the length
    of a copy minus two in its upper three bits, 7 meaning that the next byte is added; its lower
    five bits and one more byte are the distance back minus one.
    """
    if size > 88 * (len(data) + 3):  # a copy takes three bytes for at most 264
        raise ValueError(f"{len(data)} compressed bytes cannot be {size} bytes")
    out, at = bytearray(), 0
    try:
        while at < len(data) and len(out) <= size:
            control, at = data[at], at + 1
            if control < 32:
                out += data[at : at + control + 1]
                at += control + 1
                continue
            length = (control >> 5) + 2
            if length == 9:
                length, at = length + data[at], at + 1
            back, at = ((control & 31) << 8) + data[at] + 1, at + 1
            if back > len(out):
                raise ValueError("the compressed bytes copy from before their beginning")
            piece = out[-back : len(out) - back + length]
            out += (piece * (length // back + 1))[:length]  # it may overlap what it writes
    except IndexError:
        raise ValueError("the compressed bytes end within a copy") from None
    if len(out) != size or at > len(data):
        raise ValueError(f"the compressed bytes are not {size} bytes")
    return out
