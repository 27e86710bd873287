"""veckm train: the network for normals, or one of the networks for labels.

Several processes: `torchrun --no-python --nproc-per-node 2 veckm train classification FOLDER`;
each takes its slice of every batch. A run that was stopped resumes when it is run again with the
same options.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Suppress, arg

from veckm import __version__
from veckm.cli import networks
from veckm.cli.encoding import EncodingOptions
from veckm.cli.verb import Flag, Verb, option, save_json
from veckm.data.augment import Augment
from veckm.data.meshes import load_meshes
from veckm.data.s3dis import CLASSES
from veckm.data.samples import Samples, generator_of, hold_out
from veckm.memory import keep_freed_memory
from veckm.tasks.authors import authors_training
from veckm.tasks.labeling import Classification, PartSegmentation, SemanticSegmentation
from veckm.tasks.normals import save
from veckm.tasks.normals.examples import CloudCounts, clouds, fresh_clouds, learned_from
from veckm.tasks.normals.network import NormalNet
from veckm.tasks.normals.pyramid import make_pyramid
from veckm.tasks.normals.train import Budget, Example, calibrate
from veckm.tasks.normals.train import train as train_normals
from veckm.training import train
from veckm.training.ranks import joined
from veckm.training.recipe import Recipe

_Normals = Annotated[Flag, arg(help="Give the network the normals too, where the data has them.")]
_Authors = Annotated[
    Flag, arg(help="With --veckm: the network and training of the authors' program.")
]
_Recipe = Annotated[
    OmitArgPrefixes[Recipe], arg(help="Of the optimizer; the seed is that of the weights too.")
]


@dataclass(frozen=True)
class TrainNormals(Verb):
    """Train the normal network: on procedural surfaces and scans, and on meshes if there are any.

    The last step is kept; nothing is chosen by a test. A stopped run resumes when run again.
    """

    out: Path = Path("runs/normals")
    """Folder for checkpoints, the log, and the weights at the end."""
    meshes: Path | None = None
    """Folder with .ply, .off, .obj or .stl meshes to learn from."""
    clouds: OmitArgPrefixes[CloudCounts] = field(default_factory=CloudCounts)
    stages: int = 2
    """Stages of the network."""
    hidden: int = 16
    """Numbers per neighbor."""
    steps: int = Budget.steps
    """Steps of every stage."""
    absolute: float = Budget.absolute
    """Weight of the mean angle in the loss, beside its root mean square: for small errors."""

    def run(self) -> None:
        """Make the clouds, train, save."""
        seed = self.clouds.seed
        budget = Budget(steps=self.steps, seed=seed, absolute=self.absolute)
        begin = time.perf_counter()
        meshes = {} if self.meshes is None else load_meshes(self.meshes)
        found = learned_from(meshes)
        examples = []
        for name, pos, normal, nearest in clouds(found, self.clouds):
            examples.append(Example(make_pyramid(pos), normal.float(), nearest.float()))
            self.show(f"cloud {len(examples)}: {name}, {len(pos):,} points")
        if not examples:
            raise ValueError(
                "there is nothing to learn from: give --meshes, --procedural or --scans"
            )
        net, weights = NormalNet(self.stages, self.hidden, seed=seed), "normals.safetensors"
        train_normals(net, examples, budget, self.out, self.show)
        self.show("expected errors: calibrated on other clouds")
        calibrate(net, fresh_clouds(meshes, self.clouds), generator_of(seed, self.stages))
        about: dict[str, object] = {
            "veckm": __version__,
            "recipe": asdict(self.clouds),
            "budget": asdict(budget),
            "meshes": sorted(found),
            "calibrated on": sorted(meshes),
            "minutes": round((time.perf_counter() - begin) / 60, 1),
        }
        save(net, self.out / weights, about)
        self.report(**about, weights=self.out / weights)
        self.show(f"written: {self.out / weights} and .json")


@dataclass(frozen=True)
class _Train(networks.NetworkVerb):
    """Options of all networks for labels."""

    data: networks.Folder
    """Folder with the data; nothing is downloaded."""
    recipe: _Recipe
    out: Annotated[Path | None, option("FOLDER", "runs/TASK")] = None
    """Folder for the checkpoint of the last epoch, the log and the metrics; a stopped run
    resumes when it is run again."""
    model: str = "pointnet"
    """Name of the network: pointnet, pointnet2, pct, ...; a wrong one lists those of the task."""
    veckm: Flag = False
    """Use the network's VecKM counterpart."""
    authors: Suppress[bool] = False  # an option where the authors' program has the task
    encoding: OmitArgPrefixes[EncodingOptions] = field(default_factory=EncodingOptions)
    points: Annotated[int | None, option("K", "the task's")] = None
    """Points per cloud."""
    val_share: float = 0.0
    """Share of the training split that is held out for validation, chosen by the seed."""
    validate_every: int = 0
    """Validate after every so many epochs; 0 for the last only."""
    no_augment: Flag = False
    """Do not augment the clouds."""
    log_every: Annotated[float | None, option("SECONDS", "30 without a terminal")] = None
    """Print a line about the steps after so many seconds; 0 for none."""
    normals: Suppress[bool] = False  # an option where the data has normals
    classes: Suppress[tuple[str, ...]] = CLASSES  # an option for scenes

    def _task(self) -> networks.AnyTask:
        return self.kind() if self.points is None else self.kind(points=self.points)

    def _augment(self, task: networks.AnyTask) -> Augment:
        return task.augment(self.normals)

    def run(self) -> None:
        """Read, train, save."""
        from veckm.models import create_model, list_models, parameter_count  # not for other verbs

        keep_freed_memory()
        device, task = self.choose_device(), self._task()
        out = Path("runs", task.name) if self.out is None else self.out
        if self.model not in (names := list_models(task.name)):  # type: ignore[arg-type]
            raise ValueError(
                f"--model {self.model}: the networks for {task.name} are {', '.join(names)}"
            )
        encoding = self.encoding.config(self.model, task.name, self.veckm, self.authors)  # type: ignore[arg-type]
        log_every = self.log_every
        if log_every is None:  # a terminal has a progress bar
            log_every = 0.0 if sys.stderr.isatty() else 30.0
        with joined(device) as ranks:
            say = self.show if ranks.first else lambda *_: None
            samples, validation = self._sets(task.points)
            task = replace(task, num_classes=len(samples.classes))
            recipe, augment = self.recipe, self._augment(task)
            if self.authors and not isinstance(task, SemanticSegmentation):
                task, recipe, augment = authors_training(task)
                default, given = asdict(self.kind.default_recipe), asdict(self.recipe)
                changed = {k: value for k, value in given.items() if value != default[k]}
                recipe = replace(recipe, **changed)
            model = create_model(
                self.model,
                task=task.name,  # type: ignore[arg-type]
                veckm=self.veckm,
                authors=self.authors,
                encoding=encoding,
                num_classes=task.num_classes,
                in_channels=samples.in_channels,
                seed=self.recipe.seed,
            )
            say(
                f"veckm {__version__} train {task.name}: {self.model}"
                f"{' with VecKM' if self.veckm else ''}, {parameter_count(model):,} parameters",
                f"{len(samples):,} samples of {self.data}, checksum {samples.checksum[:12]}, in "
                f"batches of {min(recipe.batch, len(samples))}; seed {self.recipe.seed}",
            )
            scores = train(
                model,
                task,
                samples,
                recipe,
                out,
                augment=None if self.no_augment else augment,
                validation=validation,
                validate_every=self.validate_every,
                device=device,
                note=say,
                note_every=log_every,
            )
            if scores and ranks.first:
                about = {"task": task.name, "epoch": recipe.epochs, "set": "validation"}
                save_json(out / "metrics.json", {**about, **scores})
                say("validation, last epoch", networks.table(scores))
            if ranks.first:
                self.report(task=task.name, epochs=recipe.epochs, out=out, scores=scores)

    def _sets(self, points: int) -> tuple[Samples, Samples | None]:
        """The training set, and a share of it held out for validation: rooms, not their blocks."""
        wanted = networks.Selection(self.data, "train", points, self.normals, self.classes)
        samples = self.read(wanted, self.recipe.seed)
        if not self.val_share:
            return self.prepare(samples, points, train=True), None
        kept, held = hold_out(samples, self.val_share, self.recipe.seed)
        return self.prepare(kept, points, train=True), self.prepare(held, points, train=False)


