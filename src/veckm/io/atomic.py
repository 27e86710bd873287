"""Atomic writes: a file is written beside its place and moved there when it is complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that appears at ``path`` on exit, unless an exception was raised."""
    target = path.resolve()  # through a link, not over it
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace(Path(name), target)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # such as of a full disk
        raise


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
