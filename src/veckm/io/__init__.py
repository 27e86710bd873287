"""Point clouds from files and to files; what is not changed is written as it was read."""

from veckm.io.errors import FileError, FileWarning
from veckm.io.formats import READABLE, WRITABLE, open_source, read, source_if_by_range
from veckm.io.output import create_sink, write
from veckm.io.source import Source

__all__ = [
    "READABLE",
    "WRITABLE",
    "FileError",
    "FileWarning",
    "Source",
    "create_sink",
    "open_source",
    "read",
    "source_if_by_range",
    "write",
]
