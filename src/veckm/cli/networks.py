"""The data of networks: options and reading that training and evaluation share."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from tyro.conf import Positional, arg

from veckm.cli.verb import Flag, Verb, option
from veckm.data.modelnet import read_modelnet
from veckm.data.s3dis import Blocks, Scenes, read_s3dis
from veckm.data.samples import Samples, take
from veckm.data.shapenetpart import read_shapenetpart
from veckm.tasks.labeling import Classification, PartSegmentation, SemanticSegmentation

AnyTask = Classification | PartSegmentation | SemanticSegmentation

Folder = Positional[Annotated[Path, arg(metavar="FOLDER")]]
Limit = Annotated[int | None, option("K", "all")]


@dataclass(frozen=True)
class Selection:
    """What to read: a split of the data in a folder."""

    folder: Path
    split: Literal["train", "test"]
    points: int
    normals: bool
    classes: Sequence[str]  # of scenes; objects have those of their files


@dataclass(frozen=True, kw_only=True)
class NetworkVerb(Verb):
    """Options of training and evaluation."""

    kind: ClassVar[type[AnyTask]]

    limit: Limit = None
    """Use K objects or rooms only, chosen by the seed."""
    cache: Annotated[Path | None, option("FOLDER", "none")] = None
    """Where to keep what was read, for the next time."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""

    def choose_device(self) -> torch.device:
        """The device; for ``auto`` this process's CUDA device where there is one."""
        name = self.device
        if name == "auto":
            name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
        return torch.device(name)

    @abstractmethod
    def _read(self, wanted: Selection) -> Samples: ...

    def read(self, wanted: Selection, seed: int = 0) -> Samples:
        """At most ``limit`` objects or rooms of a split."""
        samples = self._read(wanted)
        return samples if self.limit is None else take(samples, self.limit, seed)

    def prepare(self, samples: Samples, points: int, train: bool) -> Samples:  # noqa: ARG002
        """What is drawn for training or evaluation: objects as they are."""
        return samples


@dataclass(frozen=True, kw_only=True)
class ObjectVerb(NetworkVerb):
    """ModelNet."""

    kind = Classification

    def _read(self, wanted: Selection) -> Samples:
        points, normals = wanted.points, wanted.normals
        return read_modelnet(
            wanted.folder, wanted.split, points=points, normals=normals, cache=self.cache
        )


@dataclass(frozen=True, kw_only=True)
class PartVerb(NetworkVerb):
    """ShapeNetPart, of which the paper trains on the train and validation splits."""

    kind = PartSegmentation

    repeat: Flag = False
    """Repeat points of objects that have too few; the repetitions are not counted."""

    def _read(self, wanted: Selection) -> Samples:
        return read_shapenetpart(
            wanted.folder,
            "trainval" if wanted.split == "train" else "test",
            points=wanted.points,
            normals=wanted.normals,
            repeat=self.repeat,
            cache=self.cache,
        )


@dataclass(frozen=True, kw_only=True)
class SceneVerb(NetworkVerb):
    """S3DIS, or scenes in its prepared layout, as blocks of one meter or whole."""

    kind = SemanticSegmentation

    test_area: int = 5
    """The area that training leaves out and evaluation measures on."""
    scenes: Flag = False
    """Whole scenes, or crops of them in training, instead of blocks of one meter."""
    scale: float = 1.0
    """All coordinates times this: networks expect rooms in meters."""
    voxel: Annotated[float | None, option("METERS", "all points")] = None
    """Keep one point of every cube of this side."""

    def _read(self, wanted: Selection) -> Samples:
        options = {name: getattr(self, name) for name in ("test_area", "scale", "voxel", "cache")}
        return read_s3dis(wanted.folder, wanted.split, classes=wanted.classes, **options)

    def prepare(self, samples: Samples, points: int, train: bool) -> Samples:
        """Crops of scenes or overlapping blocks for training, else every point once."""
        if self.scenes:
            return Scenes(samples, points if train else None)
        return Blocks(samples, points=points, stride=0.5 if train else None, every=not train)


def table(scores: dict[str, float]) -> str:
    """Metrics in percent, one per line."""
    return "\n".join(f"{name:<18} {100 * value:6.2f} %" for name, value in scores.items())
