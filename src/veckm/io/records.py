"""Points as records of one structured dtype, which is what most formats store.

Names in the dtype are those of the cloud. A name that begins with a null character is the length
of the list that follows it, as PLY stores it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from veckm.cloud import NORMAL_NAMES, PointCloud, Template
from veckm.io.source import Source

AXES = ("x", "y", "z")
_LINES = 1 << 16  # that are made at a time
#: Kinds of numbers that most formats lack, and the next larger one that they have.
WIDER = {"b1": "u1", "f2": "f4"}


def file_names(
    fields: Iterable[str], normals: tuple[str, ...], keep: Iterable[str] = ()
) -> dict[str, str]:
    """Name in the cloud -> name in the file; ``normals`` are those of the format, and the names to
    ``keep`` those that the file had already."""
    names, kept = list(fields), set(keep)
    out = {name: name for name in names}
    if set(normals) <= set(names):
        return out
    for triple in NORMAL_NAMES:
        if set(triple) <= set(names) and not set(triple) & kept:
            out.update(zip(triple, normals, strict=True))
            break
    return out


def plan(like: PointCloud, had: np.dtype | None, wider: Mapping[str, str] = WIDER) -> np.dtype:
    """The records of a file to write: fields that it ``had`` first, in their order, then new ones;
    kinds of numbers that the format lacks are replaced by ``wider`` ones."""
    old = had.names or () if had is not None else ()
    single = like.pos.dtype == np.float32 and not like.origin.any()
    order = [name for name in old if name in AXES or name in like.fields]
    order += [name for name in (*AXES, *like.fields) if name not in order]
    parts: list[tuple[Any, ...]] = []
    for name in order:
        before = had[name].base if had is not None and name in old else None
        if name in AXES:
            parts.append((name, before if before is not None else "f4" if single else "f8"))
            continue
        values = like.fields[name]
        kind: Any = values.dtype.newbyteorder("=")
        kind = before if before is not None and before.newbyteorder("=") == kind else kind
        parts.append((name, wider.get(kind.str[1:], kind), values.shape[1:]))
    return np.dtype(parts)


def check_storable(format: str, fields: Iterable[tuple[str, np.dtype]]) -> None:
    """Raise for fields that are not numbers of up to 64 bits, or whose names are not words."""
    for name, dtype in fields:
        kind = dtype.base
        if kind.kind not in "iuf" or kind.itemsize > 8 or kind.str[1:] == "f2":
            raise ValueError(f"{format} cannot store field {name!r} of {kind}")
        if name.split() != [name] or not name.isascii():
            raise ValueError(f"{format} cannot have a field named {name!r}; rename it")


def fill(cloud: PointCloud, dtype: np.dtype) -> np.ndarray:  # (N,)
    """The points of a cloud as records; fields that the cloud lacks are zero."""
    records = np.zeros(len(cloud), dtype)
    xyz = cloud.xyz if cloud.origin.any() else cloud.pos
    for name in dtype.names or ():
        if name in AXES:
            records[name] = xyz[:, AXES.index(name)]
        elif name in cloud.fields:
            records[name] = cloud.fields[name]
        elif name.startswith("\0"):
            records[name] = dtype[name[1:]].shape[0]
    return records


def column_dtype(columns: Sequence[str], kind: np.dtype) -> np.dtype:
    """Records of columns of one kind; raises unless x, y and z are among them, each name once."""
    if not set(AXES) <= set(columns) or len(set(columns)) < len(columns):
        raise ValueError(f"columns must be different names with x, y and z, got {[*columns]}")
    return np.dtype([(name, kind) for name in columns])


def to_cloud(
    records: np.ndarray, template: Template | None = None, viewpoint: np.ndarray | None = None
) -> PointCloud:
    """The cloud of records that have x, y and z."""
    names = records.dtype.names or ()
    for name in names:
        if name.startswith("\0") and (records[name] != records.dtype[name[1:]].shape[0]).any():
            raise ValueError(f"lists of different lengths as in {name[1:]} cannot be a field")
    single = all(records.dtype[axis].newbyteorder("=") == np.float32 for axis in AXES)
    kind = np.dtype("f4" if single else "f8")
    if names == AXES and all(records.dtype[axis] == kind for axis in AXES):
        pos = records.view(kind).reshape(-1, 3)
    else:
        pos = np.empty((len(records), 3), kind)
        for column, axis in enumerate(AXES):
            pos[:, column] = records[axis]
    fields = {
        name: records[name].astype(records.dtype[name].base.newbyteorder("="), copy=False)
        for name in names
        if name not in AXES and not name.startswith("\0")
    }
    return PointCloud(pos, fields=fields, source=template, viewpoint=viewpoint)


def check_room(count: int, room: int) -> None:
    """Raise if a header promises more points than the file is long enough for."""
    if not 0 <= count <= room:
        raise ValueError(f"the header promises {count} points, but the file has room for {room}")


class RecordSource(Source):
    """Records at a fixed place of a file, by range."""

    viewpoint: np.ndarray | None = None  # where the sensor was, if it is known

    def __init__(
        self, path: Path, dtype: np.dtype, start: int, count: int, template: Template | None = None
    ) -> None:
        self.path, self.count = path, count
        self._dtype, self._start, self._template = dtype, start, template
        check_room(count, (path.stat().st_size - start) // dtype.itemsize)

    def _read(self, start: int, stop: int) -> PointCloud:
        at = self._start + start * self._dtype.itemsize
        found = np.fromfile(self.path, self._dtype, stop - start, offset=at)
        if len(found) < stop - start:
            raise ValueError(f"it ended after {start + len(found)} points")
        return to_cloud(found, self._template, self.viewpoint)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return self._dtype.names or ()


class RecordWriter:
    """Writes points as records in bytes, or as lines of text if there is a delimiter."""

    def __init__(
        self, file: IO[bytes], dtype: np.dtype, delimiter: str | None = None, tail: bytes = b""
    ) -> None:
        self._file, self._dtype, self._delimiter, self._tail = file, dtype, delimiter, tail

    def append(self, cloud: PointCloud) -> None:
        """Write the next points."""
        found = fill(cloud, self._dtype)
        if self._delimiter is not None:
            columns = [found[name] for name in self._dtype.names or ()]
            self._file.write(render(columns, self._delimiter))
        elif len(found):
            self._file.write(found.view(np.uint8).data)

    def finish(self) -> None:
        """Write what follows the points."""
        self._file.write(self._tail)


def parse(lines: Sequence[bytes], dtype: np.dtype, delimiter: str | None = None) -> np.ndarray:
    """Lines of numbers as records (N,) of ``dtype``, whose fields are the columns in order."""
    if not lines:
        return np.zeros(0, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy only warns about lines without numbers
        try:
            found = np.loadtxt(
                lines, dtype, comments=None, delimiter=delimiter, ndmin=1, encoding="latin-1"
            )
        except UserWarning as error:
            raise ValueError(error) from None
    if len(found) != len(lines):
        raise ValueError(f"{len(lines) - len(found)} of {len(lines)} lines are empty")
    return np.asarray(found)


def render(arrays: Sequence[np.ndarray], delimiter: str = " ") -> bytes:
    """(N,) and (N, k) arrays as lines, each number in the fewest digits that give it back."""
    columns = [c for array in arrays for c in (array.T if array.ndim == 2 else array[None])]
    parts = []
    for start in range(0, len(columns[0]), _LINES):
        words = [_words(column[start : start + _LINES]) for column in columns]
        parts.append("\n".join(map(delimiter.join, zip(*words, strict=True))))
    return "\n".join([*parts, ""]).encode("ascii") if parts else b""


def _words(column: np.ndarray) -> list[str]:
    if column.dtype.kind in "iub":
        return list(map(str, (column.view("u1") if column.dtype.kind == "b" else column).tolist()))
    if column.dtype.itemsize == 8:
        return list(map(repr, column.tolist()))
    words: list[str] = column.astype(str).tolist()
    return words
