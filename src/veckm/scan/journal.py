"""A record of finished work, so that a scan that was stopped at any moment can be resumed.

The first line has the settings and a fingerprint of the input. Every other line names a piece of
work that is complete on disk, with its checksum. A last line that was cut short is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows: two runs at the same time are not detected
    fcntl = None  # type: ignore[assignment]

#: Bytes at the beginning and at the end of a file that its fingerprint covers.
_HASHED = 1 << 20


class Changed(ValueError):
    """The work folder belongs to other settings, to another input, or to a running process."""


class Stopped(KeyboardInterrupt):
    """Stopped by Ctrl-C; the same call resumes."""


def fingerprint(path: Path) -> dict[str, Any]:
    """Identifies a file and its state without reading all of it."""
    info = path.stat()
    with path.open("rb") as file:
        head = file.read(_HASHED)
        file.seek(max(0, info.st_size - _HASHED))
        tail = file.read(_HASHED)
    return {
        "size": info.st_size,
        "modified": info.st_mtime_ns,
        "head": hashlib.sha256(head).hexdigest(),
        "tail": hashlib.sha256(tail).hexdigest(),
    }


class Journal:
    """The journal of a work folder, held by one process at a time.

    Attributes:
        done: the checksum of every finished piece, by name.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], source: dict[str, Any]) -> None:
        """Open the journal in `folder`, or create both.

        Args:
            folder: the work folder.
            settings: what the result depends on.
            source: fingerprint of the input.

        Raises:
            Changed: the folder has other settings or another input, or another process uses it.
        """
        folder.mkdir(exist_ok=True)
        self._file = (folder / "journal.jsonl").open("a+b")
        self.done: dict[str, int] = {}
        try:
            _lock(self._file, folder)
            header = json.loads(json.dumps({"input": source, "settings": settings}))
            lines = self._load()
            if lines:
                _compare(folder, lines[0], header)
                self.done = {line["piece"]: line["crc"] for line in lines[1:]}
            else:
                self._append(header)
        except BaseException:
            self.close()
            raise

    def _load(self) -> list[dict[str, Any]]:
        self._file.seek(0)
        lines, good = [], 0
        for raw in self._file:
            try:
                lines.append(json.loads(raw))
            except ValueError:
                break
            if not raw.endswith(b"\n"):
                lines.pop()
                break
            good += len(raw)
        self._file.truncate(good)
        return lines

    def _append(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def record(self, piece: str, crc: int) -> None:
        """Note that a piece of work is complete on disk."""
        self._append({"piece": piece, "crc": crc})
        self.done[piece] = crc

    def close(self) -> None:
        """Release the folder to other processes."""
        self._file.close()


def _lock(file: IO[bytes], folder: Path) -> None:
    """The system releases the lock when the process ends, however it ends."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Changed(
            f"{folder}: another process is running this scan; wait for it or stop it"
        ) from None


def _compare(folder: Path, had: dict[str, Any], have: dict[str, Any]) -> None:
    for part, what, advice in (
        ("input", "the input has", "Restore the input"),
        ("settings", "the settings have", "Run with the same settings to resume"),
    ):
        old, new = had.get(part, {}), have[part]
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        if names:
            changes = ", ".join(f"{n} was {old.get(n)!r}, is {new.get(n)!r}" for n in names)
            raise Changed(
                f"{folder}: {what} changed since this scan was started ({changes}). {advice}, "
                f"or remove the folder {folder} to start again"
            )
