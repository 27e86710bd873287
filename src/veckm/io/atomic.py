"""Atomic writes: a file is written beside its place and moved there when it is complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


class Pending:
    """A temporary file: :meth:`commit` moves it to its path, :meth:`abort` deletes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._target = path.resolve()  # through a link, not over it
        handle, self.name = tempfile.mkstemp(
            prefix=f".{self._target.name}.", suffix=".part", dir=self._target.parent
        )
        self.file: IO[bytes] = os.fdopen(handle, "w+b")

    def commit(self) -> None:
        """Flush to disk, then rename in one step."""
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            replace(Path(self.name), self._target)
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Delete what was written."""
        self.file.close()
        Path(self.name).unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that appears at ``path`` on exit, unless an exception was raised."""
    pending = Pending(path)
    try:
        yield pending.file
    except BaseException:
        pending.abort()
        raise
    pending.commit()


def replace(part: Path, target: Path) -> None:
    """Move a complete file over another in one step, with the permissions of that."""
    os.chmod(part, _mode(target))
    os.replace(part, target)
    with suppress(OSError):  # the new name, too, is on disk where the system can sync a folder
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _mode(path: Path) -> int:
    """The permissions that open() would give: mkstemp's are for the owner only."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
