"""What was done, line by line, so that a scan that was ended at any moment goes on from there.

The first line says what is being done: the settings, and a fingerprint of the input. Each further
line names a piece that is on the disk as a whole, with a checksum of it. Every line ends with a
checksum of itself: one that was cut short is not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows: nobody looks after two runs at once
    fcntl = None  # type: ignore[assignment]

_NAME = "journal.jsonl"
_VERSION = 1
#: Of the beginning and of the end of a file.
_LOOKED_AT = 1 << 20


class Changed(ValueError):
    """A folder of a scan with other settings, or of another input."""


class Stopped(KeyboardInterrupt):
    """Ended by Ctrl-C, in a state from which it can go on."""


def fingerprint(path: Path) -> dict[str, Any]:
    """What tells a file from others, and from itself after a change, without reading all of it."""
    known = path.stat()
    with path.open("rb") as file:
        head = file.read(_LOOKED_AT)
        file.seek(max(0, known.st_size - _LOOKED_AT))
        tail = file.read(_LOOKED_AT)
    return {
        "size": known.st_size,
        "modified": known.st_mtime_ns,
        "head": hashlib.sha256(head).hexdigest(),
        "tail": hashlib.sha256(tail).hexdigest(),
    }


class Journal:
    """The journal of a work folder, held by one process at a time."""

    def __init__(self, folder: Path, settings: dict[str, Any], source: dict[str, Any]) -> None:
        """Take up the work in `folder`, or begin it.

        Args:
            folder: made if it is not there.
            settings: what is done; another run with the same goes on, with others is refused.
            source: fingerprint of the input, likewise.
        """
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._file = (folder / _NAME).open("a+b")
        self.done: dict[str, int] = {}
        try:
            _lock(self._file, folder)
            header = {"scan": _VERSION, "settings": settings, "input": source}
            lines = self._load()
            if lines:
                _compare(folder, lines[0], header)
                self.done = {line["piece"]: line["crc"] for line in lines[1:]}
            else:
                self._append(header)
        except BaseException:
            self._file.close()
            raise

    def _load(self) -> list[dict[str, Any]]:
        """All whole lines; what was cut short is cut off."""
        self._file.seek(0)
        lines, good = [], 0
        for raw in self._file:
            text, _, check = raw.rstrip(b"\n").rpartition(b" ")
            if not raw.endswith(b"\n") or f"{zlib.crc32(text):08x}".encode() != check:
                break
            lines.append(json.loads(text))
            good += len(raw)
        self._file.truncate(good)
        return lines

    def _append(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, sort_keys=True).encode()
        self._file.write(text + f" {zlib.crc32(text):08x}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def record(self, piece: str, crc: int) -> None:
        """A piece is done, and on the disk."""
        self._append({"piece": piece, "crc": crc})
        self.done[piece] = crc

    def forget(self, piece: str) -> None:
        """A piece that is not what it was when it was recorded."""
        self.done.pop(piece, None)

    def close(self) -> None:
        """Let another process have it."""
        self._file.close()

    def remove(self) -> None:
        """The work is done: the folder goes, and with it everything in it."""
        self.close()
        shutil.rmtree(self.folder)


def _lock(file: IO[bytes], folder: Path) -> None:
    """One process at a time: a lock that goes with its process."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Changed(
            f"{folder}: another process is at work on this scan; wait for it or end it"
        ) from None


def _compare(folder: Path, had: dict[str, Any], have: dict[str, Any]) -> None:
    """Refuse to go on with something else."""
    again = f"or remove the folder {folder} to begin anew"
    if had.get("scan") != have["scan"]:
        raise Changed(f"{folder}: is of another version of veckm; remove it to begin anew")
    if had["input"] != have["input"]:
        raise Changed(
            f"{folder}: holds work on another input, or the input has changed since "
            f"({_differences(had['input'], have['input'])}). Put the input back as it was, {again}"
        )
    have_settings = json.loads(json.dumps(have["settings"]))
    if had["settings"] != have_settings:
        what = _differences(had["settings"], have_settings)
        raise Changed(
            f"{folder}: holds work with other settings ({what}). "
            f"Run with the settings it was begun with to go on, {again}"
        )


def _differences(had: dict[str, Any], have: dict[str, Any]) -> str:
    names = [name for name in {**had, **have} if had.get(name) != have.get(name)]
    return ", ".join(f"{n} was {had.get(n)!r}, is {have.get(n)!r}" for n in names)
