"""Text with one point per line: XYZ, TXT, ASC, CSV and PTS, with or without a line of names."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from veckm.cloud import COLOR_NAMES, NORMAL_NAMES, PointCloud, Template
from veckm.io.errors import FileWarning
from veckm.io.records import AXES, RecordWriter, column_dtype, parse, plan

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|nan|inf(inity)?)", re.I)
_INTEGER = re.compile(r"[+-]?\d{1,15}")
_COMMENTS = ("#", "//", ";", "%")
_SAMPLE = 1000
_TRIPLES = (AXES, ("easting", "northing", "elevation"), ("x_m", "y_m", "z_m"))


@dataclass(frozen=True)
class TextTemplate(Template):
    """The layout of a file."""

    delimiter: str | None = None  # None for white space
    head: tuple[str, ...] = ()  # lines before the points, but for the names and the count of PTS
    names: tuple[str, ...] = ()  # of the columns; the coordinates are x, y and z
    prefix: str | None = None  # of the line of names, as a comment sign; None if there is none
    shown: tuple[str, ...] = ()  # the names as in that line
    counted: bool = False  # whether the number of points comes first, as in PTS


def read(path: Path, columns: tuple[str, ...] = ()) -> PointCloud:
    """The points of a text file.

    Comments are kept; the last one before the points, or a line of words, may name the columns.
    Without names, three columns after the coordinates are normals if they have unit length, and
    colors if they are integers up to 255. `columns` names them all instead.
    """
    data = path.read_bytes()
    if b"\0" in data[:4096]:
        raise ValueError("it is not text")
    lines = data.rstrip().split(b"\n")
    head, count, start = _read_head(lines, path.suffix.lower() == ".pts")
    body = [line for line in lines[start:] if line.strip()]
    if not body and count is None:
        raise ValueError("it has no points")
    if count is not None and count > len(body):
        raise ValueError(f"the header promises {count} points, but the file has {len(body)} lines")
    if count is not None and count < len(body):
        said = f"the header promises {count} points, but {len(body)} follow; all are read"
        warnings.warn(FileWarning(f"{path}: {said}"), stacklevel=2)
    first = body[0].decode("latin-1") if body else "0 0 0"
    delimiter = _delimiter(first)
    words = _split(first)
    if len(words) < 3:
        raise ValueError(f"its lines have {len(words)} numbers, a point has three")
    table = parse(body, np.dtype([(f"c{k}", "f8") for k in range(len(words))]), delimiter)
    table_columns = [table[name] for name in table.dtype.names or ()]
    prefix, shown, kept = _find_names(head, len(words))
    if columns and len(columns) != len(words):
        raise ValueError(f"it has {len(words)} columns, but {len(columns)} names were given")
    if columns:
        names = column_dtype(columns, np.dtype("f8")).names or ()
    else:
        names = _axis_names(shown) if shown else (*AXES, *_guess(path, table_columns))
    fields = {
        name: _as_integers(column, word)
        for name, column, word in zip(names, table_columns, words, strict=True)
        if name not in AXES
    }
    pos = np.stack([table_columns[names.index(axis)] for axis in AXES], axis=-1)
    template = TextTemplate(delimiter, tuple(kept), names, prefix, shown, count is not None)
    return PointCloud(pos, fields=fields, source=template)


def _read_head(lines: list[bytes], pts: bool) -> tuple[list[str], int | None, int]:
    """Lines before the first number, the count of PTS, and where the points start."""
    head: list[str] = []
    count: int | None = None
    for at, raw in enumerate(lines[:_SAMPLE]):
        line = raw.decode("latin-1").strip()
        words = _split(line) if line else []
        if words and all(_NUMBER.fullmatch(word) for word in words):
            if count is None and len(words) == 1 and pts:
                if not words[0].isdigit() or len(words[0]) > 15:
                    raise ValueError(f"its first line is {line[:40]!r}, not a number of points")
                count = int(words[0])
                continue
            return head, count, at
        if count is not None or (head and not head[-1].startswith(_COMMENTS) and line):
            raise ValueError(f"line {at + 1} is {line[:60]!r}, which are not numbers")
        head.append(line)
    if len(lines) > _SAMPLE:
        raise ValueError(f"its first {_SAMPLE} lines have no point")
    return head, count, len(lines)


def _delimiter(line: str) -> str | None:
    return next((sign for sign in (",", ";", "\t") if sign in line.strip()), None)


def _split(line: str) -> list[str]:
    return [word.strip() for word in line.strip().split(_delimiter(line))]


def _find_names(head: list[str], width: int) -> tuple[str | None, tuple[str, ...], list[str]]:
    """The prefix and the names of the line of names before the points, and the other lines."""
    for at in range(len(head) - 1, -1, -1):
        sign = next((s for s in _COMMENTS if head[at].startswith(s)), "")
        text = head[at][len(sign) :]
        words = tuple(word.strip("\"' ") for word in _split(text))
        space = text[: len(text) - len(text.lstrip())]
        if len(words) == width and all(words) and len(set(words)) == width:
            return sign + space, words, head[:at] + head[at + 1 :]
        if not sign and text:
            raise ValueError(f"its lines have {width} numbers, but it names {len(words)} columns")
    return None, (), head


def _axis_names(shown: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the columns, the coordinates renamed to x, y and z."""
    names, lower = list(shown), [name.lower() for name in shown]
    triple = next((t for t in _TRIPLES if all(lower.count(axis) == 1 for axis in t)), None)
    for k, axis in enumerate(AXES):
        names[lower.index(triple[k]) if triple else k] = axis
    if len(set(names)) != len(names):
        raise ValueError(f"it has two columns of the same name in {names}")
    return tuple(names)


