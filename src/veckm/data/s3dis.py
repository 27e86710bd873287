"""S3DIS from a folder on disk: rooms of six areas, every point with a color and a class.

- raw: ``Area_1/office_1/Annotations/chair_3.txt`` of x y z r g b, one file per object;
- prepared: ``Area_1_office_1.npy`` of x y z r g b label, or ``.npz`` of ``xyz``, ``rgb`` and
  ``label``. Anything may come before ``Area_``.

Other scenes in areas work in the prepared layout too, with their own classes. Nothing is
downloaded. Networks take samples of the rooms: columns of one meter, or crops and whole scenes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from veckm.data.reading import Arrays, cached, check_labels, checksum, read_arrays, read_table
from veckm.data.samples import Sample, Samples, pick_points
from veckm.progress import bar

#: Where the rooms are.
PAGE = "http://buildingparser.stanford.edu/dataset.html"

#: The thirteen, in the customary order; other objects of the raw rooms are clutter.
CLASSES = (
    *("ceiling", "floor", "wall", "beam", "column", "window", "door", "table", "chair"),
    *("sofa", "bookcase", "board", "clutter"),
)

Split = Literal["train", "test"]
_AREA = re.compile(r"Area_(\d+)_(.+)")
_Columns = tuple[np.ndarray, np.ndarray, np.ndarray]  # (N, 3) xyz, (N, 3) rgb, (N,) label


def read_s3dis(
    folder: str | Path,
    split: Split = "train",
    *,
    test_area: int = 5,
    classes: Sequence[str] = CLASSES,
    scale: float = 1.0,
    voxel: float | None = None,
    cache: str | Path | None = None,
) -> Samples:
    """The rooms of a split, all in memory at 16 bytes per point.

    Networks take :class:`veckm.data.Blocks` or :class:`veckm.data.Scenes` of them.

    Args:
        folder: in one of the layouts above.
        split: ``"test"`` is the area ``test_area``, ``"train"`` all the others; take validation
            from train, by :func:`veckm.data.samples.hold_out`.
        test_area: 5 in the paper.
        classes: the names of the labels.
        scale: all coordinates times this. Networks and blocks expect rooms in meters; 0.1 brings
            a park to the size of a room.
        voxel: keep one point of every cube with this side, after scaling; None for all points.
        cache: a folder to keep every room in, since text is slow to read.

    Shapes:
        - pos: (N, 3) float32, from the lowest corner of the room
        - features: (N, 3) uint8, the colors
        - label: (N,) uint8
    """
    folder = Path(folder)
    if split not in ("train", "test"):
        raise ValueError(f"split must be train or test, got {split!r}")
    if not scale > 0 or (voxel is not None and not voxel > 0):
        raise ValueError(f"scale and voxel must be positive, got {scale!r} and {voxel!r}")
    found = _find(folder)
    test = split == "test"
    chosen = {name: f for name, f in found.items() if (_area(name) == test_area) == test}
    if not chosen:
        areas = ", ".join(map(str, sorted({_area(name) for name in found})))
        raise ValueError(
            f"{folder}: has no room of the {split} split with test area {test_area}; it has the "
            f"areas {areas}"
        )
    rooms = []
    with bar(len(chosen), "rooms") as advance:
        for name, files in chosen.items():
            key = {"files": checksum(folder, files), "size": (scale, voxel), "format": 1}
            # Not with Area_ in its name: the cache may be in the folder of the rooms.
            kept_as = f"s3dis-{name.replace('_', '-')}"
            read = partial(_read, files, classes, scale, voxel)
            arrays = cached(cache, kept_as, {**key, "classes": list(classes)}, read)
            pos, label, rgb = (torch.from_numpy(arrays[k]) for k in ("pos", "label", "rgb"))
            rooms.append(Sample(name, pos, label, rgb))
            advance()
    return Samples(rooms, classes, checksum(folder, [f for fs in chosen.values() for f in fs]))


def _area(name: str) -> int:
    match = _AREA.search(name)
    return int(match[1]) if match else -1


def _find(folder: Path) -> dict[str, list[Path]]:
    """The files of every room by its name."""
    prepared = sorted([*folder.glob("*.npy"), *folder.glob("*.npz")])
    if rooms := {path.stem: [path] for path in prepared if _AREA.search(path.stem)}:
        return rooms
    for notes in sorted(folder.glob("Area_*/*/Annotations")):
        name = f"{notes.parent.parent.name}_{notes.parent.name}"
        if not _AREA.fullmatch(name):
            continue
        rooms[name] = sorted(notes.glob("*.txt"))
        if not rooms[name]:
            raise ValueError(f"{notes}: the room is empty: it has no .txt files")
    if not rooms:
        raise FileNotFoundError(
            f"{folder}: has no Area_K/ROOM/Annotations/*.txt and no Area_K_ROOM.npy or .npz; "
            f"ask for S3DIS at {PAGE}"
        )
    return rooms


def _read(
    files: Sequence[Path], classes: Sequence[str], scale: float, voxel: float | None
) -> Arrays:
    """The points of a room from its lowest corner, thinned to one per voxel."""
    raw = files[0].suffix == ".txt"
    xyz, rgb, label = _read_raw(files, classes) if raw else _read_prepared(files[0], len(classes))
    if not (rgb.min() >= 0 and rgb.max() <= 255):
        raise ValueError(f"{files[0]}: has colors {rgb.min()} to {rgb.max()}, not 0 to 255")
    pos = scale * (xyz - xyz.min(0))
    rows = np.arange(len(pos))
    if voxel is not None:  # the first point of every cube
        cell = np.floor(pos / voxel).astype(np.int64)
        rows = np.sort(np.unique(cell, axis=0, return_index=True)[1])
    colors, labels = rgb[rows].astype(np.uint8), label[rows].astype(np.uint8)
    return {"pos": pos[rows].astype(np.float32), "rgb": colors, "label": labels}


def _read_raw(files: Sequence[Path], classes: Sequence[str]) -> _Columns:
    tables, labels = [], []
    for path in files:
        kind = path.stem.rpartition("_")[0]
        name = kind if kind in classes else "clutter"
        if name not in classes:
            raise ValueError(f"{path}: {kind!r} is not one of the classes {', '.join(classes)}")
        tables.append(read_table(path, 6))
        labels.append(np.full(len(tables[-1]), classes.index(name)))
    xyz, rgb = np.split(np.concatenate(tables), (3,), axis=1)
    return xyz, rgb, np.concatenate(labels)


def _read_prepared(path: Path, count: int) -> _Columns:
    if path.suffix == ".npz":
        held = read_arrays(path, "xyz", "rgb", "label")
        xyz, rgb, label = held["xyz"], held["rgb"], held["label"]
    else:
        table = read_arrays(path)["array"]
        if table.ndim != 2 or table.shape[1] != 7:
            raise ValueError(f"{path}: has shape {table.shape}, not (N, 7) of x y z r g b label")
        xyz, rgb, label = table[:, :3], table[:, 3:6], table[:, 6]
    if xyz.ndim != 2 or not len(xyz) or xyz.shape != rgb.shape or label.shape != xyz.shape[:1]:
        raise ValueError(
            f"{path}: has {xyz.shape} points, {rgb.shape} colors and {label.shape} labels, not "
            "(N, 3), (N, 3) and (N,)"
        )
    if not np.isfinite(xyz).all():
        raise ValueError(f"{path}: has NaN or infinite coordinates")
    check_labels(path, label, count)
    return xyz.astype(np.float64), rgb, label


class Blocks(Samples):
    """Rooms cut into square columns with equally many points each.

    Positions are relative to the center of the column and the floor; the features of a point are
    its color and its position in the room, from 0 to 1 on each axis.

    Args:
        rooms: as :func:`veckm.data.read_s3dis` returns them.
        size: of a column, in meters.
        points: of a sample.
        stride: from one column to the next; half of ``size`` gives more training samples.
        least: columns with fewer points are left out, unless ``every``.
        every: for evaluation: a column with many points becomes several samples, so that every
            point is in one of them. Otherwise each draw is a random choice. Points that are
            repeated to fill a sample are ignored.

    Shapes:
        - pos: (points, 3), features: (points, 6), label: (points,)
    """

    def __init__(
        self,
        rooms: Samples,
        size: float = 1.0,
        points: int = 4096,
        stride: float | None = None,
        least: int = 100,
        every: bool = False,
    ) -> None:
        step = size if stride is None else stride
        if size <= 0 or not 0 < step <= size or points < 1:
            raise ValueError(
                f"a block needs a positive size, a stride of at most that and a point or more, got "
                f"{size!r}, {step!r} and {points!r}"
            )
        if every and step != size:
            raise ValueError("with every=True blocks must not overlap: leave stride out")
        # The room, its extent, the center of the column and the rows of its points.
        entries: list[tuple[Sample, Tensor, tuple[float, float], Tensor]] = []
        for room in rooms:
            extent = room.pos.amax(0).clamp_min(1e-6)
            for middle, rows in _columns(room.pos, size, step):
                if every:
                    entries += [(room, extent, middle, part) for part in rows.split(points)]
                elif len(rows) >= least:
                    entries.append((room, extent, middle, rows))
        if not entries:
            raise ValueError(f"none of {len(rooms)} rooms has a block of {least} points or more")
        made = f"{rooms.checksum}/{size:g}/{step:g}/{points}/{least}/{every}"
        super().__init__(entries, rooms.classes, made)
        self.points = points

    def draw(self, index: int, generator: torch.Generator | None = None) -> Sample:
        """Block ``index``."""
        room, extent, middle, rows = self.entries[index]
        block = _network_input(room.select(rows))
        assert block.features is not None
        features = torch.cat((block.features, block.pos / extent), 1)
        pos = block.pos - torch.tensor([*middle, 0.0])
        block = replace(block, name=f"{block.name} block {index}", pos=pos, features=features)
        return pick_points(block, self.points, generator or torch.Generator().manual_seed(index))


def _columns(
    pos: Tensor, size: float, step: float
) -> list[tuple[tuple[float, float], Tensor]]:  # (x, y), (K,)
    """Center and rows of every column that has points, the rows in random order.

    Random, so that the samples of one column are alike.
    """
    xy = pos[:, :2].numpy().astype(np.float64)
    found = []
    per = round(size / step) if step < size else 1
    # Overlapping columns are `per` shifted grids on each axis; a grid is one sort.
    for shift in np.ndindex(per, per):
        corner = -step * np.array(shift)
        cell = np.floor((xy - corner) / size).astype(np.int64)
        key = cell[:, 0] * (int(cell[:, 1].max()) + 1) + cell[:, 1]
        shuffled = np.random.default_rng(len(key)).permutation(len(key))
        order = shuffled[np.argsort(key[shuffled], kind="stable")]
        for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
            x, y = corner + (cell[rows[0]] + 0.5) * size
            found.append(((float(x), float(y)), torch.from_numpy(rows)))
    return found


class Scenes(Samples):
    """Whole scenes, or the part of each that is nearest to one of its points.

    Args:
        rooms: as :func:`veckm.data.read_s3dis` returns them, best with a voxel.
        points: of a sample: those nearest to a random point, which a generator chooses, else to
            the middle of the room. Points of smaller rooms are repeated, and the repetitions
            ignored. None for all points of every room.

    Shapes:
        - pos: (N, 3) about the middle of the floor, features: (N, 3), label: (N,)
    """

    def __init__(self, rooms: Samples, points: int | None = None) -> None:
        if points is not None and points < 1:
            raise ValueError(f"points must be at least 1, got {points}")
        super().__init__(rooms, rooms.classes, f"{rooms.checksum}/{points}")
        self.points = points

    def draw(self, index: int, generator: torch.Generator | None = None) -> Sample:
        """Scene ``index``."""
        scene: Sample = self.entries[index]
        middle = scene.pos.mean(0)
        if self.points is not None and len(scene.pos) > self.points:
            if generator is not None:
                middle = scene.pos[int(torch.randint(len(scene.pos), (1,), generator=generator))]
            distance = (scene.pos - middle).square().sum(-1)
            scene = scene.select(distance.argsort(stable=True)[: self.points])
        scene = _network_input(scene)
        if self.points is not None and len(scene.pos) < self.points:
            generator = generator or torch.Generator().manual_seed(index)
            scene = pick_points(scene, self.points, generator)
        low, high = scene.pos.amin(0), scene.pos.amax(0)
        origin = torch.stack(((low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]))
        return replace(scene, pos=scene.pos - origin)


def _network_input(room: Sample) -> Sample:
    """Colors from 0 to 1 and labels as networks expect them, from the bytes that are kept."""
    assert room.features is not None
    return replace(room, features=room.features.float() / 255, label=room.label.long())
