"""The exception for files that cannot be read or written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager


class FileError(ValueError):
    """A file that cannot be read or written as asked; the message begins with its path."""

    def __init__(self, path: str | os.PathLike[str], reason: object) -> None:
        super().__init__(f"{os.fspath(path)}: {' '.join(str(reason).split())}")
        self.path = os.fspath(path)
        self.reason = reason

    def __reduce__(self) -> tuple[type[FileError], tuple[str, object]]:
        """Worker processes raise it, the parent process shows it."""
        return type(self), (self.path, str(self.reason))


class NotByRange(FileError):
    """A file that can only be read as a whole."""


@contextmanager
def guarded(path: str | os.PathLike[str], action: str) -> Iterator[None]:
    """Turn whatever a reader or writer raises about a file into a :class:`FileError`.

    Errors of the operating system, missing packages and wrong arguments stay what they are.
    """
    try:
        yield
    except (FileError, ImportError, TypeError, MemoryError):
        raise
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # a place that no file has is a broken file
            raise
        raise FileError(path, f"cannot be {action}: {error}") from error
    except Exception as error:
        raise FileError(path, f"cannot be {action}: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust libraries, and no Exception
            raise
        raise FileError(path, f"cannot be {action}: {error}") from error
