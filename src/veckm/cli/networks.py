"""What training and evaluation of networks share: options and reading of the data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from tyro.conf import Positional, arg

from veckm.cli.verb import Flag, Verb
from veckm.data.modelnet import read_modelnet
from veckm.data.rooms import Blocks, Scenes
from veckm.data.s3dis import read_s3dis
from veckm.data.samples import Samples, take
from veckm.data.shapenetpart import read_shapenetpart
from veckm.tasks.labeling import Classification, PartSegmentation, SemanticSegmentation

AnyTask = Classification | PartSegmentation | SemanticSegmentation
Split = Literal["train", "test"]

Folder = Positional[Annotated[Path, arg(metavar="FOLDER")]]
Cache = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: none)")]
Limit = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: all)")]
Voxel = Annotated[float | None, arg(metavar="METERS", help_behavior_hint="(default: all points)")]


@dataclass(frozen=True, kw_only=True)
class NetworkVerb(Verb):
    """Options of training and evaluation."""

    limit: Limit = None
    """Use K objects or rooms only, chosen by the seed."""
    cache: Cache = None
    """Where to keep what was read, for the next time."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""

    def limited(self, samples: Samples, seed: int = 0) -> Samples:
        """At most ``limit`` of the samples."""
        return samples if self.limit is None else take(samples, self.limit, seed)

    def read_objects(
        self, task: AnyTask, folder: Path, split: Split, *, normals: bool, repeat: bool = False
    ) -> Samples:
        """ModelNet, or ShapeNetPart, of which the paper trains on train and validation splits."""
        options: dict[str, Any] = {"points": task.points, "normals": normals, "cache": self.cache}
        if isinstance(task, Classification):
            return read_modelnet(folder, split, **options)
        named: Literal["trainval", "test"] = "trainval" if split == "train" else "test"
        return read_shapenetpart(folder, named, repeat=repeat, **options)


@dataclass(frozen=True, kw_only=True)
class SceneVerb(NetworkVerb):
    """Options of S3DIS, or of scenes in its prepared layout, as blocks of one meter or whole."""

    test_area: int = 5
    """The area that training leaves out and evaluation measures on."""
    scenes: Flag = False
    """Whole scenes, or crops of them in training, instead of blocks of one meter."""
    scale: float = 1.0
    """All coordinates times this: networks expect rooms in meters."""
    voxel: Voxel = None
    """Keep one point of every cube of this side."""

    def read_rooms(
        self, folder: Path, split: Split, classes: tuple[str, ...], seed: int = 0
    ) -> Samples:
        """At most ``limit`` rooms of a split."""
        rooms = read_s3dis(
            folder,
            split,
            test_area=self.test_area,
            classes=classes,
            scale=self.scale,
            voxel=self.voxel,
            cache=self.cache,
        )
        return self.limited(rooms, seed)

    def to_train(self, rooms: Samples, points: int) -> Samples:
        """Overlapping blocks, or crops of scenes."""
        if self.scenes:
            return Scenes(rooms, points)
        return Blocks(rooms, points=points, stride=0.5)

    def to_test(self, rooms: Samples, points: int) -> Samples:
        """Every point once."""
        return Scenes(rooms) if self.scenes else Blocks(rooms, points=points, every=True)


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
