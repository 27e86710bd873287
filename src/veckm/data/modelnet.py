"""ModelNet40 and ModelNet10 from a folder on disk, in the layouts that people have.

- meshes: ``CLASS/train/*.off`` and ``CLASS/test/*.off``; points are drawn uniformly by area;
- text: ``CLASS/NAME.txt`` of comma-separated points and normals, with ``modelnet40_train.txt``,
  ``modelnet40_test.txt`` and ``modelnet40_shape_names.txt``;
- HDF5: the files that ``train_files.txt`` and ``test_files.txt`` list, with ``shape_names.txt``
  (this release is known to have 9,840 training objects instead of 9,843);
- arrays: ``*_train.npz`` and ``*_test.npz`` of ``xyz``, ``label`` and ``name``, with
  ``shape_names.txt``.

Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from veckm.data.cache import Arrays, cached, checksum, read_arrays
from veckm.data.meshes import read_mesh, sample_mesh
from veckm.data.samples import Sample, Stored, generator_of
from veckm.data.tables import Draw, check_files, check_labels, read_table, stored
from veckm.extras import need
from veckm.progress import bar

#: Where the meshes are, and the two samplings of them.
PAGE = "https://modelnet.cs.princeton.edu"
TEXT_PAGE = "https://shapenet.cs.stanford.edu/media/modelnet40_normal_resampled.zip"
HDF5_PAGE = "https://shapenet.cs.stanford.edu/media/modelnet40_ply_hdf5_2048.zip"
_WHERE = (
    f"get the meshes from {PAGE}, points with normals from {TEXT_PAGE} or HDF5 files from "
    f"{HDF5_PAGE}, unpack them and name the folder"
)

Split = Literal["train", "test"]


def read_modelnet(
    folder: str | Path,
    split: Split = "train",
    *,
    points: int = 1024,
    normals: bool = False,
    classes: Literal[40, 10] = 40,
    seed: int = 0,
    cache: str | Path | None = None,
) -> Stored:
    """The official split of ModelNet, every object as ``points`` points in the unit ball.

    Args:
        folder: in one of the layouts above.
        split: ``"train"`` or ``"test"``; take validation from train, by
            :func:`veckm.data.samples.hold_out`.
        points: of every object, drawn once by the seed. An object with fewer is an error.
        normals: keep the normals as features, where the layout has them.
        classes: which lists of the text release; the other layouts have one.
        seed: of the points.
        cache: a folder to keep the result in, since meshes and text are slow to read.

    Shapes:
        - pos: (points, 3), label: (), features: (points, 3) with normals
    """
    folder = Path(folder)
    if split not in ("train", "test"):
        raise ValueError(
            f"split must be train or test, got {split!r}; for validation use hold_out on train"
        )
    found = _find(folder, split, classes)
    one_each = found.files[0].suffix in (".off", ".txt")  # the others are in the unit ball already
    draw = Draw(points, normals, seed, unit_ball=one_each)
    total = checksum(folder, [*found.files, *found.lists])
    key = {"checksum": total, "points": points, "normals": normals, "seed": seed, "format": 3}
    arrays = cached(cache, f"modelnet-{split}", key, lambda: draw.pack(_read(found, draw)))
    return stored(arrays, tuple(found.classes), total)


@dataclass(frozen=True)
class _Found:
    """What a folder has of a split."""

    files: list[Path]
    classes: list[str]
    lists: list[Path]  # other files that the result depends on


def _find(folder: Path, split: Split, classes: int) -> _Found:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: is not a folder; {_WHERE}")
    names = folder / "shape_names.txt"
    arrays = sorted(folder.glob(f"*_{split}.npz"))
    if len(arrays) > 1:
        there = ", ".join(path.name for path in arrays)
        raise ValueError(f"{folder}: has {len(arrays)} files of one split, {there}; keep one")
    if arrays:
        return _Found(arrays, _lines(names), [names])
    listed = folder / f"{split}_files.txt"
    if listed.is_file():
        files = check_files([folder / Path(line).name for line in _lines(listed)], HDF5_PAGE)
        return _Found(files, _lines(names), [listed, names])
    names, listed = (folder / f"modelnet{classes}_{kind}.txt" for kind in ("shape_names", split))
    if names.is_file():
        files = [folder / line.rpartition("_")[0] / f"{line}.txt" for line in _lines(listed)]
        return _Found(check_files(files, TEXT_PAGE), _lines(names), [listed, names])
    kinds = sorted(path for path in folder.iterdir() if (path / split).is_dir())
    if not kinds:
        raise FileNotFoundError(
            f"{folder}: has no CLASS/{split}/*.off, no modelnet40_shape_names.txt, no "
            f"{split}_files.txt and no *_{split}.npz; {_WHERE}"
        )
    meshes = [sorted((kind / split).glob("*.off")) for kind in kinds]
    for kind, of_kind in zip(kinds, meshes, strict=True):
        if not of_kind:
            raise ValueError(f"{kind / split}: the class folder is empty: it has no .off files")
    files = [path for of_kind in meshes for path in of_kind]
    return _Found(files, [kind.name for kind in kinds], [])


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: is not there, and is part of the release; {_WHERE}")
    lines = path.read_text().split()
    if not lines:
        raise ValueError(f"{path}: is empty")
    return lines


def _read(found: _Found, draw: Draw) -> Iterator[tuple[Path, Sample]]:
    with bar(len(found.files), "files") as advance:
        for path in found.files:
            if path.suffix == ".off":
                yield path, _read_mesh(path, found, draw)
            elif path.suffix == ".txt":
                yield path, _read_text(path, found)
            else:
                yield from ((path, sample) for sample in _read_packed(path, found))
            advance()


def _read_mesh(path: Path, found: _Found, draw: Draw) -> Sample:
    try:
        shape = sample_mesh(read_mesh(path), draw.points, generator_of(draw.seed, path.stem))
    except ValueError as error:
        message = str(error)
        raise ValueError(message if str(path) in message else f"{path}: {message}") from error
    label = torch.tensor(found.classes.index(path.parent.parent.name))
    return Sample(path.stem, shape.pos, label, shape.normal)


def _read_text(path: Path, found: _Found) -> Sample:
    if path.parent.name not in found.classes:
        raise ValueError(f"{path}: its class is not one of {found.lists[-1]}")
    table = torch.from_numpy(read_table(path, 6))
    label = torch.tensor(found.classes.index(path.parent.name))
    return Sample(path.stem, table[:, :3], label, table[:, 3:])


def _read_packed(path: Path, found: _Found) -> Iterator[Sample]:
    """The objects of an HDF5 or .npz file."""
    held = read_arrays(path) if path.suffix == ".npz" else _read_hdf5(path)
    xyz, label, normal = held.get("xyz"), held.get("label"), held.get("normal")
    if xyz is None or label is None:
        raise ValueError(f"{path}: has no points and label, only {', '.join(held) or 'nothing'}")
    label = label.reshape(-1)
    names = held.get("name", np.array([f"{path.stem}_{i:05d}" for i in range(len(xyz))]))
    if xyz.ndim != 3 or xyz.shape[2] != 3 or not len(xyz) == len(label) == len(names):
        raise ValueError(
            f"{path}: has points of shape {xyz.shape}, {len(label)} labels and {len(names)} names, "
            "not (M, N, 3) and M of each"
        )
    check_labels(path, label, len(found.classes))
    normals = None if normal is None or normal.shape != xyz.shape else torch.from_numpy(normal)
    for k, (name, pos) in enumerate(zip(names, torch.from_numpy(xyz), strict=True)):
        own = None if normals is None else normals[k]
        yield Sample(str(name), pos, torch.tensor(int(label[k])), own)


def _read_hdf5(path: Path) -> Arrays:
    h5py = need("h5py", f"{path}: reading HDF5", "hdf5")
    keys = {"data": "xyz", "normal": "normal", "label": "label"}
    try:
        with h5py.File(path, "r") as file:
            return {keys.get(key, key): np.asarray(file[key]) for key in file}
    except OSError as error:
        raise ValueError(f"{path}: cannot be read as HDF5: {error}") from error
