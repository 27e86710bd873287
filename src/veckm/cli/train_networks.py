"""veckm train classification, part-segmentation and semantic-segmentation.

Several processes: `torchrun --no-python --nproc-per-node 2 veckm train classification FOLDER`;
each takes its slice of every batch. Killed and run again with the same options, a run goes on.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from veckm import __version__
from veckm.cli import networks
from veckm.cli.networks import AnyTask, Cache, Folder, Limit, Objects, Places, Voxel
from veckm.cli.verb import Flag, Verb
from veckm.data.augment import Augment
from veckm.data.cache import write_whole
from veckm.data.s3dis import CLASSES
from veckm.data.samples import Samples
from veckm.memory import keep_freed_memory
from veckm.tasks.classification import Classification
from veckm.tasks.part_segmentation import PartSegmentation
from veckm.tasks.semantic_segmentation import SemanticSegmentation
from veckm.training import train
from veckm.training.ranks import joined

_Default = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: the task's)")]
_Sets = tuple[Samples, Samples | None]


@dataclass(frozen=True)
class _Train(Verb):
    """Options of all three."""

    data: Folder
    """Folder with the data; nothing is downloaded."""
    out: Path = Path("runs/network")
    """Folder for the checkpoint of the last epoch, the log and the metrics."""
    model: str = "pointnet"
    """Name of the network: pointnet, pointnet2, pct, ...; a wrong one lists those of the task."""
    veckm: Flag = False
    """Take the network's VecKM counterpart."""
    epochs: _Default = None
    """Passes over the data."""
    batch: _Default = None
    """Clouds of a step, all processes together."""
    rate: float = 1e-3
    """First learning rate."""
    points: _Default = None
    """Points of a cloud."""
    limit: Limit = None
    """Learn from K objects or rooms only, chosen by the seed."""
    val_share: float = 0.0
    """Share of the training split that is held out to validate on, chosen by the seed."""
    validate_every: int = 0
    """Validate after every so many epochs; 0 for the last only."""
    no_augment: Flag = False
    """Leave the clouds as they are."""
    cache: Cache = None
    """Where to keep what was read, for the next time."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    seed: int = 0
    """Of the weights, the order and the augmentation."""

    def run(self) -> None:
        """Read, train, save."""
        keep_freed_memory()
        device = networks.device_of(self.device)
        task = self._task()
        networks.check_model(self.model, task.name)
        recipe = task.recipe(rate=self.rate, seed=self.seed, **self._given("epochs", "batch"))
        with joined(device) as ranks:
            say = self.show if ranks.first else _silent
            samples, validation = self._sets(task)
            task = replace(task, num_classes=len(samples.classes))
            model, size = networks.make_model(self._settings(task, samples))
            say(
                f"veckm {__version__} train {task.name}: {self.model}"
                f"{' with VecKM' if self.veckm else ''}, {size:,} parameters",
                f"{len(samples):,} samples of {self.data}, checksum {samples.checksum[:12]}",
                f"{recipe}",
            )
            scores = train(
                model,
                task,
                samples,
                recipe,
                self.out,
                augment=None if self.no_augment else self._augment(task),
                validation=validation,
                validate_every=self.validate_every,
                device=device,
                note=say,
            )
            if scores and ranks.first:
                about = {"veckm": __version__, "task": task.name, "epoch": recipe.epochs}
                about |= {"set": "validation", **scores}
                text = json.dumps(about, indent=2)
                write_whole(self.out / "metrics.json", lambda file: file.write(text.encode()))
                say("validation, last epoch", networks.table(scores))
            if ranks.first:
                self.report(task=task.name, epochs=recipe.epochs, out=self.out, scores=scores)

    @abstractmethod
    def _task(self) -> AnyTask: ...

    @abstractmethod
    def _sets(self, task: AnyTask) -> _Sets: ...

    def _settings(self, task: AnyTask, samples: Samples) -> dict[str, Any]:
        out: dict[str, Any] = {"name": self.model, "veckm": self.veckm, "task": task.name}
        out |= {"num_classes": task.num_classes, "in_channels": samples.in_channels}
        return out | {"seed": self.seed}

    def _augment(self, task: AnyTask) -> Augment:
        return task.augment(getattr(self, "normals", False))

    def _given(self, *names: str) -> dict[str, Any]:
        """The options that were given; the others have the task's defaults."""
        return {name: v for name in names if (v := getattr(self, name)) is not None}


