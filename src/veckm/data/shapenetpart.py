"""ShapeNetPart from a folder on disk: 16 categories of objects, 50 parts in all.

- text: ``SYNSET/ID.txt`` of points, normals and part, with ``synsetoffset2category.txt`` and
  ``train_test_split/shuffled_{train,val,test}_file_list.json``;
- arrays: ``SYNSET_CATEGORY.npz`` of ``xyz``, ``part``, ``split`` and ``id``, with
  ``synsetoffset2category.txt``.

Nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from veckm.data.reading import Arrays, Release, check_files, objects_of, read_arrays, read_table
from veckm.data.samples import Sample, Samples

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


def read_shapenetpart(
    folder: str | Path,
    split: Split = "trainval",
    *,
    points: int = 2048,
    normals: bool = False,
    repeat: bool = False,
    seed: int = 0,
    cache: str | Path | None = None,
) -> Samples:
    """A split of ShapeNetPart, every object as ``points`` points in the unit ball.

    Args:
        folder: in one of the layouts above.
        split: ``"train"``, ``"val"``, both as ``"trainval"``, which is what the paper trains on, or
            ``"test"``.
        points: of every object, drawn once by the seed. An object with fewer is an error.
        normals: keep the normals as features, where the layout has them.
        repeat: take points of a smaller object a second time instead; their label is ignored.
        seed: of the points.
        cache: a folder to keep the result in, since text is slow to read.

    Shapes:
        - pos: (points, 3), label: (points,), features: (points, 3) with normals
    """
    folder = Path(folder)
    if split not in _SPLITS:
        raise ValueError(f"split must be one of {', '.join(_SPLITS)}, got {split!r}")
    synset_file = folder / "synsetoffset2category.txt"
    synsets = _synsets(synset_file)
    if files := sorted(folder.glob("*_*.npz")):
        read = partial(_read_npz, synsets, _SPLITS[split])
        found = Release(folder, files, [synset_file], _NAMES, read)
    else:
        of_splits = [f"train_test_split/shuffled_{s}_file_list.json" for s in _SPLITS[split]]
        lists = [folder / name for name in of_splits]
        check_files(lists, TEXT_PAGE)
        files = check_files([f for path in lists for f in _listed(path, synsets)], TEXT_PAGE)
        found = Release(folder, files, [synset_file, *lists], _NAMES, partial(_read_text, synsets))
    name = f"shapenetpart-{split}"
    return found.load(name, cache, points=points, normals=normals, seed=seed, repeat=repeat)


def _synsets(path: Path) -> dict[str, int]:
    """From synset to the number of the category."""
    lines = check_files([path], f"{TEXT_PAGE} (the project is {PAGE})")[0].read_text().splitlines()
    rows = [line.split() for line in lines if line.strip()]
    found = {row[1]: CATEGORIES.index(row[0]) for row in rows if row[0] in PARTS and len(row) == 2}
    if len(found) != len(rows) or not found:
        raise ValueError(
            f"{path}: must have a category and a synset per line; the categories are "
            f"{', '.join(CATEGORIES)}"
        )
    return found


def _listed(path: Path, synsets: dict[str, int]) -> Iterator[Path]:
    """The files that a list names."""
    for entry in json.loads(path.read_text()):
        synset, name = str(entry).split("/")[-2:]
        if synset not in synsets:
            raise ValueError(f"{path}: names the synset {synset}, which no category has")
        yield path.parent.parent / synset / f"{name}.txt"


def _read_text(synsets: dict[str, int], path: Path) -> Iterator[Sample]:
    xyz, normal, part = np.split(read_table(path, 7)[None], (3, 6), axis=2)
    held = {"name": np.array([path.stem]), "xyz": xyz, "label": part[..., 0], "normal": normal}
    return _objects(path, held, synsets[path.parent.name])


def _read_npz(synsets: dict[str, int], splits: tuple[str, ...], path: Path) -> Iterator[Sample]:
    synset = path.stem.partition("_")[0]
    if synset not in synsets:
        example = f"{next(iter(synsets))}_"
        raise ValueError(f"{path}: its name must begin with a synset, such as {example}")
    held = read_arrays(path, "xyz", "part", "split", "id")
    rows = np.isin(held.pop("split"), splits)
    held = {key: array[rows] for key, array in held.items()}
    return _objects(path, {**held, "name": held["id"], "label": held["part"]}, synsets[synset])


def _objects(path: Path, held: Arrays, category: int) -> Iterator[Sample]:
    for sample in objects_of(path, held, PARTS[CATEGORIES[category]], FIRST[category]):
        yield replace(sample, category=category)
