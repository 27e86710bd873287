"""veckm train classification, part-segmentation and semantic-segmentation.

Several processes: `torchrun --no-python --nproc-per-node 2 veckm train classification FOLDER`;
each takes its slice of every batch. Killed and run again with the same options, a run resumes.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from veckm import __version__
from veckm.cli.networks import AnyTask, Folder, NetworkVerb, SceneVerb, device_of, table
from veckm.cli.verb import Flag
from veckm.data.augment import Augment
from veckm.data.s3dis import CLASSES
from veckm.data.samples import Samples, hold_out
from veckm.io.atomic import writing
from veckm.memory import keep_freed_memory
from veckm.tasks.labeling import Classification, PartSegmentation, SemanticSegmentation
from veckm.training import train
from veckm.training.ranks import joined

_Default = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: the task's)")]
_Sets = tuple[Samples, Samples | None]


@dataclass(frozen=True)
class _Train(NetworkVerb):
    """Options of all three."""

    data: Folder
    """Folder with the data; nothing is downloaded."""
    out: Path = Path("runs/network")
    """Folder for the checkpoint of the last epoch, the log and the metrics."""
    model: str = "pointnet"
    """Name of the network: pointnet, pointnet2, pct, ...; a wrong one lists those of the task."""
    veckm: Flag = False
    """Use the network's VecKM counterpart."""
    epochs: _Default = None
    """Passes over the data."""
    batch: _Default = None
    """Clouds per step, all processes together."""
    rate: float = 1e-3
    """First learning rate."""
    points: _Default = None
    """Points per cloud."""
    val_share: float = 0.0
    """Share of the training split that is held out for validation, chosen by the seed."""
    validate_every: int = 0
    """Validate after every so many epochs; 0 for the last only."""
    no_augment: Flag = False
    """Do not augment the clouds."""
    seed: int = 0
    """Of the weights, the order and the augmentation."""

    def run(self) -> None:
        """Read, train, save."""
        from veckm.models import create_model, list_models, parameter_count  # not for other verbs

        keep_freed_memory()
        device, task = device_of(self.device), self._task()
        if self.model not in (names := list_models(task.name)):  # type: ignore[arg-type]
            raise ValueError(
                f"--model {self.model}: the networks for {task.name} are {', '.join(names)}"
            )
        recipe = task.recipe(rate=self.rate, seed=self.seed, **self._given("epochs", "batch"))
        with joined(device) as ranks:
            say = self.show if ranks.first else lambda *_: None
            samples, validation = self._sets(task)
            task = replace(task, num_classes=len(samples.classes))
            model = create_model(
                self.model,
                task=task.name,  # type: ignore[arg-type]
                veckm=self.veckm,
                num_classes=task.num_classes,
                in_channels=samples.in_channels,
                seed=self.seed,
            )
            say(
                f"veckm {__version__} train {task.name}: {self.model}"
                f"{' with VecKM' if self.veckm else ''}, {parameter_count(model):,} parameters",
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
                with writing(self.out / "metrics.json") as file:
                    file.write(text.encode())
                say("validation, last epoch", table(scores))
            if ranks.first:
                self.report(task=task.name, epochs=recipe.epochs, out=self.out, scores=scores)

    @abstractmethod
    def _task(self) -> AnyTask: ...

    @abstractmethod
    def _sets(self, task: AnyTask) -> _Sets: ...

    def _augment(self, task: AnyTask) -> Augment:
        return task.augment(getattr(self, "normals", False))

    def _given(self, *names: str) -> dict[str, Any]:
        """The options that were given; the others have the task's defaults."""
        return {name: v for name in names if (v := getattr(self, name)) is not None}

    def _split(self, samples: Samples) -> _Sets:
        """At most ``limit`` samples, and a share of them held out for validation."""
        samples = self.limited(samples, self.seed)
        if self.val_share == 0:
            return samples, None
        return hold_out(samples, self.val_share, self.seed)


@dataclass(frozen=True)
class TrainClassification(_Train):
    """Train a network to classify objects, on ModelNet in any of its layouts.

    The last epoch is kept; nothing is chosen by a test. Killed and run again, it resumes.
    """

    out: Path = Path("runs/classification")
    """Folder for the checkpoint of the last epoch, the log and the metrics."""
    normals: Flag = False
    """Give the network the normals too, where the data has them."""
    smoothing: float = 0.0
    """Smooth the labels by so much; the authors of VecKM use 0.2."""
    drop: float = 0.0
    """Drop up to this share of the points of a cloud; the authors of VecKM use 0.875."""

    def _task(self) -> Classification:
        return Classification(smoothing=self.smoothing, **self._given("points"))

    def _augment(self, task: AnyTask) -> Augment:
        return replace(super()._augment(task), drop=self.drop)

    def _sets(self, task: AnyTask) -> _Sets:
        return self._split(self.read_objects(task, self.data, "train", normals=self.normals))


@dataclass(frozen=True)
class TrainPartSegmentation(_Train):
    """Train a network to segment objects into parts, on ShapeNetPart.

    The last epoch is kept; nothing is chosen by a test. Killed and run again, it resumes.
    """

    out: Path = Path("runs/part-segmentation")
    """Folder for the checkpoint of the last epoch, the log and the metrics."""
    normals: Flag = False
    """Give the network the normals too, where the data has them."""
    repeat: Flag = False
    """Repeat points of objects that have too few."""

    def _task(self) -> PartSegmentation:
        return PartSegmentation(**self._given("points"))

    def _sets(self, task: AnyTask) -> _Sets:
        options = {"normals": self.normals, "repeat": self.repeat}
        return self._split(self.read_objects(task, self.data, "train", **options))


@dataclass(frozen=True)
class TrainSemanticSegmentation(SceneVerb, _Train):
    """Train a network to classify every point of a room, on S3DIS or scenes like it.

    The last epoch is kept; nothing is chosen by a test. Killed and run again, it resumes.
    """

    out: Path = Path("runs/semantic-segmentation")
    """Folder for the checkpoint of the last epoch, the log and the metrics."""
    classes: tuple[str, ...] = CLASSES
    """Names of the labels, in their order."""

    def _task(self) -> SemanticSegmentation:
        return SemanticSegmentation(num_classes=len(self.classes), **self._given("points"))

    def _sets(self, task: AnyTask) -> _Sets:
        rooms = self.read_rooms(self.data, "train", self.classes, self.seed)
        if self.val_share == 0:
            return self.to_train(rooms, task.points), None
        rooms, held = hold_out(rooms, self.val_share, self.seed)  # rooms are split, not blocks
        return self.to_train(rooms, task.points), self.to_test(held, task.points)
