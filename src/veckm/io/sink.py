"""Files that are written piece by piece, so that a cloud need not fit into memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veckm.cloud import PointCloud
from veckm.io.atomic import Pending
from veckm.io.errors import FileError, guarded
from veckm.io.formats import find, streams
from veckm.io.las import LasTemplate
from veckm.io.source import Source, Writer


class Sink:
    """A file that is written in order; it appears under its name at :meth:`commit`."""

    def __init__(self, path: Path, writer: Writer, pending: Pending, expected: set[str]) -> None:
        self.path, self.count = path, 0
        self._writer, self._pending, self._expected = writer, pending, expected

    def append(self, cloud: PointCloud) -> None:
        """Write the next points, with the fields that the sink was created for."""
        missing = self._expected - set(cloud.fields)
        if missing:
            raise ValueError(f"{self.path}: the cloud has no {sorted(missing)}")
        with guarded(self.path, "written"):
            self._writer.append(cloud)
        self.count += len(cloud)

    def commit(self) -> None:
        """Move the complete file to its path; nothing is left if that fails."""
        try:
            with guarded(self.path, "written"):
                self._writer.finish()
        except BaseException:
            self.abort()
            raise
        self._pending.commit()

    def abort(self) -> None:
        """Delete what was written."""
        self._pending.abort()


def create_sink(
    path: str | Path, like: Source, extra: Mapping[str, np.dtype] | None = None
) -> Sink:
    """A file in the format of its name, with the fields of ``like`` and ``extra`` ones.

    It must get as many points as ``like`` has.

    Args:
        path: the file to write; it does not exist before :meth:`Sink.commit`.
        like: the source whose fields, header, scale and so on are kept.
        extra: names and dtypes of additional fields; normals are ``nx ny nz`` and are renamed as
            the format names them.
    """
    path = Path(path)
    kind = find(path, write=True)
    if kind.writer is None:
        raise FileError(path, f"cannot be written by range; {streams()} can")
    first = like.like()
    if kind.extent and not isinstance(first.source, LasTemplate):
        fields = {name: np.zeros((2, *v.shape[1:]), v.dtype) for name, v in first.fields.items()}
        first = PointCloud(like.bounds(), fields=fields, crs=first.crs, source=first.source)
    new = {name: np.zeros(len(first), dtype) for name, dtype in (extra or {}).items()}
    first = first.with_fields(**new)
    pending = Pending(path)
    try:
        with guarded(path, f"written as {kind.name}"):
            writer = kind.writer(pending.file, path, first, like.count)
    except BaseException:
        pending.abort()
        raise
    return Sink(path, writer, pending, set(first.fields))
