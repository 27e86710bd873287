"""veckm evaluate classification, part-segmentation and semantic-segmentation."""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, arg

from veckm import __version__
from veckm.cli import networks
from veckm.cli.networks import AnyTask, Cache, Folder, Limit, Objects, Places, Voxel
from veckm.cli.verb import Flag, OutputFile, Verb, check_output
from veckm.data.cache import write_whole
from veckm.data.samples import Samples, take
from veckm.tasks.classification import Classification
from veckm.tasks.part_segmentation import PartSegmentation
from veckm.tasks.semantic_segmentation import SemanticSegmentation
from veckm.training import Checkpoint, evaluate, load_checkpoint

_Checkpoint = Positional[Annotated[Path, arg(metavar="CHECKPOINT")]]


@dataclass(frozen=True)
class _Evaluate(Verb):
    """Options of all three."""

    _kind: ClassVar[type[AnyTask]]

    checkpoint: _Checkpoint
    """A last.pt of `veckm train`, or the folder that it is in."""
    data: Folder
    """Folder with the data; nothing is downloaded."""
    batch: int = 32
    """Clouds at a time."""
    limit: Limit = None
    """Measure on K objects only, chosen by a fixed seed."""
    cache: Cache = None
    """Where to keep what was read, for the next time."""
    output: OutputFile = None
    """Where the metrics go: .json."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""

    def run(self) -> None:
        """Read, measure, print and save."""
        if self.output is not None:
            check_output(self.output, None, "metrics", (".json",))
        saved, wanted = load_checkpoint(self.checkpoint), self._kind.name
        if saved.task["name"] != wanted:
            raise ValueError(
                f"{self.checkpoint}: is of {saved.settings.get('name')} for {saved.task['name']}, "
                f"not for {wanted}; use veckm evaluate {saved.task['name']}"
            )
        task = self._kind(**{k: v for k, v in saved.task.items() if k != "name"})
        model, _ = networks.make_model(saved.settings)
        saved.restore(model, self.checkpoint)
        samples = self._samples(task, saved)
        if list(samples.classes) != saved.data["classes"]:
            raise ValueError(
                f"{self.data}: has the classes {_listed(samples.classes)}, but {self.checkpoint} "
                f"was trained on {_listed(saved.data['classes'])}"
            )
        device = networks.device_of(self.device)
        scores = evaluate(model.to(device), task, samples, batch=self.batch, device=device)
        self._tell(saved, samples, scores)

    def _tell(self, saved: Checkpoint, samples: Samples, scores: dict[str, float]) -> None:
        about: dict[str, Any] = {
            "veckm": __version__,
            "task": saved.task["name"],
            "model": saved.settings,
            "epoch": saved.epoch,
            "epochs": saved.recipe["epochs"],
            "data": str(self.data),
            "checksum": samples.checksum,
            "samples": len(samples),
            "scores": scores,
        }
        text = json.dumps(about, indent=2)
        if self.output is not None:
            write_whole(self.output, lambda file: file.write(text.encode()))
        self.report(**about)
        unfinished = "" if saved.epoch == saved.recipe["epochs"] else ", which is not the last"
        self.show(
            f"{saved.settings.get('name')}{' with VecKM' if saved.settings.get('veckm') else ''}, "
            f"epoch {saved.epoch} of {saved.recipe['epochs']}{unfinished}; "
            f"{len(samples):,} samples of the test split",
            networks.table(scores),
        )

    @abstractmethod
    def _samples(self, task: AnyTask, saved: Checkpoint) -> Samples: ...

    def _limited(self, samples: Samples) -> Samples:
        return samples if self.limit is None else take(samples, self.limit)


def _listed(classes: Any) -> str:
    names = list(classes)
    return f"{len(names)}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"


def _normals(saved: Checkpoint) -> bool:
    return bool(saved.settings.get("in_channels", 0))


@dataclass(frozen=True)
class EvaluateClassification(_Evaluate):
    """Instance and class accuracy of a trained network on the test split of ModelNet."""

    _kind = Classification

    def _samples(self, task: AnyTask, saved: Checkpoint) -> Samples:
        objects = Objects(self.data, task.points, _normals(saved), cache=self.cache)
        return self._limited(objects.classified("test"))


@dataclass(frozen=True)
class EvaluatePartSegmentation(_Evaluate):
    """Instance and class mIoU of a trained network on the test split of ShapeNetPart."""

    repeat: Flag = False
    """Take points of objects that have too few a second time; those are not counted."""
    _kind = PartSegmentation

    def _samples(self, task: AnyTask, saved: Checkpoint) -> Samples:
        objects = Objects(self.data, task.points, _normals(saved), self.repeat, self.cache)
        return self._limited(objects.parts("test"))


@dataclass(frozen=True)
class EvaluateSemanticSegmentation(_Evaluate):
    """mIoU and accuracies of a trained network on all points of the area that was left out."""

    test_area: int = 5
    """The area to measure on: the one that training left out."""
    scenes: Flag = False
    """Whole scenes instead of blocks of one meter."""
    scale: float = 1.0
    """All coordinates times this: networks expect rooms in meters."""
    voxel: Voxel = None
    """Keep one point of every cube of this side, as in training."""
    _kind = SemanticSegmentation

    def _samples(self, task: AnyTask, saved: Checkpoint) -> Samples:
        classes = tuple(saved.data["classes"])
        places = Places(
            self.data,
            task.points,
            self.test_area,
            classes,
            self.scenes,
            self.scale,
            self.voxel,
            self.cache,
        )
        rooms = places.rooms("test")
        if self.limit is not None:
            rooms = rooms.only(take(rooms, self.limit).indices)
        return places.to_test(rooms)