@dataclass(frozen=True)
class TrainClassification(networks.ObjectVerb, _Train):
    """Train a network to classify objects, on ModelNet in any of its layouts."""

    recipe: _Recipe = Classification.default_recipe
    normals: _Normals = False
    authors: _Authors = False
    smoothing: float = 0.0
    """Smooth the labels by so much; the authors of VecKM use 0.2."""
    drop: float = 0.0
    """Drop up to this share of the points of a cloud; the authors of VecKM use 0.875."""

    def _task(self) -> networks.AnyTask:
        return Classification(points=super()._task().points, smoothing=self.smoothing)

    def _augment(self, task: networks.AnyTask) -> Augment:
        return replace(super()._augment(task), drop=self.drop)


@dataclass(frozen=True)
class TrainPartSegmentation(networks.PartVerb, _Train):
    """Train a network to segment objects into parts, on ShapeNetPart."""

    recipe: _Recipe = PartSegmentation.default_recipe
    normals: _Normals = False
    authors: _Authors = False


@dataclass(frozen=True)
class TrainSemanticSegmentation(networks.SceneVerb, _Train):
    """Train a network to classify every point of a room, on S3DIS or scenes like it."""

    recipe: _Recipe = SemanticSegmentation.default_recipe
    classes: tuple[str, ...] = CLASSES
    """Names of the labels, in their order."""
