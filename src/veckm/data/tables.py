"""What the readers of datasets share: tables of text, checks that name the file, packed objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from veckm.data.cache import Arrays
from veckm.data.samples import IGNORE, Batch, Stored, generator_of


def read_table(path: Path, columns: int) -> np.ndarray:  # (N, columns) float64
    """The numbers of a text file, separated by spaces or commas."""
    data = path.read_bytes().replace(b",", b" ")
    try:
        table = np.array(data.split(), dtype=np.float64).reshape(-1, columns)
    except ValueError as error:
        raise ValueError(
            f"{path}: is not a table of numbers with {columns} columns"
            f"{_first_wrong(data, columns)}: {error}"
        ) from error
    if not len(table):
        raise ValueError(f"{path}: is empty")
    bad = np.flatnonzero(~np.isfinite(table).all(1))
    if len(bad):
        raise ValueError(f"{path}: has NaN or infinite values, the first in line {bad[0] + 1}")
    return table


def _first_wrong(data: bytes, columns: int) -> str:
    """The first line with another number of columns, or with words."""
    for number, line in enumerate(data.splitlines(), 1):
        try:
            if len([float(word) for word in line.split()]) in (0, columns):
                continue
        except ValueError:
            pass
        return f", line {number} is {line[:80].decode('latin-1')!r}"
    return ""


def check_labels(path: Path, label: np.ndarray, count: int, first: int = 0) -> None:
    """Raise unless all labels are whole numbers from ``first``, of which there are ``count``."""
    wrong = np.flatnonzero((label != np.floor(label)) | (label < first) | (label >= first + count))
    if len(wrong):
        raise ValueError(
            f"{path}: has the label {label.reshape(-1)[wrong[0]]} at {wrong[0]}; labels are whole "
            f"numbers from {first} to {first + count - 1}"
        )


def check_files(files: list[Path], page: str) -> list[Path]:
    """The files if all are there; otherwise an error with the first missing and where to get it."""
    missing = [path for path in files if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{missing[0]}: is not there, nor are {len(missing) - 1} others of {len(files)} that "
            f"the lists name; get them from {page}"
        )
    return files


@dataclass(frozen=True, eq=False)
class Item:
    """One object of a dataset as it was read.

    Shapes:
        - xyz: (N, 3), label: () or (N,), normal: (N, 3) or None
    """

    path: Path
    name: str
    xyz: np.ndarray
    label: np.ndarray
    normal: np.ndarray | None = None
    category: int = 0


@dataclass(frozen=True)
class Draw:
    """How many points to take of every object, and whether with normals."""

    points: int
    normals: bool
    seed: int
    repeat: bool = False
    unit_ball: bool = True

    def __post_init__(self) -> None:
        if self.points < 1:
            raise ValueError(f"points must be at least 1, got {self.points}")

    def pack(self, items: Iterable[Item]) -> Arrays:
        """All objects with equally many points."""
        rows = [self._one(item) for item in items]
        return {key: np.stack([row[key] for row in rows]) for key in rows[0]}

    def _one(self, item: Item) -> Arrays:
        if item.xyz.ndim != 2 or item.xyz.shape[1] != 3:
            raise ValueError(f"{item.path}: {item.name} has shape {item.xyz.shape}, not (N, 3)")
        if not np.isfinite(item.xyz).all():
            raise ValueError(f"{item.path}: {item.name} has NaN or infinite coordinates")
        rows, n = self._rows(item), len(item.xyz)
        xyz, label = item.xyz[rows], item.label.astype(np.int64)
        if label.ndim:
            label = label[rows]
            label[n:] = IGNORE  # points that are taken a second time
        out = {
            "name": np.array(item.name),
            "pos": unit_ball(xyz.astype(np.float64)) if self.unit_ball else xyz.astype(np.float32),
            "label": label,
            "category": np.array(item.category, dtype=np.int64),
        }
        if self.normals:
            if item.normal is None or item.normal.shape != item.xyz.shape:
                raise ValueError(f"{item.path}: has no normals of its points; leave normals out")
            out["normal"] = item.normal[rows].astype(np.float32)
        return out

    def _rows(self, item: Item) -> np.ndarray:  # (points,)
        """A random choice of the points; all of them, in order, if just as many are wanted."""
        have, want = len(item.xyz), self.points
        generator = generator_of(self.seed, item.name)
        if have < want and not self.repeat:
            raise ValueError(
                f"{item.path}: has {have} points, fewer than the {want} asked for; ask for at most "
                f"{have}"
                + (", or take some twice with repeat=True (--repeat)" if item.label.ndim else "")
            )
        if have <= want:
            more = torch.randint(have, (want - have,), generator=generator).numpy()
            return np.concatenate((np.arange(have), more))
        return torch.randperm(have, generator=generator)[:want].numpy()


def stored(
    arrays: Arrays, classes: tuple[str, ...], checksum: str, category: bool = False
) -> Stored:
    """The dataset of packed arrays."""
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items() if key != "name"}
    batch = Batch(
        tensors["pos"],
        tensors["label"],
        tensors.get("normal"),
        tensors["category"] if category else None,
    )
    return Stored([str(name) for name in arrays["name"]], batch, classes, checksum)


def unit_ball(
    pos: np.ndarray,  # (N, 3)
) -> np.ndarray:  # (N, 3) float32
    """Centered at the mean, with the farthest point at distance one."""
    pos = pos - pos.mean(0)
    size = np.sqrt((pos * pos).sum(-1)).max()
    return np.asarray(pos / (size if size > 0 else 1.0), dtype=np.float32)
