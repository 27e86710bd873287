"""The work folder of a scan: it belongs to one input, one operation and one process at a time."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from veckm.io.atomic import writing

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
        ends = hashlib.sha256(file.read(_HASHED))
        file.seek(max(0, info.st_size - _HASHED))
        ends.update(file.read(_HASHED))
    return {"size": info.st_size, "modified": info.st_mtime_ns, "ends": ends.hexdigest()}


@contextmanager
def work_folder(folder: Path, scan: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Hold a work folder, which is created if there is none, for a `scan` with its "settings" and
    the fingerprint of its "input"; raises `Changed` if it belongs to another."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("wb") as lock:
        try:
            if fcntl is not None:  # released when the process ends, however it ends
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Changed(
                f"{folder}: another process is running this scan; wait for it or stop it"
            ) from None
        path = folder / "scan.json"
        if path.exists():
            _compare(folder, json.loads(path.read_bytes()), json.loads(json.dumps(scan)))
        else:  # a new folder, or the rest of one that was being removed
            for rest in folder.iterdir():
                if rest.is_dir():
                    shutil.rmtree(rest)
                elif rest.name != "lock":
                    rest.unlink()
            with writing(path) as file:
                file.write(json.dumps(scan).encode())
        yield


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
