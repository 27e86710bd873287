"""What is raised where a file is not what it should be."""

from __future__ import annotations

import os


class FileError(ValueError):
    """A file that cannot be read or written as asked; the text begins with its path."""

    def __init__(self, path: str | os.PathLike[str], reason: object) -> None:
        super().__init__(f"{os.fspath(path)}: {' '.join(str(reason).split())}")
        self.path = os.fspath(path)
        self.reason = reason

    def __reduce__(self) -> tuple[type[FileError], tuple[str, object]]:
        """Raised in one process, shown in another."""
        return type(self), (self.path, str(self.reason))


class NotByRange(FileError):
    """A file that can only be read as a whole."""


def missing(path: str | os.PathLike[str], package: str, extra: str) -> FileError:
    """An optional package that a format needs."""
    return FileError(
        path, f"needs the package {package}; install it with pip install 'veckm[{extra}]'"
    )
