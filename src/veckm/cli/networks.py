"""What training and evaluation of networks share: options, the scenes, the device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from tyro.conf import Positional, arg

from veckm.data.modelnet import read_modelnet
from veckm.data.rooms import Blocks, Scenes
from veckm.data.s3dis import CLASSES, Rooms, read_s3dis
from veckm.data.samples import Samples
from veckm.data.shapenetpart import read_shapenetpart
from veckm.tasks.classification import Classification
from veckm.tasks.part_segmentation import PartSegmentation
from veckm.tasks.semantic_segmentation import SemanticSegmentation

AnyTask = Classification | PartSegmentation | SemanticSegmentation

Folder = Positional[Annotated[Path, arg(metavar="FOLDER")]]
Cache = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: none)")]
Limit = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: all)")]
Voxel = Annotated[float | None, arg(metavar="METERS", help_behavior_hint="(default: all points)")]


def read_objects(
    task: Classification | PartSegmentation,
    folder: Path,
    split: Literal["train", "test"],
    *,
    normals: bool,
    repeat: bool = False,
    cache: Path | None,
) -> Samples:
    """ModelNet, or ShapeNetPart, of which the paper trains on the train and validation splits."""
    if isinstance(task, Classification):
        return read_modelnet(folder, split, points=task.points, normals=normals, cache=cache)
    return read_shapenetpart(
        folder,
        "trainval" if split == "train" else "test",
        points=task.points,
        normals=normals,
        repeat=repeat,
        cache=cache,
    )


@dataclass(frozen=True)
class SceneReader:
    """S3DIS, or scenes in its prepared layout, as blocks of one meter or whole."""

    folder: Path
    points: int
    test_area: int = 5
    classes: tuple[str, ...] = CLASSES
    scenes: bool = False
    scale: float = 1.0
    voxel: float | None = None
    cache: Path | None = None

    def rooms(self, split: Literal["train", "test"]) -> Rooms:
        """All rooms of a split."""
        return read_s3dis(
            self.folder,
            split,
            test_area=self.test_area,
            classes=self.classes,
            scale=self.scale,
            voxel=self.voxel,
            cache=self.cache,
        )

    def to_train(self, rooms: Rooms) -> Samples:
        """Overlapping blocks, or crops of scenes."""
        if self.scenes:
            return Scenes(rooms, self.points, exact=True)
        return Blocks(rooms, points=self.points, stride=0.5)

    def to_test(self, rooms: Rooms) -> Samples:
        """Every point once."""
        return Scenes(rooms) if self.scenes else Blocks(rooms, points=self.points, every=True)


def device_of(name: str) -> torch.device:
    """The device of that name; for ``auto`` this process's CUDA device where there is one."""
    if name != "auto":
        return torch.device(name)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def table(scores: dict[str, float]) -> str:
    """Metrics in percent, one per line."""
    return "\n".join(f"{name:<18} {100 * value:6.2f} %" for name, value in scores.items())
