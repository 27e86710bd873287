"""veckm evaluate: the error of normals beside PCA, and the metrics of the networks for labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import torch
from tyro.conf import Positional, arg

from veckm.cli import networks, verb
from veckm.cli.verb import OutputFile, Verb, check_output, coordinates, read_cloud, save_json
from veckm.data.pcpnet import PCPNet
from veckm.data.protocol import SETS, LabeledCloud
from veckm.inputs import check_count
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.estimate import estimate, network
from veckm.tasks.normals.evaluate import angle_error, rmse
from veckm.training import evaluate, load_checkpoint

#: Neighbors of PCA, the usual choices.
_NEIGHBORS = (18, 122)


@dataclass(frozen=True)
class EvaluateNormals(Verb):
    """Measure the RMSE of the estimated normals against known ones, beside PCA.

    Unoriented angles in degrees: of every cloud over its evaluated points, then the mean over
    the clouds of a set.
    """

    source: Positional[Annotated[Path | None, verb.option("[PATH]", "a sample scan")]] = None
    """Folder with test shapes in the layout of PCPNet, or a cloud file with known normals."""
    weights: Annotated[Path | None, verb.option("FILE", "those of the package")] = None
    """Weights (.safetensors), with their settings (.json) beside them."""
    limit: networks.Limit = None
    """Take the first K clouds only."""

    def run(self) -> None:
        """Score every cloud; print the table."""
        if self.limit is not None:
            check_count(self.limit, "--limit")
        net = network(self.weights)
        scores: dict[str, dict[str, list[float]]] = {}
        for cloud in islice(self._clouds(), self.limit):
            self.show(f"{cloud.name}, {cloud.set}: {len(cloud.pos):,} points")
            at, truth = cloud.subset, cloud.normal[cloud.subset]
            found = {"veckm": estimate(cloud.pos, net=net).normal[at]}
            found |= {f"PCA, k = {k}": pca_normals(cloud.pos, k, at=at) for k in _NEIGHBORS}
            for method, normal in found.items():
                error = rmse(angle_error(normal, truth))
                scores.setdefault(method, {}).setdefault(cloud.set, []).append(error)
        means = {m: {key: fmean(v) for key, v in sets.items()} for m, sets in scores.items()}
        means = {method: {**row, "mean": fmean(row.values())} for method, row in means.items()}
        columns = sorted(means["veckm"], key=[*SETS, "cloud", "mean"].index)
        self.show("", f"{'RMSE, degrees':<16}" + "".join(f"{name:>10}" for name in columns))
        for method, row in means.items():
            self.show(f"{method:<16}" + "".join(f"{row[name]:>10.2f}" for name in columns))
        self.report(rmse_degrees=means)

    def _clouds(self) -> Iterable[LabeledCloud]:
        if self.source is not None and self.source.is_dir():
            return PCPNet(self.source, "test")
        cloud = read_cloud(self.source)
        name = "sample scan" if self.source is None else self.source.stem
        if cloud.normals is None:
            raise ValueError(f"{self.source}: has no normals to compare with")
        normal = torch.from_numpy(cloud.normals.astype("float32"))
        return [LabeledCloud(name, "cloud", coordinates(cloud), normal, torch.arange(len(cloud)))]


@dataclass(frozen=True)
class _Evaluate(networks.NetworkVerb):
    """Options of all networks for labels."""

    checkpoint: Positional[Annotated[Path, arg(metavar="CHECKPOINT")]]
    """A last.pt of `veckm train`, or the folder that it is in."""
    data: networks.Folder
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
        saved, expected = load_checkpoint(self.checkpoint), self.kind.name
        config, name = saved.config, saved.task["name"]
        if name != expected:
            raise ValueError(
                f"{self.checkpoint} is of {config['name']} for {name}, not for {expected}; "
                f"use veckm evaluate {name}"
            )
        task = self.kind(**{k: v for k, v in saved.task.items() if k != "name"})
        model = rebuild(config)
        saved.restore(model, self.checkpoint)
        normals, classes = bool(config["in_channels"]), saved.data["classes"]
        wanted = networks.Selection(self.data, "test", task.points, normals, classes)
        samples = self.prepare(self.read(wanted), task.points, train=False)
        if list(samples.classes) != classes:
            raise ValueError(
                f"{self.data} has the classes {_listed(samples.classes)}, but {self.checkpoint} "
                f"was trained on {_listed(classes)}"
            )
        device = self.choose_device()
        label = None if self.silent else "evaluate"
        scores = evaluate(
            model.to(device), task, samples, batch=self.batch, device=device, label=label
        )
        about: dict[str, Any] = {
            "task": name,
            "model": config,
            "epoch": saved.epoch,
            "epochs": saved.recipe["epochs"],
            "data": str(self.data),
            "checksum": samples.checksum,
            "samples": len(samples),
            "scores": scores,
        }
        if self.output is not None:
            save_json(self.output, about)
        self.report(**about)
        unfinished = "" if saved.epoch == about["epochs"] else ", which is not the last"
        self.show(
            f"{config['name']}{' with VecKM' if config['encoding'] else ''}, epoch {saved.epoch} "
            f"of {about['epochs']}{unfinished}; {len(samples):,} samples of the test split",
            networks.table(scores),
        )


def _listed(classes: Sequence[str]) -> str:
    return f"{len(classes)}: {', '.join(classes[:5])}{', ...' if len(classes) > 5 else ''}"


@dataclass(frozen=True)
class EvaluateClassification(networks.ObjectVerb, _Evaluate):
    """Instance and class accuracy of a trained network on the test split of ModelNet."""


@dataclass(frozen=True)
class EvaluatePartSegmentation(networks.PartVerb, _Evaluate):
    """Instance and class mIoU of a trained network on the test split of ShapeNetPart."""


@dataclass(frozen=True)
class EvaluateSemanticSegmentation(networks.SceneVerb, _Evaluate):
    """mIoU and accuracies of a trained network on all points of the area that was left out."""
