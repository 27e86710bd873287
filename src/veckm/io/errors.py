"""The exception for files that cannot be read or written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager


class FileWarning(UserWarning):
    """A file was read, but its header and its contents disagree; begins with its path."""


class FileError(ValueError):
    """A file that cannot be read or written as asked; the message begins with its path."""

    def __init__(self, path: str | os.PathLike[str], reason: object) -> None:
        super().__init__(f"{os.fspath(path)}: {' '.join(str(reason).split())}")
        self.path = os.fspath(path)
        self.reason = reason

    def __reduce__(self) -> tuple[type[FileError], tuple[str, object]]:
        """Worker processes raise it, the parent process shows it."""
        return type(self), (self.path, str(self.reason))


@contextmanager
def guarded(path: str | os.PathLike[str], action: str) -> Iterator[None]:
    """Turn whatever a reader or writer raises about a file into a :class:`FileError`.

    Errors of the operating system, missing packages and a lack of memory stay what they are, and
    so do interrupts. Panics of Rust libraries, which are no Exceptions, become file errors.
    """
    try:
        yield
    except (FileError, ImportError, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, OSError):
            ours = error.errno in (None, errno.EINVAL)  # a place that no file has
        else:
            ours = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if not ours:
            raise
        raise FileError(path, f"cannot be {action}: {error}") from error
