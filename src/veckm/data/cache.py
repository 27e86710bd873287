"""What was read once, kept in a file for the next time."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from veckm.io.atomic import writing

Arrays = dict[str, np.ndarray]


def checksum(folder: Path, files: Iterable[Path]) -> str:
    """A digest of the names below ``folder`` and the sizes of files: quick, and finds most changes.

    A file whose numbers changed but not its length is not found.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(folder).as_posix()}\t{path.stat().st_size}\n".encode())
    return digest.hexdigest()


def cached(
    folder: str | Path | None,
    name: str,
    key: Mapping[str, object],
    make: Callable[[], Arrays],
) -> Arrays:
    """What ``make`` gives, kept as ``NAME-DIGEST.npz`` with a digest of the key.

    Args:
        folder: where it is kept, made if it is not there; None to make it every time.
        name: the beginning of the file's name.
        key: all that the arrays depend on. A change is another file.
        make: reads and checks; what it raises leaves nothing behind.
    """
    if folder is None:
        return make()
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = Path(folder) / f"{name}-{digest}.npz"
    if path.is_file():
        try:
            return read_arrays(path)
        except ValueError:
            pass  # half a file of another program: make it again
    arrays = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return arrays


def read_arrays(path: Path) -> Arrays:
    """The arrays of a ``.npz`` file; a ValueError that names the file if it is broken."""
    with path.open("rb") as file:
        try:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("it holds one array without a name")
            return dict(loaded)
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
