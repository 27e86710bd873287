"""What the readers of datasets share: tables of text, checks that name the file, packed objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from veckm.data.cache import Arrays
from veckm.data.samples import Batch, Sample, Stored, collate, generator_of, pick_points


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

    def pack(self, samples: Iterable[tuple[Path, Sample]]) -> Arrays:
        """All objects, read from the files beside them, with equally many points."""
        drawn = [self._one(path, sample) for path, sample in samples]
        names = np.array([sample.name for sample in drawn])
        tensors = {key: t for key, t in vars(collate(drawn)).items() if t is not None}
        return {"name": names, **{key: t.numpy() for key, t in tensors.items()}}

    def _one(self, path: Path, sample: Sample) -> Sample:
        pos, normal = sample.pos, sample.features if self.normals else None
        if pos.dim() != 2 or pos.shape[1] != 3:
            raise ValueError(f"{path}: {sample.name} has shape {tuple(pos.shape)}, not (N, 3)")
        if not bool(pos.isfinite().all()):
            raise ValueError(f"{path}: {sample.name} has NaN or infinite coordinates")
        if self.normals and (normal is None or normal.shape != pos.shape):
            raise ValueError(f"{path}: has no normals of its points; leave normals out")
        if len(pos) < self.points and not self.repeat:
            twice = ", or take some twice with repeat=True (--repeat)" if sample.label.dim() else ""
            raise ValueError(
                f"{path}: has {len(pos)} points, fewer than the {self.points} asked for; ask for "
                f"at most {len(pos)}{twice}"
            )
        normal = None if normal is None else normal.float()
        generator = generator_of(self.seed, sample.name)
        drawn = pick_points(replace(sample, features=normal), self.points, generator)
        return replace(drawn, pos=unit_ball(drawn.pos) if self.unit_ball else drawn.pos.float())


def stored(arrays: Arrays, classes: tuple[str, ...], checksum: str) -> Stored:
    """The dataset of packed arrays."""
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items() if key != "name"}
    return Stored([str(name) for name in arrays["name"]], Batch(**tensors), classes, checksum)


def unit_ball(
    pos: Tensor,  # (N, 3)
) -> Tensor:  # (N, 3) float32
    """Centered at the mean, with the farthest point at distance one."""
    pos = pos.double() - pos.double().mean(0)
    size = float(pos.norm(dim=-1).max())
    return (pos / (size or 1.0)).float()
