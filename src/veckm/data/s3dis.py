"""S3DIS from a folder on disk: rooms of six areas, every point with a color and a class.

- raw: ``Area_1/office_1/Annotations/chair_3.txt`` of x y z r g b, one file per object;
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
    """The rooms of a split, all in memory at 16 bytes per point.

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
    chosen = {
        name: room for name, room in found.items() if (room[0] == test_area) == (split == "test")
    }
    if not chosen:
        areas = ", ".join(map(str, sorted({area for area, _ in found.values()})))
        raise ValueError(
            f"{folder}: has no room of the {split} split with test area {test_area}; it has the "
            f"areas {areas}"
        )
    rooms = []
    with bar(len(chosen), "rooms") as advance:
        for name, (_, files) in chosen.items():
            key = {"files": checksum(folder, files), "size": (scale, voxel), "format": 1}
            # Not with Area_ in its name: the cache may be in the folder of the rooms.
            arrays = cached(
                cache,
                f"s3dis-{name.replace('_', '-')}",
                {**key, "classes": list(classes)},
                lambda files=files: _read(files, classes, scale, voxel),  # type: ignore[misc]
            )
            rooms.append(
                Room(name, *(torch.from_numpy(arrays[k]) for k in ("pos", "rgb", "label")))
            )
            advance()
    return Rooms(
        rooms, classes, checksum(folder, [f for _, files in chosen.values() for f in files])
    )


def _find(folder: Path) -> dict[str, tuple[int, list[Path]]]:
    """Area and files of every room by its name."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: is not a folder; ask for S3DIS at {PAGE}")
    prepared = sorted([*folder.glob("*.npy"), *folder.glob("*.npz")])
    rooms = {p.stem: (int(m[1]), [p]) for p in prepared if (m := _AREA.search(p.stem))}
    if rooms:
        return rooms
    for notes in sorted(folder.glob("Area_*/*/Annotations")):
        name = f"{notes.parent.parent.name}_{notes.parent.name}"
        match = _AREA.fullmatch(name)
        if match is None:
            continue
        files = sorted(notes.glob("*.txt"))
        if not files:
            raise ValueError(f"{notes}: the room is empty: it has no .txt files")
        rooms[name] = int(match[1]), files
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
    out = {
        "pos": pos.astype(np.float32),
        "rgb": rgb.astype(np.uint8),
        "label": label.astype(np.uint8),
    }
    if voxel is None:
        return out
    cell = np.floor(pos / voxel).astype(np.int64)
    rows = np.sort(np.unique(cell, axis=0, return_index=True)[1])  # the first point of every cube
    return {name: array[rows] for name, array in out.items()}


def _read_raw(
    files: Sequence[Path], classes: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # (N, 3), (N, 3), (N,)
    tables, labels = [], []
    for path in files:
        kind = path.stem.rpartition("_")[0]
        name = kind if kind in classes else "clutter"
        if name not in classes:
            raise ValueError(f"{path}: {kind!r} is not one of the classes {', '.join(classes)}")
        tables.append(read_table(path, 6))
        labels.append(np.full(len(tables[-1]), classes.index(name)))
    table = np.concatenate(tables)
    return table[:, :3], table[:, 3:], np.concatenate(labels)


def _read_prepared(
    path: Path, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # (N, 3), (N, 3), (N,)
    if path.suffix == ".npz":
        held = read_arrays(path)
        if not {"xyz", "rgb", "label"} <= set(held):
            raise ValueError(f"{path}: must have xyz, rgb and label; it has {', '.join(held)}")
        xyz, rgb, label = held["xyz"], held["rgb"], held["label"]
    else:
        with path.open("rb") as file:
            try:
                table = np.load(file, allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise ValueError(f"{path}: cannot be read: {error}") from error
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
