"""Files that are written piece by piece, so that a cloud need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from veckm.cloud import PointCloud
from veckm.io.atomic import Pending
from veckm.io.errors import FileError, guarded
from veckm.io.formats import find, streams
from veckm.io.las import LasTemplate
from veckm.io.source import Source


class Sink:
    """A file that is written in order; it appears under its name at :meth:`commit`.

    As a context manager it is committed at the end, and aborted if an exception was raised.

    Args:
        path: the file.
        like: a cloud with the fields, header and so on of the file.
        count: number of points that will be written.
        options: of the format.
    """

    def __init__(self, path: Path, like: PointCloud, count: int, **options: Any) -> None:
        kind = find(path, write=True)
        if kind.writer is None:
            raise FileError(path, f"cannot be written by range; {streams()} can")
        self.path, self.count = path, 0
        self._expected, self._action = set(like.fields), f"written as {kind.name}"
        self._pending = Pending(path)
        with self._aborting():
            self._writer = kind.writer(self._pending.file, path, like, count, **options)

    def append(self, cloud: PointCloud) -> None:
        """Write the next points, with the fields that the sink was created for."""
        with self._aborting():
            missing = self._expected - set(cloud.fields)
            if missing:
                raise ValueError(f"the cloud has no {sorted(missing)}")
            self._writer.append(cloud)
        self.count += len(cloud)

    def commit(self) -> None:
        """Move the complete file to its path; nothing is left if that fails."""
        with self._aborting():
            self._writer.finish()
        self._pending.commit()

    def abort(self) -> None:
        """Delete what was written."""
        self._pending.abort()

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        try:
            with guarded(self.path, self._action):
                yield
        except BaseException:
            self.abort()
            raise


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
    first = like.like()
    if find(path, write=True).extent and not isinstance(first.source, LasTemplate):
        fields = {name: np.zeros((2, *v.shape[1:]), v.dtype) for name, v in first.fields.items()}
        first = PointCloud(like.bounds(), fields=fields, crs=first.crs, source=first.source)
    new = {name: np.zeros(len(first), dtype) for name, dtype in (extra or {}).items()}
    return Sink(path, first.with_fields(**new), like.count)
