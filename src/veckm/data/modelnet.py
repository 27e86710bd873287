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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from veckm.data.meshes import read_mesh
from veckm.data.reading import Arrays, Release, check_files, objects_of, read_arrays, read_table
from veckm.data.samples import Sample, Samples, generator_of
from veckm.extras import need

#: Where the meshes are, and the two samplings of them.
PAGE = "https://modelnet.cs.princeton.edu"
TEXT_PAGE = "https://shapenet.cs.stanford.edu/media/modelnet40_normal_resampled.zip"
HDF5_PAGE = "https://shapenet.cs.stanford.edu/media/modelnet40_ply_hdf5_2048.zip"

#: The classes of ModelNet10, which are ten of ModelNet40's.
TEN = (
    *("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table"),
    "toilet",
)

Split = Literal["train", "test"]
_Classes = tuple[str, ...]


def read_modelnet(
    folder: str | Path,
    split: Split = "train",
    *,
    points: int = 1024,
    normals: bool = False,
    classes: Literal[40, 10] = 40,
    seed: int = 0,
    cache: str | Path | None = None,
) -> Samples:
    """The official split of ModelNet, every object as ``points`` points in the unit ball.

    Args:
        folder: in one of the layouts above.
        split: ``"train"`` or ``"test"``; take validation from train, by
            :func:`veckm.data.samples.hold_out`.
        points: of every object, drawn once by the seed. An object with fewer is an error.
        normals: keep the normals as features, where the layout has them.
        classes: 10 keeps the classes of ModelNet10 where the folder has those of ModelNet40; the
            text release has a list of its own for them.
        seed: of the points.
        cache: a folder to keep the result in, since meshes and text are slow to read.

    Shapes:
        - pos: (points, 3), label: (), features: (points, 3) with normals
    """
    if split not in ("train", "test"):
        raise ValueError(
            f"split must be train or test, got {split!r}; for validation use hold_out on train"
        )
    folder = Path(folder)
    found = _find_lists(folder, split, classes) or _find_meshes(folder, split, points, seed)
    read = found.load(f"modelnet-{split}", cache, points=points, normals=normals, seed=seed)
    return _ten(folder, read) if classes == 10 and set(read.classes) - set(TEN) else read


def _ten(folder: Path, samples: Samples) -> Samples:
    if missing := [name for name in TEN if name not in samples.classes]:
        raise ValueError(
            f"{folder}: has no {', '.join(missing)}, which ModelNet10 has; its classes are "
            f"{', '.join(samples.classes)}"
        )
    kept = [
        replace(sample, label=torch.tensor(TEN.index(name)))
        for sample in samples
        if (name := samples.classes[int(sample.label)]) in TEN
    ]
    return Samples(kept, TEN, f"{samples.checksum}/ten")


def _find_lists(folder: Path, split: Split, count: int) -> Release | None:
    """The layouts with lists: arrays, HDF5 and text."""
    names, listed = folder / "shape_names.txt", folder / f"{split}_files.txt"
    files = sorted(folder.glob(f"*_{split}.npz"))
    if len(files) > 1:
        there = ", ".join(path.name for path in files)
        raise ValueError(f"{folder}: has {len(files)} files of one split, {there}; keep one")
    if files or listed.is_file():
        classes, lists = _lines(names, HDF5_PAGE), [names] if files else [listed, names]
        if not files:
            files = [folder / Path(line).name for line in _lines(listed, HDF5_PAGE)]
        read = partial(_read_packed, classes)
        return Release(folder, check_files(files, HDF5_PAGE), lists, classes, read, True)
    names, listed = (folder / f"modelnet{count}_{kind}.txt" for kind in ("shape_names", split))
    if not names.is_file():
        return None
    lines = _lines(listed, TEXT_PAGE)
    files = check_files([folder / k.rpartition("_")[0] / f"{k}.txt" for k in lines], TEXT_PAGE)
    read = partial(_read_text, classes := _lines(names, TEXT_PAGE))
    return Release(folder, files, [listed, names], classes, read)


def _find_meshes(folder: Path, split: Split, points: int, seed: int) -> Release:
    kinds = sorted(path.parent for path in folder.glob(f"*/{split}"))
    if not kinds:
        raise FileNotFoundError(
            f"{folder}: has no CLASS/{split}/*.off, no modelnet40_shape_names.txt, no "
            f"{split}_files.txt and no *_{split}.npz; get the meshes from {PAGE}, points with "
            f"normals from {TEXT_PAGE} or HDF5 files from {HDF5_PAGE}"
        )
    files: list[Path] = []
    for kind in kinds:
        meshes = sorted((kind / split).glob("*.off"))
        if not meshes:
            raise ValueError(f"{kind / split}: the class folder is empty: it has no .off files")
        files += meshes
    classes = tuple(kind.name for kind in kinds)
    return Release(folder, files, [], classes, partial(_read_mesh, classes, points, seed))


def _lines(path: Path, page: str) -> tuple[str, ...]:
    lines = tuple(check_files([path], page)[0].read_text().split())
    if not lines:
        raise ValueError(f"{path}: is empty")
    return lines


def _read_mesh(classes: _Classes, points: int, seed: int, path: Path) -> Iterator[Sample]:
    mesh = read_mesh(path)
    try:
        shape = mesh.sample(points, generator_of(seed, path.stem))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    label = torch.tensor(classes.index(path.parent.parent.name))
    yield Sample(path.stem, shape.pos, label, shape.normal)


def _read_text(classes: _Classes, path: Path) -> Iterator[Sample]:
    if path.parent.name not in classes:
        raise ValueError(f"{path}: its class is not one of {', '.join(classes)}")
    pos, normal = torch.from_numpy(read_table(path, 6)).split(3, dim=1)
    yield Sample(path.stem, pos, torch.tensor(classes.index(path.parent.name)), normal)


def _read_packed(classes: _Classes, path: Path) -> Iterator[Sample]:
    """The objects of an HDF5 or .npz file."""
    packed = path.suffix == ".npz"
    held = read_arrays(path, "xyz", "label") if packed else _read_hdf5(path)
    names = np.array([f"{path.stem}_{i:05d}" for i in range(len(held["xyz"]))])
    held = {"name": names, **held, "label": held["label"].reshape(-1)}
    return objects_of(path, held, len(classes))


def _read_hdf5(path: Path) -> Arrays:
    h5py = need("h5py", f"{path}: reading HDF5", "hdf5")
    try:
        with h5py.File(path, "r") as file:
            held = {key: np.asarray(file[key]) for key in file}
            return {"xyz": held.pop("data"), "label": held.pop("label"), **held}
    except (OSError, KeyError) as error:
        raise ValueError(f"{path}: cannot be read as HDF5 with data and label: {error}") from error
