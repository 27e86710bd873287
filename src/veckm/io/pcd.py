"""PCD, the files of the Point Cloud Library: text, binary and compressed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from veckm.cloud import PointCloud, Template
from veckm.io import lzf, rows
from veckm.io.errors import FileError
from veckm.io.names import renamed

_NORMALS = ("normal_x", "normal_y", "normal_z")
_DATA = ("ascii", "binary", "binary_compressed")
_KINDS = {"I": "i", "U": "u", "F": "f"}
_LONGEST = 1 << 20  # bytes of a header, which is a page of text
_LINES = (
    "# .PCD v0.7 - Point Cloud Data file format",
    *("VERSION 0.7", "FIELDS", "SIZE", "TYPE", "COUNT", "WIDTH", "HEIGHT"),
    *("VIEWPOINT 0 0 0 1 0 0 0", "POINTS", "DATA"),
)


@dataclass(frozen=True)
class Column:
    """A field of a PCD file."""

    name: str  # unique; padding is called _ as often as it comes
    shown: str  # as the file has it
    kind: str
    count: int


@dataclass(frozen=True)
class PcdTemplate(Template):
    """The lines of the header and what they say.

    Attributes:
        lines: as in the file, up to DATA.
        columns: the fields in order, coordinates included.
        width, height: of an organized cloud; otherwise the height is 1.
        data: one of ascii, binary, binary_compressed.
    """

    lines: tuple[str, ...]
    columns: tuple[Column, ...]
    width: int
    height: int
    data: str

    def subset(self) -> Template:
        """Some rows of an image are no image."""
        return replace(self, width=0, height=0)

    @property
    def dtype(self) -> np.dtype:
        """Records of the points."""
        return _dtype(self.columns)


def _dtype(columns: tuple[Column, ...]) -> np.dtype:
    return np.dtype(
        [
            (c.name, "<" + c.kind) if c.count == 1 else (c.name, "<" + c.kind, (c.count,))
            for c in columns
        ]
    )


def read(path: Path) -> PointCloud:
    """The points of a PCD file, in the order of its rows and with the NaN it may have."""
    data = path.read_bytes()
    template, points, start = _header(data)
    dtype = template.dtype
    body = data[start:]
    if template.data == "ascii":
        records = _text(body, points, dtype)
    elif template.data == "binary":
        _check_room(points, len(body) // dtype.itemsize)
        records = np.frombuffer(body, dtype, points)
    else:
        records = _unpacked(body, points, template.columns)
    wide = any(dtype[axis] != np.dtype("<f4") for axis in "xyz")
    pos = np.stack([records[axis] for axis in "xyz"], axis=-1).astype("f8" if wide else "f4")
    fields = {c.name: records[c.name] for c in template.columns if c.name not in ("x", "y", "z")}
    return PointCloud(pos, fields=fields, source=template)


def _check_room(points: int, room: int) -> None:
    if points > room:
        raise ValueError(f"it says {points} points, but has room for {room}")


def _text(body: bytes, points: int, dtype: np.dtype) -> np.ndarray:
    _check_room(points, (len(body) + 1) // 2)
    lines = [line for line in body.split(b"\n") if line.strip()]
    _check_room(points, len(lines))
    return rows.parse(lines[:points], dtype)


def _unpacked(body: bytes, points: int, columns: tuple[Column, ...]) -> np.ndarray:
    """Compressed points are column after column."""
    if len(body) < 8:
        raise ValueError("it ends before the lengths of its compressed points")
    packed, size = (int(n) for n in np.frombuffer(body, "<u4", 2))
    dtype = _dtype(columns)
    if size != points * dtype.itemsize:
        raise ValueError(f"it says {points} points, but has {size} bytes of them")
    if packed > len(body) - 8:
        raise ValueError(f"it says {packed} compressed bytes, but has {len(body) - 8}")
    raw = lzf.decompress(body[8 : 8 + packed], size)
    records = np.empty(points, dtype)
    at = 0
    for column in columns:
        kind = np.dtype("<" + column.kind)
        found = np.frombuffer(raw, kind, points * column.count, at)
        records[column.name] = found if column.count == 1 else found.reshape(points, column.count)
        at += found.nbytes
    return records


def _header(data: bytes) -> tuple[PcdTemplate, int, int]:
    """What the header says, the number of points, and where they start."""
    lines, said, at = [], {}, 0
    while "DATA" not in said:
        end = data.find(b"\n", at, _LONGEST)
        if end < 0:
            raise ValueError("it has no PCD header that ends with DATA")
        line = data[at:end].decode("latin-1").rstrip("\r")
        at = end + 1
        lines.append(line)
        words = line.split()
        if words and not words[0].startswith("#"):
            said["FIELDS" if words[0] == "COLUMNS" else words[0]] = words[1:]
    missing = [word for word in ("FIELDS", "SIZE", "TYPE") if word not in said]
    if missing:
        raise ValueError(f"its header has no {' '.join(missing)}")
    columns = _columns(said["FIELDS"], said["SIZE"], said["TYPE"], said.get("COUNT"))
    width, height = (_whole(said.get(word, ["0"])) for word in ("WIDTH", "HEIGHT"))
    points = _whole(said["POINTS"]) if "POINTS" in said else width * height
    if said["DATA"][:1] not in ([kind] for kind in _DATA):
        raise ValueError(f"its DATA is {said['DATA']}; one of {_DATA} is supported")
    return PcdTemplate(tuple(lines), columns, width, height, said["DATA"][0]), points, at


def _whole(words: list[str]) -> int:
    if len(words) != 1 or not words[0].isdecimal() or not words[0].isascii() or len(words[0]) > 18:
        raise ValueError(f"its header counts {' '.join(words)[:40]!r} points")
    return int(words[0])


def _columns(
    names: list[str], sizes: list[str], kinds: list[str], counts: list[str] | None
) -> tuple[Column, ...]:
    counts = counts or ["1"] * len(names)
    if not len(names) == len(sizes) == len(kinds) == len(counts):
        raise ValueError("its FIELDS, SIZE, TYPE and COUNT are not equally many")
    found: list[Column] = []
    taken: set[str] = set()
    for shown, size, kind, count in zip(names, sizes, kinds, counts, strict=True):
        if kind not in _KINDS or size not in "1248" or f"{kind}{size}" == "F1":
            raise ValueError(f"its field {shown!r} has type {kind} and size {size}")
        number = _whole([count])
        if not 1 <= number <= 1 << 16:
            raise ValueError(f"its field {shown!r} has count {count}")
        name = shown
        while name in taken:
            name += "_"
        taken.add(name)
        found.append(Column(name, shown, _KINDS[kind] + size, number))
    singles = {column.name for column in found if column.count == 1}
    if not {"x", "y", "z"} <= singles:
        raise ValueError(f"its fields {names} have no x, y and z")
    return tuple(found)


def write(file: IO[bytes], path: Path, cloud: PointCloud, *, data: str | None = None) -> None:
    """A PCD file, by default as it came or binary.

    Args:
        file: where to.
        path: its name, for errors.
        cloud: the points.
        data: ascii, binary or binary_compressed.
    """
    template = cloud.source if isinstance(cloud.source, PcdTemplate) else None
    data = data or (template.data if template else "binary")
    if data not in _DATA:
        raise ValueError(f"data is one of {' '.join(_DATA)}, got {data!r}")
    columns, places = _plan(path, cloud, template)
    records = np.empty(len(cloud), _dtype(columns))
    xyz = cloud.xyz if cloud.origin.any() else cloud.pos
    for column, place in zip(columns, places, strict=True):
        axis = "xyz".find(place)
        records[column.name] = xyz[:, axis] if axis >= 0 else cloud.fields[place]
    file.write(_encode_header(columns, template, len(cloud), data))
    parts = [records[column.name] for column in columns]
    if data == "ascii":
        file.write(rows.render(rows.flatten(parts)))
    elif data == "binary":
        file.write(records.tobytes())
    else:
        raw = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
        packed = lzf.compress(raw)
        if len(raw) >= 2**32:
            raise FileError(path, "compressed PCD has room for 4 GiB of points; use binary")
        file.write(np.array([len(packed), len(raw)], "<u4").tobytes() + packed)


def _plan(
    path: Path, cloud: PointCloud, template: PcdTemplate | None
) -> tuple[tuple[Column, ...], list[str]]:
    """Columns of the file, and the name in the cloud that fills each."""
    had = {column.name: column for column in template.columns} if template else {}
    names = renamed(cloud.fields, _NORMALS, had)
    axes = ("x", "y", "z")
    kind = "f4" if cloud.pos.dtype == np.float32 and not cloud.origin.any() else "f8"
    order = [name for name in had if name in axes or name in cloud.fields]
    order += [name for name in (*axes, *cloud.fields) if name not in had]
    columns = []
    for name in order:
        if name in axes:
            columns.append(had.get(name, Column(name, name, kind, 1)))
            continue
        values = cloud.fields[name]
        found = _kind(path, name, values)
        old = had.get(name)
        shown = old.shown if old else names[name]
        if shown.split() != [shown] or not shown.isascii():
            raise FileError(path, f"PCD cannot have a field called {shown!r}; rename it")
        if shown in _NORMALS and old is None:
            found = "f4"  # as the library has them
        width = values.shape[1] if values.ndim == 2 else 1
        columns.append(Column(shown if not old else name, shown, found, width))
    return tuple(columns), order


def _kind(path: Path, name: str, values: np.ndarray) -> str:
    kind = values.dtype.newbyteorder("=").str[1:]
    kind = {"b1": "u1", "f2": "f4"}.get(kind, kind)
    if kind[:1] not in "iuf" or kind[1:] not in ("1", "2", "4", "8"):
        raise FileError(path, f"PCD has no numbers like field {name!r}, {values.dtype}")
    return kind


def _encode_header(
    columns: tuple[Column, ...], template: PcdTemplate | None, points: int, data: str
) -> bytes:
    """The lines of the file that came, or the usual ones, with what has changed."""
    shape = (points, 1)
    if template and template.width * template.height == points:
        shape = (template.width, template.height)
    new: dict[str, list[Any]] = {
        "FIELDS": [column.shown for column in columns],
        "SIZE": [column.kind[1:] for column in columns],
        "TYPE": [column.kind[:1].upper() for column in columns],
        "COUNT": [column.count for column in columns],
        "WIDTH": [shape[0]],
        "HEIGHT": [shape[1]],
        "POINTS": [points],
        "DATA": [data],
    }
    new["COLUMNS"] = new["FIELDS"]
    out = []
    for line in template.lines if template else _LINES:
        word = line.split()[0] if line.split() else ""
        out.append(" ".join([word, *map(str, new[word])]) if word in new else line)
    return ("\n".join(out) + "\n").encode("latin-1")
