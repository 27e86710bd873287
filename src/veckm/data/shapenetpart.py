"""ShapeNetPart from a folder on disk: 16 categories of objects, 50 parts in all.

- text: ``SYNSET/ID.txt`` of points, normals and part, with ``synsetoffset2category.txt`` and
  ``train_test_split/shuffled_{train,val,test}_file_list.json``;
- arrays: ``SYNSET_CATEGORY.npz`` of ``xyz``, ``part``, ``split`` and ``id``, with
  ``synsetoffset2category.txt``.

Nothing is downloaded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from veckm.data.cache import Arrays, cached, checksum, read_arrays
from veckm.data.samples import IGNORE, Batch, Stored, generator_of
from veckm.data.tables import check_labels, read_table, subset_rows, unit_ball
from veckm.progress import bar

#: The project, and the release with normals.
PAGE = "https://cs.stanford.edu/~ericyi/project_page/part_annotation"
TEXT_PAGE = (
    "https://shapenet.cs.stanford.edu/media/"
    "shapenetcore_partanno_segmentation_benchmark_v0_normal.zip"
)

#: How many parts each category has; their numbers follow one another in this order.
PARTS = {
    **{"Airplane": 4, "Bag": 2, "Cap": 2, "Car": 4, "Chair": 4, "Earphone": 3, "Guitar": 3},
    **{"Knife": 2, "Lamp": 4, "Laptop": 2, "Motorbike": 6, "Mug": 2, "Pistol": 3},
    **{"Rocket": 3, "Skateboard": 3, "Table": 3},
}
CATEGORIES = tuple(PARTS)
#: First part of each category, and the number of all parts.
FIRST = tuple(sum(list(PARTS.values())[:k]) for k in range(len(PARTS)))
NUM_PARTS = sum(PARTS.values())
_NAMES = tuple(f"{name}_{k}" for name, count in PARTS.items() for k in range(count))

Split = Literal["train", "val", "trainval", "test"]
_SPLITS = {"train": ("train",), "val": ("val",), "trainval": ("train", "val"), "test": ("test",)}


@dataclass(frozen=True)
class _Draw:
    """Which points of an object are taken, and what of them."""

    splits: tuple[str, ...]
    points: int
    normals: bool
    repeat: bool
    seed: int


def read_shapenetpart(
    folder: str | Path,
    split: Split = "trainval",
    *,
    points: int = 2048,
    normals: bool = False,
    repeat: bool = False,
    seed: int = 0,
    cache: str | Path | None = None,
) -> Stored:
    """A split of ShapeNetPart, every object as ``points`` points in the unit ball.

    Args:
        folder: in one of the layouts above.
        split: ``"train"``, ``"val"``, both as ``"trainval"``, which is what the paper trains on, or
            ``"test"``.
        points: of every object, drawn once by the seed. An object with fewer is an error.
        normals: keep the normals as features, where the layout has them.
        repeat: take points of an object with fewer a second time instead; those are not counted.
        seed: of the points.
        cache: a folder to keep the result in, for text is slow to read.

    Shapes:
        - pos: (points, 3), label: (points,), features: (points, 3) with normals
    """
    folder = Path(folder)
    if split not in _SPLITS:
        raise ValueError(f"split must be one of {', '.join(_SPLITS)}, got {split!r}")
    if points < 1:
        raise ValueError(f"points must be at least 1, got {points}")
    synsets = _synsets(folder)
    draw = _Draw(_SPLITS[split], points, normals, repeat, seed)
    arrays_there = sorted(folder.glob("*_*.npz"))
    files, owned = (
        (arrays_there, None) if arrays_there else _listed(folder, _SPLITS[split], synsets)
    )
    total = checksum(folder, [folder / "synsetoffset2category.txt", *files])
    key = {"checksum": total, "split": split, "points": points, "normals": normals}
    key |= {"repeat": repeat, "seed": seed, "format": 1}

    def make() -> Arrays:
        if owned is None:
            return _read_npz(files, synsets, draw)
        return _read_text(owned, draw)

    arrays = cached(cache, f"shapenetpart-{split}", key, make)
    pos, part = torch.from_numpy(arrays["pos"]), torch.from_numpy(arrays["part"])
    features = torch.from_numpy(arrays["normal"]) if normals else None
    batch = Batch(pos, part, features, torch.from_numpy(arrays["category"]))
    return Stored([str(n) for n in arrays["name"]], batch, _NAMES, total)


def _synsets(folder: Path) -> dict[str, int]:
    """From synset to the number of the category."""
    path = folder / "synsetoffset2category.txt"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: is not there; get the release with normals from {TEXT_PAGE} (the project is "
            f"{PAGE}), unpack it and name its folder"
        )
    rows = [line.split() for line in path.read_text().splitlines() if line.strip()]
    found = {row[1]: CATEGORIES.index(row[0]) for row in rows if row[0] in PARTS and len(row) == 2}
    if len(found) != len(rows) or not found:
        raise ValueError(
            f"{path}: must have a category and a synset a line; the categories are "
            f"{', '.join(CATEGORIES)}"
        )
    return found


def _listed(
    folder: Path, splits: tuple[str, ...], synsets: dict[str, int]
) -> tuple[list[Path], list[tuple[Path, int]]]:
    """The files of some splits with their categories, and all files that decide what is read."""
    lists, owned = [], []
    for split in splits:
        path = folder / "train_test_split" / f"shuffled_{split}_file_list.json"
        if not path.is_file():
            raise FileNotFoundError(f"{path}: is not there, and no *.npz; get it from {TEXT_PAGE}")
        lists.append(path)
        for entry in json.loads(path.read_text()):
            synset, name = str(entry).split("/")[-2:]
            if synset not in synsets:
                raise ValueError(f"{path}: names the synset {synset}, which no category has")
            owned.append((folder / synset / f"{name}.txt", synsets[synset]))
    files = [file for file, _ in owned]
    missing = [file for file in files if not file.is_file()]
    if missing or not files:
        first = missing[0] if missing else folder
        raise FileNotFoundError(
            f"{first}: is not there, nor are {max(len(missing) - 1, 0)} others of {len(files)} "
            f"that the lists name; get them from {TEXT_PAGE}"
        )
    return [*lists, *files], owned


def _read_text(owned: list[tuple[Path, int]], draw: _Draw) -> Arrays:
    rows = []
    with bar(len(owned), "objects") as advance:
        for path, category in owned:
            table = read_table(path, 7)
            rows.append(_one(path, path.stem, table[:, :3], table[:, 6], table[:, 3:6], category,
                             draw))  # fmt: skip
            advance()
    return _packed(rows)


def _read_npz(files: list[Path], synsets: dict[str, int], draw: _Draw) -> Arrays:
    rows = []
    for path in files:
        synset = path.stem.partition("_")[0]
        if synset not in synsets:
            raise ValueError(f"{path}: its name must begin with a synset of the list, such as "
                             f"{next(iter(synsets))}_")  # fmt: skip
        held = read_arrays(path)
        if not {"xyz", "part", "split", "id"} <= set(held):
            raise ValueError(f"{path}: must have xyz, part, split and id; it has {', '.join(held)}")
        if draw.normals and "normal" not in held:
            raise ValueError(f"{path}: has no normals of its points; leave normals out")
        for i in np.flatnonzero(np.isin(held["split"], draw.splits)):
            normal = held["normal"][i] if draw.normals else None
            rows.append(_one(path, str(held["id"][i]), held["xyz"][i], held["part"][i], normal,
                             synsets[synset], draw))  # fmt: skip
    if not rows:
        raise ValueError(f"{files[0].parent}: has no object of the split {'+'.join(draw.splits)}")
    return _packed(rows)


def _one(
    path: Path,
    name: str,
    xyz: np.ndarray,  # (N, 3)
    part: np.ndarray,  # (N,)
    normal: np.ndarray | None,  # (N, 3)
    category: int,
    draw: _Draw,
) -> Arrays:
    """One object, checked."""
    if not np.isfinite(xyz).all():
        raise ValueError(f"{path}: {name} has NaN or infinite coordinates")
    check_labels(path, part, PARTS[CATEGORIES[category]], FIRST[category])
    try:
        generator = generator_of(draw.seed, name)
        rows = subset_rows(path, len(xyz), draw.points, generator, draw.repeat)
    except ValueError as error:
        raise ValueError(f"{error}, or take some twice with repeat=True (--repeat)") from error
    label = part[rows].astype(np.int64)
    label[len(xyz) :] = IGNORE
    out = {
        "name": np.array(name),
        "pos": unit_ball(xyz.astype(np.float64)[rows]),
        "part": label,
        "category": np.array(category, dtype=np.int64),
    }
    if draw.normals and normal is not None:
        out["normal"] = normal[rows].astype(np.float32)
    return out


def _packed(rows: list[Arrays]) -> Arrays:
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}
