"""Text, a point a line: XYZ, TXT, ASC, CSV and PTS, with or without a line of names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from veckm.cloud import COLOR_NAMES, NORMAL_NAMES, PointCloud, Template
from veckm.io import rows
from veckm.io.errors import FileError

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|nan|inf(inity)?)", re.I)
_WHOLE = re.compile(r"[+-]?\d{1,15}")
_COMMENTS = ("#", "//", ";", "%")
_SAMPLE = 1000
_NAMED = (".csv", ".txt", ".asc")


@dataclass(frozen=True)
class TextTemplate(Template):
    """How the lines of a file are made.

    Attributes:
        delimiter: between numbers; None for white space.
        head: lines before the points, without that of the names and the count of PTS.
        names: columns in order as the file calls them; coordinates are x, y and z here.
        header: how the line of names begins, with its names; None where there is none.
        counted: whether the number of points comes first, as in PTS.
    """

    delimiter: str | None
    head: tuple[str, ...]
    names: tuple[str, ...]
    header: tuple[str, tuple[str, ...]] | None
    counted: bool


def read(path: Path) -> PointCloud:
    """The points of a file of text.

    Lines that start with a sign for comments are kept; the last of them before the points, or a
    line of words, may name the columns. Without names three columns after the coordinates are
    normals if they have length one, colors if they are whole numbers up to 255.
    """
    data = path.read_bytes()
    if b"\0" in data[:4096]:
        raise ValueError("it is not text")
    lines = data.split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    head, counted, start = _head(path, lines)
    body = [line for line in lines[start:] if line.strip()]
    if not body and counted is None:
        raise FileError(path, "has no points")
    if counted is not None and counted > len(body):
        raise ValueError(f"it says {counted} points, but has {len(body)} lines")
    first = body[0].decode("latin-1") if body else "0 0 0"
    delimiter = _delimiter(first)
    words = _split(first, delimiter)
    if len(words) < 3:
        raise ValueError(f"its lines have {len(words)} numbers, a point has three")
    table = rows.parse(body, np.dtype([(f"c{k}", "f8") for k in range(len(words))]), delimiter)
    columns = [table[f"c{k}"] for k in range(len(words))]
    header, kept = _header(head, len(words))
    names = _names(path, header, columns)
    fields = {
        name: _shortest(column, word)
        for name, column, word in zip(names, columns, words, strict=True)
        if name not in ("x", "y", "z")
    }
    pos = np.stack([columns[names.index(axis)] for axis in "xyz"], axis=-1)
    template = TextTemplate(delimiter, tuple(kept), names, header, counted is not None)
    return PointCloud(pos, fields=fields, source=template)


def _head(path: Path, lines: list[bytes]) -> tuple[list[str], int | None, int]:
    """Lines before the first number, the count of PTS, and where the points start."""
    head: list[str] = []
    counted: int | None = None
    for at, raw in enumerate(lines[:_SAMPLE]):
        line = raw.decode("latin-1").strip()
        words = _split(line, _delimiter(line)) if line else []
        if words and all(_NUMBER.fullmatch(word) for word in words):
            if counted is None and len(words) == 1 and path.suffix.lower() == ".pts":
                if not _WHOLE.fullmatch(words[0]) or int(words[0]) < 0:
                    raise ValueError(f"its first line is {line[:40]!r}, not a number of points")
                counted = int(words[0])
                continue
            return head, counted, at
        if counted is not None or (head and not head[-1].startswith(_COMMENTS) and line):
            raise ValueError(f"line {at + 1} is {line[:60]!r}, which are not numbers")
        head.append(line)
    if len(lines) > _SAMPLE:
        raise ValueError(f"its first {_SAMPLE} lines have no point")
    return head, counted, len(lines)


def _delimiter(line: str) -> str | None:
    return next((sign for sign in (",", ";", "\t") if sign in line.strip()), None)


def _split(line: str, delimiter: str | None) -> list[str]:
    return [word.strip() for word in line.strip().split(delimiter)]


def _header(head: list[str], width: int) -> tuple[tuple[str, tuple[str, ...]] | None, list[str]]:
    """The line of names among those before the points, and the others."""
    for at in range(len(head) - 1, -1, -1):
        sign = next((s for s in _COMMENTS if head[at].startswith(s)), "")
        text = head[at][len(sign) :]
        words = tuple(word.strip("\"' ") for word in _split(text, _delimiter(text)))
        space = text[: len(text) - len(text.lstrip())]
        if len(words) == width and all(words) and len(set(words)) == width:
            return (sign + space, words), head[:at] + head[at + 1 :]
        if not sign and text:
            raise ValueError(f"its lines have {width} numbers, but it names {len(words)} columns")
    return None, head


def _names(
    path: Path, header: tuple[str, tuple[str, ...]] | None, columns: list[np.ndarray]
) -> tuple[str, ...]:
    """Names of the columns; x, y and z are among them."""
    if header is None:
        return ("x", "y", "z", *_guessed(path, columns))
    names = list(header[1])
    lower = [name.lower() for name in names]
    for triple in (("x", "y", "z"), ("easting", "northing", "elevation"), ("x_m", "y_m", "z_m")):
        if all(lower.count(axis) == 1 for axis in triple):
            for axis, name in zip("xyz", triple, strict=True):
                names[lower.index(name)] = axis
            break
    else:
        names[:3] = ["x", "y", "z"]
    if len(set(names)) != len(names):
        raise ValueError(f"it has two columns of the same name in {names}")
    return tuple(names)


def _guessed(path: Path, columns: list[np.ndarray]) -> list[str]:
    """Names of the columns after the coordinates in a file without names."""
    rest, names = columns[3:], [f"column_{k}" for k in range(4, len(columns) + 1)]
    if path.suffix.lower() == ".pts" and len(rest) in (1, 4):
        names[0], rest = "intensity", rest[1:]
    at = len(names) - len(rest)
    while len(rest) >= 3:
        triple = np.stack([column[:_SAMPLE] for column in rest[:3]])
        if bool((np.abs(np.linalg.norm(triple, axis=0) - 1) < 1e-2).all()):
            found = NORMAL_NAMES[0]
        elif bool(((triple >= 0) & (triple <= 255) & (triple == np.floor(triple))).all()):
            found = COLOR_NAMES[0]
        else:
            break
        if found[0] in names:
            break
        names[at : at + 3], rest, at = found, rest[3:], at + 3
    return names


def _shortest(column: np.ndarray, word: str) -> np.ndarray:
    """Whole numbers as such where the file writes them without a point."""
    if _WHOLE.fullmatch(word) is None or not np.isfinite(column).all():
        return column
    if bool((column != np.floor(column)).any()) or bool((np.abs(column) > 2.0**53).any()):
        return column
    return column.astype(np.int64)


class TextWriter:
    """Writes lines of numbers, each with the fewest digits that give it back."""

    def __init__(self, file: IO[bytes], path: Path, like: PointCloud, count: int) -> None:
        self._file, self._path, self._left = file, path, count
        template = like.source if isinstance(like.source, TextTemplate) else None
        suffix = path.suffix.lower()
        self._order = _ordered(like, template)
        if template is None:
            self._delimiter = "," if suffix == ".csv" else " "
        else:
            self._delimiter = template.delimiter or " "
        self._check(like)
        shown = _shown(like, self._order, template)
        head = list(template.head) if template else []
        if template is None and suffix != ".pts":
            usual = [[], list(NORMAL_NAMES[0]), list(COLOR_NAMES[0])]
            if suffix in _NAMED:
                head.append(self._delimiter.join(shown))
            elif list(like.fields) not in usual:
                head.append("# " + self._delimiter.join(shown))
        elif template is not None and template.header is not None:
            head.append(template.header[0] + self._delimiter.join(shown))
        if suffix == ".pts" and (template is None or template.counted):
            head.append(str(count))
        file.write("".join(f"{line}\n" for line in head).encode("latin-1"))

    def _check(self, like: PointCloud) -> None:
        for name, values in like.fields.items():
            if values.dtype.kind not in "iufb":
                raise FileError(self._path, f"field {name!r} of {values.dtype} is no number")
            if set(name) & set(",;\t\n\r\"' ") or not name or not name.isprintable():
                raise FileError(self._path, f"a column cannot be called {name!r}; rename it")

    def append(self, cloud: PointCloud) -> None:
        """The next points."""
        self._left -= len(cloud)
        xyz = cloud.xyz if cloud.origin.any() else cloud.pos
        arrays = [
            xyz[:, "xyz".index(name)] if name in ("x", "y", "z") else cloud.fields[name]
            for name in self._order
        ]
        self._file.write(rows.render(rows.flatten(arrays), self._delimiter))

    def finish(self) -> None:
        """Nothing comes after the points."""
        if self._left:
            raise ValueError(f"{self._path}: got {self._left} points less than its header says")


def _ordered(like: PointCloud, template: TextTemplate | None) -> list[str]:
    axes = ("x", "y", "z")
    order = [n for n in (template.names if template else ()) if n in axes or n in like.fields]
    return order + [name for name in (*axes, *like.fields) if name not in order]


def _shown(like: PointCloud, order: list[str], template: TextTemplate | None) -> list[str]:
    """The names as the file had them; fields of several columns are numbered."""
    had = {}
    if template is not None and template.header is not None:
        had = dict(zip(template.names, template.header[1], strict=True))
    out: list[str] = []
    for name in order:
        values = like.fields.get(name)
        if values is not None and values.ndim == 2:
            out += [f"{name}_{k}" for k in range(values.shape[1])]
        else:
            out.append(had.get(name, name))
    return out
