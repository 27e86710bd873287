"""The data of networks: options and reading that training and evaluation share."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from tyro.conf import Positional, arg

from veckm.cli.verb import Flag, Verb
from veckm.data.modelnet import read_modelnet
from veckm.data.s3dis import Blocks, Scenes, read_s3dis
from veckm.data.samples import Samples, take
from veckm.data.shapenetpart import read_shapenetpart
from veckm.tasks.labeling import Classification, PartSegmentation, SemanticSegmentation

AnyTask = Classification | PartSegmentation | SemanticSegmentation

Folder = Positional[Annotated[Path, arg(metavar="FOLDER")]]
Limit = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: all)")]
_Cache = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: none)")]
_Voxel = Annotated[float | None, arg(metavar="METERS", help_behavior_hint="(default: all points)")]


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
    cache: _Cache = None
    """Where to keep what was read, for the next time."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""

    def choose_device(self) -> torch.device:
        """The device; for ``auto`` this process's CUDA device where there is one."""
        if self.device != "auto":
            return torch.device(self.device)
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    @abstractmethod
    def _read(self, wanted: Selection) -> Samples: ...

    def read(self, wanted: Selection, seed: int = 0) -> Samples:
        """At most ``limit`` objects or rooms of a split."""
        samples = self._read(wanted)
        return samples if self.limit is None else take(samples, self.limit, seed)

    def to_train(self, samples: Samples, points: int) -> Samples:  # noqa: ARG002
        """What is drawn in training: objects as they are."""
        return samples

    to_test = to_train


@dataclass(frozen=True, kw_only=True)
class ObjectVerb(NetworkVerb):
    """ModelNet."""

    kind = Classification

    def _read(self, wanted: Selection) -> Samples:
        options: dict[str, Any] = {"normals": wanted.normals, "cache": self.cache}
        return read_modelnet(wanted.folder, wanted.split, points=wanted.points, **options)


@dataclass(frozen=True, kw_only=True)
class PartVerb(NetworkVerb):
    """ShapeNetPart, of which the paper trains on the train and validation splits."""

    kind = PartSegmentation

    repeat: Flag = False
    """Repeat points of objects that have too few; the repetitions are not counted."""

    def _read(self, wanted: Selection) -> Samples:
        part: Literal["trainval", "test"] = "trainval" if wanted.split == "train" else "test"
        options: dict[str, Any] = {"normals": wanted.normals, "cache": self.cache}
        return read_shapenetpart(
            wanted.folder, part, points=wanted.points, repeat=self.repeat, **options
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
    voxel: _Voxel = None
    """Keep one point of every cube of this side."""

    def _read(self, wanted: Selection) -> Samples:
        return read_s3dis(
            wanted.folder,
            wanted.split,
            test_area=self.test_area,
            classes=wanted.classes,
            scale=self.scale,
            voxel=self.voxel,
            cache=self.cache,
        )

    def to_train(self, samples: Samples, points: int) -> Samples:
        """Overlapping blocks, or crops of scenes."""
        if self.scenes:
            return Scenes(samples, points)
        return Blocks(samples, points=points, stride=0.5)

    def to_test(self, samples: Samples, points: int) -> Samples:
        """Every point once."""
        return Scenes(samples) if self.scenes else Blocks(samples, points=points, every=True)


def table(scores: dict[str, float]) -> str:
    """Metrics in percent, one per line."""
    return "\n".join(f"{name:<18} {100 * value:6.2f} %" for name, value in scores.items())
