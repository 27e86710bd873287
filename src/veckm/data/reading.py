"""What the readers of datasets share: a cache, tables of text, checks that name the file."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from veckm.data.samples import Sample, Samples, collate, generator_of, pick_points
from veckm.inputs import check_count
from veckm.io.atomic import writing
from veckm.progress import bar

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Release:
    """The objects of a dataset's split, as found in a folder."""

    folder: Path
    files: list[Path]  #: with points
    lists: list[Path]  #: other files that the result depends on
    classes: tuple[str, ...]  #: the names of the labels
    read: Callable[[Path], Iterable[Sample]]  #: the objects of a file, with normals as features
    in_unit_ball: bool = False  #: whether the objects are in the unit ball already

    def load(
        self,
        name: str,
        cache: str | Path | None,
        *,
        points: int,
        normals: bool,
        seed: int,
        repeat: bool = False,
    ) -> Samples:
        """All objects with equally many points, kept in the cache under ``name``."""
        check_count(points, "points")
        total = checksum(self.folder, [*self.files, *self.lists])
        key = {"checksum": total, "points": points, "normals": normals, "seed": seed}

        def pack() -> Arrays:
            drawn = []
            with bar(len(self.files), "files") as advance:
                for path in self.files:
                    for sample in self.read(path):
                        _check_object(path, sample, points, normals, repeat)
                        drawn.append(self._pick(sample, points, normals, seed))
                    advance()
            if not drawn:
                raise ValueError(f"{self.folder}: has no object of this split")
            fields = {k: t.numpy() for k, t in vars(collate(drawn)).items() if t is not None}
            return {"name": np.array([sample.name for sample in drawn]), **fields}

        arrays = cached(cache, name, {**key, "repeat": repeat, "format": 4}, pack)
        fields = {k: torch.from_numpy(a).unbind() for k, a in arrays.items() if k != "name"}
        if "category" in fields:
            fields["category"] = arrays["category"].tolist()
        samples = [
            Sample(str(name), **{k: column[i] for k, column in fields.items()})  # type: ignore[arg-type]
            for i, name in enumerate(arrays["name"])
        ]
        return Samples(samples, self.classes, total)

    def _pick(self, sample: Sample, points: int, normals: bool, seed: int) -> Sample:
        features = sample.features.float() if normals and sample.features is not None else None
        sample = replace(sample, features=features)
        drawn = pick_points(sample, points, generator_of(seed, sample.name))
        return replace(drawn, pos=drawn.pos.float() if self.in_unit_ball else _unit_ball(drawn.pos))


def _check_object(path: Path, sample: Sample, points: int, normals: bool, repeat: bool) -> None:
    pos, found = sample.pos, len(sample.pos)
    if pos.dim() != 2 or pos.shape[1] != 3:
        raise ValueError(f"{path}: {sample.name} has shape {tuple(pos.shape)}, not (N, 3)")
    if not bool(pos.isfinite().all()):
        raise ValueError(f"{path}: {sample.name} has NaN or infinite coordinates")
    if normals and (sample.features is None or sample.features.shape != pos.shape):
        raise ValueError(f"{path}: has no normals of its points; leave normals out")
    if found < points and not repeat:
        hint = ", or take some twice with repeat=True (--repeat)" if sample.label.dim() else ""
        raise ValueError(
            f"{path}: has {found} points, fewer than the {points} asked for; ask for at most "
            f"{found}{hint}"
        )


def _unit_ball(pos: Tensor) -> Tensor:  # (N, 3) to (N, 3) float32
    """Centered at the mean, with the farthest point at distance one."""
    pos = pos.double() - pos.double().mean(0)
    return (pos / (float(pos.norm(dim=-1).max()) or 1.0)).float()


def checksum(folder: Path, files: Iterable[Path]) -> str:
    """A digest of the names below ``folder`` and the sizes of files: quick, finds most changes."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(folder).as_posix()}\t{path.stat().st_size}\n".encode())
    return digest.hexdigest()


def cached(
    folder: str | Path | None, name: str, key: Mapping[str, object], make: Callable[[], Arrays]
) -> Arrays:
    """What ``make`` returns, kept in ``folder`` as ``NAME-DIGEST.npz`` with a digest of the key.

    The key is all that the arrays depend on. If ``make`` raises, nothing is left behind.
    """
    if folder is None:
        return make()
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = Path(folder) / f"{name}-{digest}.npz"
    if path.is_file():
        try:
            return read_arrays(path)
        except ValueError:
            pass  # truncated or damaged: make it again
    arrays = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return arrays


def read_arrays(path: Path, *names: str) -> Arrays:
    """The arrays of a ``.npz`` file, among them ``names``, or that of a ``.npy`` as ``array``."""
    with path.open("rb") as file:
        try:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"array": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    if not set(names) <= set(arrays):
        raise ValueError(f"{path}: must have {', '.join(names)}; it has {', '.join(arrays)}")
    return arrays


def read_table(path: Path, columns: int) -> np.ndarray:  # (N, columns) float64
    """The numbers of a text file, separated by spaces or commas."""
    lines = path.read_text(encoding="latin-1").replace(",", " ").splitlines()
    if not any(line.strip() for line in lines):
        raise ValueError(f"{path}: is empty")
    try:
        table = np.loadtxt(lines, comments=None, ndmin=2)
        if table.shape[1] != columns:
            raise ValueError(f"it has {table.shape[1]}")
    except ValueError as error:
        message = f"{path}: is not a table of numbers with {columns} columns: {error}"
        raise ValueError(message) from error
    bad = np.flatnonzero(~np.isfinite(table).all(1))
    if len(bad):
        raise ValueError(f"{path}: has NaN or infinite values, the first in row {bad[0] + 1}")
    return table


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
        more = f" (one of {len(missing)} missing files that the lists name)" if missing[1:] else ""
        raise FileNotFoundError(f"{missing[0]}: is not there{more}; get the release from {page}")
    return files


def objects_of(path: Path, held: Arrays, count: int, first: int = 0) -> Iterator[Sample]:
    """The objects of a file from its arrays name, xyz, label and normal, if there is one."""
    names, xyz, label, normal = held["name"], held["xyz"], held["label"], held.get("normal")
    if xyz.ndim != 3 or xyz.shape[2] != 3 or not len(xyz) == len(label) == len(names):
        raise ValueError(
            f"{path}: has points of shape {xyz.shape}, {len(label)} labels and {len(names)} names, "
            "not (M, N, 3) and M of each"
        )
    check_labels(path, label, count, first)
    for k, name in enumerate(names):
        own = None if normal is None else torch.from_numpy(normal[k])
        yield Sample(str(name), torch.from_numpy(xyz[k]), torch.as_tensor(label[k]).long(), own)
