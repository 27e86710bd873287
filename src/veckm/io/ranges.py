"""Sources and sinks by range: clouds larger than memory, in and out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veckm.cloud import PointCloud
from veckm.io.errors import FileError, NotByRange
from veckm.io.formats import find, guarded, streams
from veckm.io.las_header import LasTemplate
from veckm.io.source import Source, Writer
from veckm.io.whole import Pending

__all__ = ["Sink", "Source", "create_sink", "open_source", "source_if_by_range"]


def open_source(path: str | Path) -> Source:
    """A file to be read by range: LAS, LAZ, COPC, binary PLY, NPY, KITTI's .bin.

    Args:
        path: the file.
    """
    path = Path(path)
    kind = find(path)
    if kind.source is None:
        raise NotByRange(path, f"cannot be read by range; {streams()} can, convert it to one first")
    with guarded(path, kind):
        return kind.source(path)


def source_if_by_range(path: str | Path) -> Source | None:
    """The same, or None for a file that can only be read as a whole."""
    try:
        return open_source(path)
    except NotByRange:
        return None


class Sink:
    """A file that grows in order; :meth:`commit` puts it in its place, whole."""

    def __init__(self, path: Path, writer: Writer, pending: Pending, expected: set[str]) -> None:
        self.path, self.count = path, 0
        self._writer, self._pending, self._expected = writer, pending, expected

    def append(self, cloud: PointCloud) -> None:
        """The next points, with the fields that the sink was made for."""
        missing = self._expected - set(cloud.fields)
        if missing:
            raise ValueError(f"{self.path}: the cloud has no {sorted(missing)}")
        self._writer.append(cloud)
        self.count += len(cloud)

    def commit(self) -> None:
        """On the disk first, then under its name in one step; nothing is left if it fails."""
        try:
            self._writer.finish()
        except BaseException:
            self.abort()
            raise
        self._pending.commit()

    def abort(self) -> None:
        """Throw away what was written."""
        self._pending.abort()


def create_sink(
    path: str | Path, like: Source, extra: Mapping[str, np.dtype] | None = None
) -> Sink:
    """A file in the format of its name, with the fields of ``like`` and ``extra`` ones.

    It must get as many points as ``like`` has.

    Args:
        path: the file to write; nothing is there under this name before :meth:`Sink.commit`.
        like: the source whose fields, header, scale and so on are kept.
        extra: names and dtypes of the fields that come in addition; normals are ``nx ny nz`` and
            take the names of the format.
    """
    path = Path(path)
    kind = find(path, write=True)
    if kind.writer is None:
        raise FileError(path, f"cannot be written by range; {streams()} can")
    first = _first(like, kind.extent)
    if extra:
        new = {name: np.zeros(len(first), dtype) for name, dtype in extra.items()}
        first = first.with_fields(**new)
    pending = Pending(path)
    try:
        with guarded(path, kind, "written"):
            writer = kind.writer(pending.file, path, first, like.count)
    except BaseException:
        pending.abort()
        raise
    return Sink(path, writer, pending, set(first.fields))


def _first(like: Source, extent: bool) -> PointCloud:
    """What the fields are; also the corners of the cloud where a new header must know them."""
    first = like.like()
    if not extent or isinstance(first.source, LasTemplate):
        return first
    fields = {name: np.zeros((2, *v.shape[1:]), v.dtype) for name, v in first.fields.items()}
    return PointCloud(like.bounds(), fields=fields, crs=first.crs, source=first.source)