def _silent(*_: str) -> None:
    """Only one of several processes speaks."""


@dataclass(frozen=True)
class TrainClassification(_Train):
    """Train a network to tell objects apart, on ModelNet in any of its layouts.

    The last epoch is what is kept; nothing is chosen by a test. Killed and run again, it goes on.
    """

    out: Path = Path("runs/classification")
    """Folder for the checkpoint of the last epoch, the log and the metrics."""
    normals: Flag = False
    """Give the network the normals too, where the data has them."""
    smoothing: float = 0.0
    """Smooth the labels by so much; the authors of VecKM took 0.2."""
    drop: float = 0.0
    """Drop up to this share of the points of a cloud; the authors of VecKM took 0.875."""

    def _task(self) -> Classification:
        return Classification(smoothing=self.smoothing, **self._given("points"))

    def _augment(self, task: AnyTask) -> Augment:
        return replace(super()._augment(task), drop=self.drop)

    def _sets(self, task: AnyTask) -> _Sets:
        objects = Objects(self.data, task.points, self.normals, cache=self.cache)
        return networks.part(objects.classified("train"), self.limit, self.val_share, self.seed)


@dataclass(frozen=True)
class TrainPartSegmentation(_Train):
    """Train a network to tell the parts of objects apart, on ShapeNetPart.

    The last epoch is what is kept; nothing is chosen by a test. Killed and run again, it goes on.
    """

    out: Path = Path("runs/part-segmentation")
    """Folder for the checkpoint of the last epoch, the log and the metrics."""
    normals: Flag = False
    """Give the network the normals too, where the data has them."""
    repeat: Flag = False
    """Take points of objects that have too few a second time."""

    def _task(self) -> PartSegmentation:
        return PartSegmentation(**self._given("points"))

    def _sets(self, task: AnyTask) -> _Sets:
        objects = Objects(self.data, task.points, self.normals, self.repeat, self.cache)
        return networks.part(objects.parts("trainval"), self.limit, self.val_share, self.seed)


@dataclass(frozen=True)
class TrainSemanticSegmentation(_Train):
    """Train a network to tell what each point of a room belongs to, on S3DIS or scenes like it.

    The last epoch is what is kept; nothing is chosen by a test. Killed and run again, it goes on.
    """

    out: Path = Path("runs/semantic-segmentation")
    """Folder for the checkpoint of the last epoch, the log and the metrics."""
    test_area: int = 5
    """The area that is left out."""
    classes: tuple[str, ...] = CLASSES
    """Names of the labels, in their order."""
    scenes: Flag = False
    """Crops of whole scenes instead of blocks of one meter."""
    scale: float = 1.0
    """All coordinates times this: networks expect rooms in meters."""
    voxel: Voxel = None
    """Keep one point of every cube of this side."""

    def _task(self) -> SemanticSegmentation:
        return SemanticSegmentation(num_classes=len(self.classes), **self._given("points"))

    def _sets(self, task: AnyTask) -> _Sets:
        places = Places(
            self.data,
            task.points,
            self.test_area,
            self.classes,
            self.scenes,
            self.scale,
            self.voxel,
            self.cache,
        )
        rooms, held = networks.part_rooms(
            places.rooms("train"), self.limit, self.val_share, self.seed
        )
        return places.to_train(rooms), None if held is None else places.to_test(held)
