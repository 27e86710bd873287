"""What training and evaluation of networks share: the task, its data and its model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from tyro.conf import Positional, arg

from veckm.data.modelnet import read_modelnet
from veckm.data.rooms import Blocks, Scenes
from veckm.data.s3dis import CLASSES, Rooms, read_s3dis
from veckm.data.samples import Samples, hold_out, take
from veckm.data.shapenetpart import read_shapenetpart
from veckm.tasks.classification import Classification
from veckm.tasks.part_segmentation import PartSegmentation
from veckm.tasks.semantic_segmentation import SemanticSegmentation

if TYPE_CHECKING:
    from veckm.models import PointModel

AnyTask = Classification | PartSegmentation | SemanticSegmentation

Folder = Positional[Annotated[Path, arg(metavar="FOLDER")]]
Cache = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: none)")]
Limit = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: all)")]
Voxel = Annotated[float | None, arg(metavar="METERS", help_behavior_hint="(default: all points)")]


@dataclass(frozen=True)
class Objects:
    """Where objects come from, for classification and part segmentation."""

    folder: Path
    points: int
    normals: bool = False
    repeat: bool = False
    cache: Path | None = None

    def classified(self, split: Literal["train", "test"]) -> Samples:
        """ModelNet."""
        return read_modelnet(
            self.folder, split, points=self.points, normals=self.normals, cache=self.cache
        )

    def parts(self, split: Literal["trainval", "test"]) -> Samples:
        """ShapeNetPart; the paper trains on both the train and the validation split."""
        return read_shapenetpart(
            self.folder,
            split,
            points=self.points,
            normals=self.normals,
            repeat=self.repeat,
            cache=self.cache,
        )


@dataclass(frozen=True)
class Places:
    """Where scenes come from, and what a network sees of them."""

    folder: Path
    points: int
    test_area: int = 5
    classes: tuple[str, ...] = CLASSES
    scenes: bool = False
    scale: float = 1.0
    voxel: float | None = None
    cache: Path | None = None

    def rooms(self, split: Literal["train", "test"]) -> Rooms:
        """S3DIS, or scenes in its prepared layout."""
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


def part(
    samples: Samples, limit: int | None, share: float, seed: int
) -> tuple[Samples, Samples | None]:
    """At most ``limit`` samples, and a share of them held out for validation if it is not 0."""
    samples = samples if limit is None else take(samples, limit, seed)
    return (samples, None) if share == 0 else hold_out(samples, share, seed)


def part_rooms(
    rooms: Rooms, limit: int | None, share: float, seed: int
) -> tuple[Rooms, Rooms | None]:
    """The same of rooms."""
    rooms = rooms if limit is None else rooms.only(take(rooms, limit, seed).indices)
    return (rooms, None) if share == 0 else rooms.parted(share, seed)


def device_of(name: str) -> torch.device:
    """The device of that name; for ``auto`` CUDA where there is some, this process's own."""
    if name != "auto":
        return torch.device(name)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def check_model(name: str, task: str) -> None:
    """Raise for a name that the task has no network of, before any data is read."""
    from veckm.models import list_models

    names = list_models(task)  # type: ignore[arg-type]
    if name not in names:
        raise ValueError(f"--model {name}: the networks for {task} are {', '.join(names)}")


def make_model(settings: dict[str, Any]) -> tuple[PointModel, int]:
    """The model of these settings, and how many real numbers it learns."""
    from veckm.models import create_model, parameter_count  # seven networks, not for other verbs

    model = create_model(**settings)
    return model, parameter_count(model)


def table(scores: dict[str, float]) -> str:
    """Metrics in per cent, one a line."""
    return "\n".join(f"{name:<18} {100 * value:6.2f} %" for name, value in scores.items())
