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

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from veckm.data.cache import Arrays, cached, checksum, read_arrays
from veckm.data.meshes import read_mesh, sample_mesh
from veckm.data.samples import Batch, Stored, generator_of
from veckm.data.tables import check_labels, read_table, subset_rows, unit_ball
from veckm.extras import need
from veckm.progress import bar

#: Where the meshes are, and the two samplings of them.
PAGE = "https://modelnet.cs.princeton.edu"
TEXT_PAGE = "https://shapenet.cs.stanford.edu/media/modelnet40_normal_resampled.zip"
HDF5_PAGE = "https://shapenet.cs.stanford.edu/media/modelnet40_ply_hdf5_2048.zip"

Split = Literal["train", "test"]
Layout = Literal["meshes", "text", "hdf5", "arrays"]


@dataclass(frozen=True)
class _Found:
    """What a folder has of a split."""

    layout: Layout
    files: list[Path]
    classes: list[str]
    lists: list[Path]  # other files that decide what is read


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
        split: ``"train"`` or ``"test"``; validation comes out of train, by
            :func:`veckm.data.samples.hold_out`.
        points: of every object, drawn once by the seed. An object with fewer is an error.
        normals: keep the normals as features, where the layout has them.
        classes: which lists of the text release; the other layouts have one.
        seed: of the points.
        cache: a folder to keep the result in, for meshes and text are slow to read.

    Shapes:
        - pos: (points, 3), label: (), features: (points, 3) with normals
    """
    folder = Path(folder)
    if split not in ("train", "test"):
        raise ValueError(
            f"split must be train or test, got {split!r}; for validation use hold_out on train"
        )
    if points < 1:
        raise ValueError(f"points must be at least 1, got {points}")
    found = _find(folder, split, classes)
    total = checksum(folder, [*found.files, *found.lists])
    key = {"checksum": total, "points": points, "normals": normals, "seed": seed, "format": 1}
    draw = _Draw(points, normals, seed)
    make = _READERS[found.layout]
    arrays = cached(cache, f"modelnet-{split}", key, lambda: make(found, draw))
    features = torch.from_numpy(arrays["normal"]) if normals else None
    batch = Batch(
        torch.from_numpy(arrays["pos"]), torch.from_numpy(arrays["label"]), features, None
    )
    return Stored([str(n) for n in arrays["name"]], batch, found.classes, total)


def _find(folder: Path, split: Split, classes: int) -> _Found:
    """Which layout a folder has."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: is not a folder; {_where()}")
    names = folder / "shape_names.txt"
    arrays = sorted(folder.glob(f"*_{split}.npz"))
    if arrays:
        return _Found("arrays", arrays, _lines(names), [names])
    if (folder / f"{split}_files.txt").is_file():
        listed = folder / f"{split}_files.txt"
        files = [folder / Path(line).name for line in _lines(listed)]
        return _Found("hdf5", _all_there(files, HDF5_PAGE), _lines(names), [listed, names])
    names = folder / f"modelnet{classes}_shape_names.txt"
    if names.is_file():
        listed = folder / f"modelnet{classes}_{split}.txt"
        files = [folder / line.rpartition("_")[0] / f"{line}.txt" for line in _lines(listed)]
        return _Found("text", _all_there(files, TEXT_PAGE), _lines(names), [listed, names])
    return _find_meshes(folder, split)


def _find_meshes(folder: Path, split: Split) -> _Found:
    kinds = sorted(path for path in folder.iterdir() if (path / split).is_dir())
    if not kinds:
        raise FileNotFoundError(
            f"{folder}: has no CLASS/{split}/*.off, no modelnet40_shape_names.txt, no "
            f"{split}_files.txt and no *_{split}.npz; {_where()}"
        )
    files: list[Path] = []
    for kind in kinds:
        meshes = sorted((kind / split).glob("*.off"))
        if not meshes:
            raise ValueError(f"{kind / split}: the class folder is empty: it has no .off files")
        files += meshes
    return _Found("meshes", files, [kind.name for kind in kinds], [])


def _where() -> str:
    return (
        f"get the meshes from {PAGE}, points with normals from {TEXT_PAGE} or HDF5 files from "
        f"{HDF5_PAGE}, unpack them and name the folder"
    )


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: is not there, and is part of the release; {_where()}")
    lines = path.read_text().split()
    if not lines:
        raise ValueError(f"{path}: is empty")
    return lines


def _all_there(files: list[Path], page: str) -> list[Path]:
    missing = [path for path in files if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{missing[0]}: is not there, nor are {len(missing) - 1} others of {len(files)} that "
            f"the lists name; get them from {page}"
        )
    return files


@dataclass(frozen=True)
class _Draw:
    """Which points of an object are taken."""

    points: int
    normals: bool
    seed: int

    def rows(self, path: Path, what: str, have: int) -> np.ndarray:  # (points,)
        return subset_rows(path, have, self.points, generator_of(self.seed, what))


