"""veckm evaluate classification, part-segmentation and semantic-segmentation."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, arg

from veckm import __version__
from veckm.cli.networks import AnyTask, Folder, NetworkVerb, SceneVerb, device_of, table
from veckm.cli.verb import Flag, OutputFile, check_output
from veckm.data.samples import Samples
from veckm.io.atomic import writing
from veckm.tasks.labeling import Classification, PartSegmentation, SemanticSegmentation
from veckm.training import Checkpoint, evaluate, load_checkpoint

_Checkpoint = Positional[Annotated[Path, arg(metavar="CHECKPOINT")]]


@dataclass(frozen=True)
class _Evaluate(NetworkVerb):
    """Options of all three."""

    _kind: ClassVar[type[AnyTask]]

    checkpoint: _Checkpoint
    """A last.pt of `veckm train`, or the folder that it is in."""
    data: Folder
    """Folder with the data; nothing is downloaded."""
    batch: int = 32
    """Clouds at a time."""
    output: OutputFile = None
    """Where the metrics go: .json."""

    def run(self) -> None:
        """Read, measure, print and save."""
        from veckm.models import rebuild  # all networks: not for other verbs

        if self.output is not None:
            check_output(self.output, None, "metrics", (".json",))
        saved, expected = load_checkpoint(self.checkpoint), self._kind.name
        if saved.task["name"] != expected:
            raise ValueError(
                f"{self.checkpoint} is of {saved.config['name']} for {saved.task['name']}, "
                f"not for {expected}; use veckm evaluate {saved.task['name']}"
            )
        task = self._kind(**{k: v for k, v in saved.task.items() if k != "name"})
        model = rebuild(saved.config)
        saved.restore(model, self.checkpoint)
        samples = self._samples(task, saved)
        if list(samples.classes) != saved.data["classes"]:
            raise ValueError(
                f"{self.data} has the classes {_listed(samples.classes)}, but {self.checkpoint} "
                f"was trained on {_listed(saved.data['classes'])}"
            )
        device = device_of(self.device)
        scores = evaluate(model.to(device), task, samples, batch=self.batch, device=device)
        self._report(saved, samples, scores)

    def _report(self, saved: Checkpoint, samples: Samples, scores: dict[str, float]) -> None:
        epochs = saved.recipe["epochs"]
        about: dict[str, Any] = {
            "veckm": __version__,
            "task": saved.task["name"],
            "model": saved.config,
            "epoch": saved.epoch,
            "epochs": epochs,
            "data": str(self.data),
            "checksum": samples.checksum,
            "samples": len(samples),
            "scores": scores,
        }
        if self.output is not None:
            text = json.dumps(about, indent=2)
            with writing(self.output) as file:
                file.write(text.encode())
        self.report(**about)
        unfinished = "" if saved.epoch == epochs else ", which is not the last"
        self.show(
            f"{saved.config['name']}{' with VecKM' if saved.config['encoding'] else ''}, "
            f"epoch {saved.epoch} of {epochs}{unfinished}; "
            f"{len(samples):,} samples of the test split",
            table(scores),
        )

    @abstractmethod
    def _samples(self, task: AnyTask, saved: Checkpoint) -> Samples: ...


def _listed(classes: Sequence[str]) -> str:
    return f"{len(classes)}: {', '.join(classes[:5])}{', ...' if len(classes) > 5 else ''}"


@dataclass(frozen=True)
class EvaluateClassification(_Evaluate):
    """Instance and class accuracy of a trained network on the test split of ModelNet."""

    _kind = Classification

    def _samples(self, task: AnyTask, saved: Checkpoint) -> Samples:
        normals = bool(saved.config["in_channels"])
        return self.limited(self.read_objects(task, self.data, "test", normals=normals))


@dataclass(frozen=True)
class EvaluatePartSegmentation(_Evaluate):
    """Instance and class mIoU of a trained network on the test split of ShapeNetPart."""

    repeat: Flag = False
    """Repeat points of objects that have too few; the repetitions are not counted."""
    _kind = PartSegmentation

    def _samples(self, task: AnyTask, saved: Checkpoint) -> Samples:
        options = {"normals": bool(saved.config["in_channels"]), "repeat": self.repeat}
        return self.limited(self.read_objects(task, self.data, "test", **options))


@dataclass(frozen=True)
class EvaluateSemanticSegmentation(SceneVerb, _Evaluate):
    """mIoU and accuracies of a trained network on all points of the area that was left out."""

    _kind = SemanticSegmentation

    def _samples(self, task: AnyTask, saved: Checkpoint) -> Samples:
        rooms = self.read_rooms(self.data, "test", tuple(saved.data["classes"]))
        return self.to_test(rooms, task.points)