def _guess(path: Path, columns: list[np.ndarray]) -> list[str]:
    """Names of the columns after the coordinates in a file without names."""
    names: list[str] = []
    left = columns[3:]
    if path.suffix.lower() == ".pts" and len(left) in (1, 4):
        names, left = ["intensity"], left[1:]
    while len(left) >= 3:
        triple = np.stack([column[:_SAMPLE] for column in left[:3]])
        if bool((np.abs(np.linalg.norm(triple, axis=0) - 1) < 1e-2).all()):
            found = NORMAL_NAMES[0]
        elif bool(((triple >= 0) & (triple <= 255) & (triple == np.floor(triple))).all()):
            found = COLOR_NAMES[0]
        else:
            break
        if found[0] in names:
            break
        names, left = [*names, *found], left[3:]
    return names + [f"column_{k}" for k in range(4 + len(names), len(columns) + 1)]


def _as_integers(column: np.ndarray, word: str) -> np.ndarray:
    """Integers where the file writes them without a decimal point."""
    if _INTEGER.fullmatch(word) is None or not np.isfinite(column).all():
        return column
    if bool((column != np.floor(column)).any()) or bool((np.abs(column) > 2.0**53).any()):
        return column
    return column.astype(np.int64)


def writer(file: IO[bytes], path: Path, like: PointCloud, count: int) -> RecordWriter:
    """A writer of lines, each number with the fewest digits that give it back."""
    for name, values in like.fields.items():
        if values.dtype.kind not in "iufb":
            raise ValueError(f"field {name!r} of {values.dtype} is not a number")
        if set(name) & set(",;\t\n\r\"' ") or not name or not name.isprintable():
            raise ValueError(f"a column cannot be named {name!r}; rename it")
    suffix = path.suffix.lower()
    template = like.source if isinstance(like.source, TextTemplate) else _new(suffix)
    dtype = plan(like, np.dtype([(name, "f8") for name in template.names]))
    delimiter, head = template.delimiter or " ", list(template.head)
    prefix = template.prefix
    if prefix is None and suffix != ".pts" and not _guessed(dtype.names or (), template.names):
        prefix = "# "  # or nobody could tell what the new columns are
    if prefix is not None:
        had = dict(zip(template.names, template.shown, strict=False))
        shown: list[str] = []
        for name in dtype.names or ():
            width = dtype[name].shape
            shown += [f"{name}_{k}" for k in range(width[0])] if width else [had.get(name, name)]
        head.append(prefix + delimiter.join(shown))
    if suffix == ".pts" and template.counted:
        head.append(str(count))
    file.write("".join(f"{line}\n" for line in head).encode("latin-1"))
    return RecordWriter(file, dtype, delimiter)


def _guessed(names: tuple[str, ...], had: tuple[str, ...]) -> bool:
    """Whether columns need no names: as they were in a file without, or found by their values."""
    return names == had or names[3:] in ((), NORMAL_NAMES[0], COLOR_NAMES[0])


def _new(suffix: str) -> TextTemplate:
    """The usual layout of a suffix."""
    if suffix == ".pts":
        return TextTemplate(counted=True)
    if suffix == ".xyz":
        return TextTemplate()
    return TextTemplate("," if suffix == ".csv" else None, prefix="")