def _read_meshes(found: _Found, draw: _Draw) -> Arrays:
    pos, normal, label = [], [], []
    with bar(len(found.files), "meshes") as advance:
        for path in found.files:
            try:
                shape = sample_mesh(
                    read_mesh(path), draw.points, generator_of(draw.seed, path.stem)
                )
            except ValueError as error:
                said = str(error)
                raise ValueError(said if str(path) in said else f"{path}: {said}") from error
            assert shape.normal is not None
            pos.append(unit_ball(shape.pos.numpy()))
            normal.append(shape.normal.numpy())
            label.append(found.classes.index(path.parent.parent.name))
            advance()
    return _packed([path.stem for path in found.files], pos, normal, label, draw)


def _read_text(found: _Found, draw: _Draw) -> Arrays:
    pos, normal, label = [], [], []
    with bar(len(found.files), "objects") as advance:
        for path in found.files:
            if path.parent.name not in found.classes:
                raise ValueError(f"{path}: its class is not one of {found.lists[-1]}")
            table = read_table(path, 6)
            table = table[draw.rows(path, path.stem, len(table))]
            pos.append(unit_ball(table[:, :3]))
            normal.append(table[:, 3:].astype(np.float32))
            label.append(found.classes.index(path.parent.name))
            advance()
    return _packed([path.stem for path in found.files], pos, normal, label, draw)


def _read_hdf5(found: _Found, draw: _Draw) -> Arrays:
    h5py = need("h5py", f"{found.files[0]}: reading HDF5", "hdf5")
    parts: list[Arrays] = []
    for path in found.files:
        try:
            with h5py.File(path, "r") as file:
                held = {key: np.asarray(file[key]) for key in ("data", "normal", "label", "faceId")
                        if key in file}  # fmt: skip
        except OSError as error:
            raise ValueError(f"{path}: cannot be read as HDF5: {error}") from error
        if not {"data", "label"} <= set(held):
            raise ValueError(f"{path}: has no data and label, only {', '.join(held) or 'nothing'}")
        names = [f"{path.stem}_{i:04d}" for i in range(len(held["data"]))]
        normal = held.get("normal")
        parts.append(_taken(path, held["data"], held["label"], names, normal, found, draw))
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _read_npz(found: _Found, draw: _Draw) -> Arrays:
    if len(found.files) > 1:
        raise ValueError(
            f"{found.files[0].parent}: has {len(found.files)} files of one split, "
            f"{', '.join(path.name for path in found.files)}; keep one"
        )
    (path,) = found.files
    held = read_arrays(path)
    if not {"xyz", "label"} <= set(held):
        raise ValueError(f"{path}: has no xyz and label, only {', '.join(held) or 'nothing'}")
    names = held.get("name", np.array([f"{path.stem}_{i:05d}" for i in range(len(held["xyz"]))]))
    return _taken(path, held["xyz"], held["label"], names, held.get("normal"), found, draw)


def _taken(
    path: Path,
    xyz: np.ndarray,  # (M, N, 3)
    label: np.ndarray,  # (M,) or (M, 1)
    names: np.ndarray | list[str],  # (M,)
    normal: np.ndarray | None,  # (M, N, 3)
    found: _Found,
    draw: _Draw,
) -> Arrays:
    """Checked, and as many points of every object as asked for."""
    label = label.reshape(-1)
    if xyz.ndim != 3 or xyz.shape[2] != 3 or not len(xyz) == len(label) == len(names):
        raise ValueError(
            f"{path}: has points of shape {xyz.shape}, {len(label)} labels and {len(names)} names, "
            "not (M, N, 3) and M of each"
        )
    if not np.isfinite(xyz).all():
        raise ValueError(f"{path}: has NaN or infinite coordinates")
    if draw.normals and (normal is None or normal.shape != xyz.shape):
        raise ValueError(f"{path}: has no normals of its points; leave normals out")
    check_labels(path, label, len(found.classes))
    rows = np.stack([draw.rows(path, str(name), xyz.shape[1]) for name in names])[..., None]
    out = {
        "name": np.array(names),
        "pos": np.take_along_axis(xyz, rows, 1).astype(np.float32),
        "label": label.astype(np.int64),
    }
    if draw.normals and normal is not None:
        out["normal"] = np.take_along_axis(normal, rows, 1).astype(np.float32)
    return out


def _packed(
    names: list[str],
    pos: list[np.ndarray],
    normal: list[np.ndarray],
    label: list[int],
    draw: _Draw,
) -> Arrays:
    out = {
        "name": np.array(names),
        "pos": np.stack(pos).astype(np.float32),
        "label": np.array(label, dtype=np.int64),
    }
    return out | {"normal": np.stack(normal)} if draw.normals else out


_READERS: dict[Layout, Callable[[_Found, _Draw], Arrays]] = {
    "meshes": _read_meshes,
    "text": _read_text,
    "hdf5": _read_hdf5,
    "arrays": _read_npz,
}
