"""S3DIS from a folder on disk: rooms of six areas, every point with a color and a class.

- raw: ``Area_1/office_1/Annotations/chair_3.txt`` of x y z r g b, one file an object;
- prepared: ``Area_1_office_1.npy`` of x y z r g b label, or ``.npz`` of ``xyz``, ``rgb`` and
  ``label``. Anything may come before ``Area_``.

Other scenes in areas work in the prepared layout too, with their own classes. Nothing is
downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from veckm.data.cache import Arrays, cached, checksum, read_arrays
from veckm.data.samples import Sample, Samples, Subset, hold_out
from veckm.data.tables import check_labels, read_table
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


@dataclass(frozen=True)
class _Source:
    """One room on disk."""

    area: int
    name: str
    files: tuple[Path, ...]


@dataclass(frozen=True, eq=False)
class Room:
    """Points of a room, from its lowest corner.

    Shapes:
        - pos: (N, 3) float32 in meters, rgb: (N, 3) uint8, label: (N,) uint8
    """

    name: str
    pos: Tensor
    rgb: Tensor
    label: Tensor


class Rooms(Samples):
    """Whole rooms, of different sizes; colors in [0, 1] are their features."""

    def __init__(self, rooms: Sequence[Room], classes: Sequence[str], checksum: str = "") -> None:
        self.rooms = list(rooms)
        self.classes, self.checksum = tuple(classes), checksum

    def __len__(self) -> int:
        return len(self.rooms)

    def draw(self, index: int, generator: torch.Generator | None = None) -> Sample:  # noqa: ARG002
        """Room ``index`` with all its points."""
        room = self.rooms[index]
        return Sample(room.name, room.pos, room.label.long(), room.rgb.float() / 255)

    def parted(self, share: float, seed: int = 0) -> tuple[Rooms, Rooms]:
        """Rooms to train on and rooms to validate on: see :func:`veckm.data.samples.hold_out`."""
        train, validation = (self.only(part.indices) for part in hold_out(self, share, seed))
        return train, validation

    def only(self, indices: Sequence[int]) -> Rooms:
        """Some of the rooms."""
        chosen = Subset(self, indices)
        return Rooms([self.rooms[i] for i in chosen.indices], self.classes, chosen.checksum)


def read_s3dis(
    folder: str | Path,
    split: Split = "train",
    *,
    test_area: int = 5,
    classes: Sequence[str] = CLASSES,
    scale: float = 1.0,
    voxel: float | None = None,
    cache: str | Path | None = None,
) -> Rooms:
    """The rooms of a split, all in memory at 16 bytes a point.

    Args:
        folder: in one of the layouts above.
        split: ``"test"`` is the area ``test_area``, ``"train"`` all the others; validation comes
            out of train, by :meth:`veckm.data.s3dis.Rooms.parted`.
        test_area: 5 in the paper.
        classes: the names of the labels.
        scale: all coordinates times this. Networks and blocks expect rooms in meters; 0.1 brings
            a park to the size of a room.
        voxel: keep one point of every cube with this side, after scaling; None for all points.
        cache: a folder to keep every room in, for text is slow to read.
    """
    folder = Path(folder)
    if split not in ("train", "test"):
        raise ValueError(f"split must be train or test, got {split!r}")
    if not scale > 0 or (voxel is not None and not voxel > 0):
        raise ValueError(f"scale and voxel must be positive, got {scale!r} and {voxel!r}")
    found = _find(folder)
    chosen = [room for room in found if (room.area == test_area) == (split == "test")]
    if not chosen:
        areas = sorted({room.area for room in found})
        raise ValueError(
            f"{folder}: has no room of the {split} split with test area {test_area}; it has the "
            f"areas {', '.join(map(str, areas))}"
        )
    rooms = []
    with bar(len(chosen), "rooms") as advance:
        for source in chosen:
            rooms.append(_load(folder, source, classes, (scale, voxel), cache))
            advance()
    return Rooms(rooms, classes, checksum(folder, [f for room in chosen for f in room.files]))


def _load(
    folder: Path,
    source: _Source,
    classes: Sequence[str],
    size: tuple[float, float | None],  # scale and voxel
    cache: str | Path | None,
) -> Room:
    key = {"files": checksum(folder, source.files), "size": size, "classes": list(classes)}
    # Not with Area_ in its name: the cache may be in the folder of the rooms.
    name = f"s3dis-{source.name.replace('_', '-')}"
    arrays = cached(cache, name, {**key, "format": 1}, lambda: _read(source, classes, *size))
    pos, rgb, label = (torch.from_numpy(arrays[k]) for k in ("pos", "rgb", "label"))
    return Room(source.name, pos, rgb, label)


def _find(folder: Path) -> list[_Source]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: is not a folder; ask for S3DIS at {PAGE}")
    rooms: list[_Source] = []
    for path in sorted([*folder.glob("*.npy"), *folder.glob("*.npz")]):
        match = _AREA.search(path.stem)
        if match:
            rooms.append(_Source(int(match[1]), path.stem, (path,)))
    if rooms:
        return rooms
    for notes in sorted(folder.glob("Area_*/*/Annotations")):
        match = re.fullmatch(r"Area_(\d+)", notes.parent.parent.name)
        if match is None:
            continue
        files = tuple(sorted(notes.glob("*.txt")))
        if not files:
            raise ValueError(f"{notes}: the room is empty: it has no .txt files")
        rooms.append(_Source(int(match[1]), f"Area_{match[1]}_{notes.parent.name}", files))
    if not rooms:
        raise FileNotFoundError(
            f"{folder}: has no Area_K/ROOM/Annotations/*.txt and no Area_K_ROOM.npy or .npz; "
            f"ask for S3DIS at {PAGE}"
        )
    return rooms


def _read(source: _Source, classes: Sequence[str], scale: float, voxel: float | None) -> Arrays:
    if source.files[0].suffix == ".txt":
        table = _read_raw(source.files, classes)
    else:
        table = _read_prepared(source.files[0], len(classes))
    xyz = scale * (table["xyz"] - table["xyz"].min(0))
    rows = slice(None) if voxel is None else _thinned(xyz, voxel)
    return {
        "pos": xyz[rows].astype(np.float32),
        "rgb": table["rgb"][rows],
        "label": table["label"][rows],
    }


def _read_raw(files: Sequence[Path], classes: Sequence[str]) -> Arrays:
    parts, labels = [], []
    for path in files:
        kind = path.stem.rpartition("_")[0]
        other = "clutter" if "clutter" in classes else None
        name = kind if kind in classes else other
        if name is None:
            raise ValueError(f"{path}: {kind!r} is not one of the classes {', '.join(classes)}")
        parts.append(read_table(path, 6))
        labels.append(np.full(len(parts[-1]), classes.index(name), dtype=np.uint8))
    table = np.concatenate(parts)
    rgb = _colors(files[0].parent, table[:, 3:])
    return {"xyz": table[:, :3], "rgb": rgb, "label": np.concatenate(labels)}


def _read_prepared(path: Path, count: int) -> Arrays:
    if path.suffix == ".npz":
        held = read_arrays(path)
        if not {"xyz", "rgb", "label"} <= set(held):
            raise ValueError(f"{path}: must have xyz, rgb and label; it has {', '.join(held)}")
        xyz, rgb, label = held["xyz"].astype(np.float64), held["rgb"], held["label"]
    else:
        with path.open("rb") as file:
            try:
                table = np.load(file, allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise ValueError(f"{path}: cannot be read: {error}") from error
        if table.ndim != 2 or table.shape[1] != 7:
            raise ValueError(f"{path}: has shape {table.shape}, not (N, 7) of x y z r g b label")
        xyz, rgb, label = table[:, :3].astype(np.float64), table[:, 3:6], table[:, 6]
    if xyz.ndim != 2 or not len(xyz) or xyz.shape != rgb.shape or label.shape != xyz.shape[:1]:
        raise ValueError(f"{path}: has {xyz.shape} points, {rgb.shape} colors and {label.shape} "
                         "labels, not (N, 3), (N, 3) and (N,)")  # fmt: skip
    if not np.isfinite(xyz).all():
        raise ValueError(f"{path}: has NaN or infinite coordinates")
    check_labels(path, label, count)
    return {"xyz": xyz, "rgb": _colors(path, rgb), "label": label.astype(np.uint8)}


def _colors(path: Path, rgb: np.ndarray) -> np.ndarray:  # (N, 3) uint8
    if not (rgb.min() >= 0 and rgb.max() <= 255):
        raise ValueError(f"{path}: has colors {rgb.min()} to {rgb.max()}, not 0 to 255")
    return rgb.astype(np.uint8)


def _thinned(xyz: np.ndarray, voxel: float) -> np.ndarray:  # (M,)
    """The first point of every cube, in the order of the file."""
    cell = np.floor(xyz / voxel).astype(np.int64)
    return np.sort(np.unique(cell, axis=0, return_index=True)[1])
