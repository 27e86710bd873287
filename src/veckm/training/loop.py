"""The training loop.

    for every epoch:  order the samples, and for every batch:  draw, augment, forward, step
                      write a line of the log and a checkpoint

The order, the points and the augmentation of an epoch depend on (seed, epoch) alone, and the
learning rate on the epoch and E. A killed run resumes from its last checkpoint and ends in the same
weights, to the last bit on a CPU. With more epochs than before it goes on too, at the rates of the
longer schedule. Several processes share each batch: see :mod:`ranks`.

:func:`train` is for labeled samples and a task. :func:`fit` below it only asks for gradients, so
that it serves any other training too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from veckm.data.augment import Augment
from veckm.data.samples import Batch, Samples, collate, generator_of
from veckm.progress import bar
from veckm.training.checkpoint import Checkpoint, describe, load_checkpoint
from veckm.training.evaluation import evaluate, predict
from veckm.training.log import StepLog, log_epochs
from veckm.training.precision import Precision
from veckm.training.ranks import current
from veckm.training.recipe import Recipe, Task

#: ``gradients(epoch, step, backward)`` computes a loss, calls ``backward(loss)``, and returns the
#: sum of the losses of all processes and the number of their terms.
Gradients = Callable[[int, int, Callable[[Tensor], None]], tuple[float, float]]


def train(
    model: nn.Module,
    task: Task,
    samples: Samples,
    recipe: Recipe,
    folder: str | Path,
    *,
    augment: Augment | None = None,
    validation: Samples | None = None,
    validate_every: int = 0,
    device: torch.device | str = "cpu",
    precision: Precision | None = None,
    note: Callable[[str], None] = lambda _: None,
    note_every: float = 0.0,
) -> dict[str, float]:
    """Train a model in place; ``folder`` keeps checkpoint and log, and a stopped run resumes.

    Args:
        model: called with ``(pos, x)``, and ``category=`` where the samples have one; returns
            logits, or ``(logits, auxiliary_loss)``.
        task: the loss and the metrics.
        samples: the training set.
        recipe: optimizer and schedule.
        folder: for ``last.pt`` after every epoch and ``log.jsonl``.
        augment: changes every sample every time; None for none.
        validation: another set, measured after the last epoch; nothing is chosen by it.
        validate_every: measure it also after every so many epochs; 0 for the last only.
        device: where the work is done.
        precision: of the products; None for what the recipe has on this device.
        note: called with one line about the optimizer, and one per epoch.
        note_every: seconds after which there is a line about the steps too; 0 for none.

    Returns the metrics on the validation set after the last epoch, or nothing without one.
    """
    device = torch.device(device)
    precision = precision or Precision.of(recipe, device)
    work = Supervised(model.to(device), task, samples, recipe, augment, device, precision)
    scores = None
    if validation is not None:
        given = (model, task, validation)
        scores = partial(evaluate, *given, batch=recipe.batch, device=device, label=None)
    return fit(
        model,
        work,
        work.steps,
        recipe,
        folder,
        task=describe(task),
        data={
            "classes": list(samples.classes),
            "checksum": samples.checksum,
            "samples": len(samples),
            "augment": None if augment is None else repr(augment),
        },
        evaluate=scores,
        evaluate_every=validate_every,
        device=device,
        precision=precision,
        note=note,
        note_every=note_every,
    )


def fit(
    model: nn.Module,
    gradients: Gradients,
    steps: int,
    recipe: Recipe,
    folder: str | Path,
    *,
    task: dict[str, Any],
    data: dict[str, Any],
    evaluate: Callable[[], dict[str, float]] | None = None,
    evaluate_every: int = 0,
    device: torch.device | str = "cpu",
    precision: Precision | None = None,
    note: Callable[[str], None] = lambda _: None,
    note_every: float = 0.0,
) -> dict[str, float]:
    """The loop of :func:`train`, for gradients from anywhere.

    Args:
        model: its parameters are trained.
        gradients: see ``Gradients``; called for every step of every epoch.
        steps: per epoch.
        recipe, folder, device, note, note_every: as for :func:`train`.
        precision: as there; here it only decides whether the loss is scaled.
        task, data: plain values that a resumed run must share; ``task["name"]`` labels the bar.
        evaluate: metrics of the model; after the last epoch, and after every ``evaluate_every``.
    """
    ranks, device, path = current(), torch.device(device), Path(folder) / "last.pt"
    precision = precision or Precision.of(recipe, device)
    optimizer = recipe.optimizer_of(model.parameters(), fused=device.type == "cuda")
    state = _State(model, gradients, recipe, optimizer, precision.scaler(device), device)
    first = state.resume(path, task, data, note) if path.is_file() else 0
    note(f"{recipe.in_force(optimizer)}; {precision}; {steps} steps per epoch on {device}")
    step_log = StepLog(note, note_every if ranks.first else 0.0, recipe.epochs, steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    if ranks.world > 1:
        distributed.barrier()  # nobody writes before everybody has read
    about, scores = (describe(model), task, describe(recipe), data), {}
    with (
        log_epochs(path.parent, first) if ranks.first else nullcontext() as log,
        bar((recipe.epochs - first) * steps, task["name"] if ranks.first else None) as advance,
    ):
        for done in range(first + 1, recipe.epochs + 1):
            begin = time.perf_counter()
            loss = state.epoch(done - 1, steps, advance, step_log)
            line: dict[str, Any] = {"epoch": done, "loss": loss, "rate": recipe.rate_of(done - 1)}
            due = done == recipe.epochs or (evaluate_every > 0 and done % evaluate_every == 0)
            if evaluate is not None and due:
                scores = evaluate()
                line |= scores
            line["seconds"] = round(time.perf_counter() - begin, 3)
            if log is not None:
                log(line)
                Checkpoint(done, *about, **state.dicts()).save(path)
            note(_summary(line, recipe.epochs))
    if not scores and evaluate is not None:  # the run was finished before
        scores = evaluate()
    return scores


@dataclass(frozen=True)
class _State:
    """What a step changes: the model, by its optimizer and the scaler of its loss."""

    model: nn.Module
    gradients: Gradients
    recipe: Recipe
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    device: torch.device

    def dicts(self) -> dict[str, Any]:
        """For a checkpoint."""
        parts = {"model": self.model, "optimizer": self.optimizer, "scaler": self.scaler}
        return {name: part.state_dict() for name, part in parts.items()}  # type: ignore[attr-defined]

    def resume(
        self, path: Path, task: dict[str, Any], data: dict[str, Any], note: Callable[[str], None]
    ) -> int:
        """Take over a checkpoint of the same run, maybe of fewer epochs; its finished epochs."""
        saved, recipe = load_checkpoint(path), self.recipe
        saved.restore(self.model, path)
        longer = recipe.epochs > (before := saved.recipe["epochs"])
        agreed = replace(recipe, epochs=before) if longer else recipe
        saved.check(path, task=task, recipe=agreed, data=data)
        self.optimizer.load_state_dict(saved.optimizer)
        if saved.scaler:
            self.scaler.load_state_dict(saved.scaler)
        note(f"resumed after epoch {saved.epoch} of {recipe.epochs}")
        if longer:
            note(_extended(agreed, recipe, saved.epoch))
        return saved.epoch

    def epoch(
        self, number: int, steps: int, advance: Callable[[], object], step_log: StepLog
    ) -> float:
        """All steps of an epoch; returns the mean loss."""
        recipe, rank = self.recipe, current().rank
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.rate_of(number)
        self.model.train()
        total = count = 0.0
        with _seeded(generator_of(recipe.seed, number, "layers", rank), self.device):
            for step in range(steps):
                part, terms = self.step(number, step)
                total, count = total + part, count + terms
                advance()
                step_log.step(number, step, total / count)
        if not math.isfinite(total):
            raise ValueError(
                f"the loss is {total / count} in epoch {number + 1}; the previous checkpoint is "
                f"kept. Use a smaller rate than {recipe.rate:g}, and look for samples that are out "
                "of scale"
            )
        return total / count

    def step(self, epoch: int, step: int) -> tuple[float, float]:
        """Change the weights along their gradients; the sum of the losses, and their number."""
        self.optimizer.zero_grad(set_to_none=True)
        found = self.gradients(epoch, step, lambda loss: self.scaler.scale(loss).backward())
        if self.recipe.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return found


def _summary(line: dict[str, Any], epochs: int) -> str:
    plain = ("epoch", "loss", "rate", "seconds")
    scores = [f"{k} {100 * v:.2f} %" for k, v in line.items() if k not in plain]
    text = ", ".join([f"loss {line['loss']:.4f}", *scores])
    return f"epoch {line['epoch']}/{epochs}: {text} ({line['seconds']:.1f} s)"


def _extended(before: Recipe, now: Recipe, done: int) -> str:
    """What more epochs do to the rate."""
    last = before.rate_of(max(done - 1, 0))
    return (
        f"extended from {before.epochs} to {now.epochs} epochs: the rate goes on at "
        f"{now.rate_of(done):.3g} after {last:.3g}, by the cosine of {now.epochs} epochs"
    )


@dataclass
class Supervised:
    """The gradients of a task on labeled samples, for :func:`fit`."""

    model: nn.Module
    task: Task
    samples: Samples
    recipe: Recipe
    augment: Augment | None
    device: torch.device
    precision: Precision

    def __post_init__(self) -> None:
        self.ranks = current()
        if not len(self.samples):
            raise ValueError("the training set is empty")
        batch, world = min(self.recipe.batch, len(self.samples)), self.ranks.world
        if batch < world:
            raise ValueError(
                f"{world} processes cannot share batches of {batch}; use a larger batch or fewer "
                "processes"
            )
        self.steps = len(self.samples) // batch

    @cached_property
    def network(self) -> nn.Module:
        """The model, shared by all processes; made after a checkpoint has been read."""
        return DistributedDataParallel(self.model) if self.ranks.world > 1 else self.model

    def __call__(
        self, epoch: int, step: int, backward: Callable[[Tensor], None]
    ) -> tuple[float, float]:
        """One step."""
        batch = self.batch(epoch, step)
        with self.precision.autocast(self.device):
            logits, auxiliary = predict(self.network, batch)
        part, terms = self.task.loss(logits, batch)
        count = self.ranks.total(terms).clamp_min(1)
        # The mean over processes of these gradients is that of the joint batch, whoever has more.
        loss: Tensor = part * (self.ranks.world / count)
        backward(loss if auxiliary is None else loss + auxiliary)
        return float(self.ranks.total(part.detach())), float(count)

    def batch(self, epoch: int, step: int) -> Batch:
        """This process's part of a batch, each sample drawn and augmented by its own generator."""
        seed, augment = self.recipe.seed, self.augment
        share = augment.share(generator_of(seed, epoch, "share", step)) if augment else 0.0
        drawn = []
        order = torch.randperm(len(self.samples), generator=generator_of(seed, epoch, "order"))
        joint = order[step * self.recipe.batch : (step + 1) * self.recipe.batch].tolist()
        for index in self.ranks.mine(joint):
            generator = generator_of(seed, epoch, "sample", index)
            sample = self.samples.draw(index, generator)
            drawn.append(augment(sample, generator, share) if augment else sample)
        return collate(drawn).to(self.device)


@contextmanager
def _seeded(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Seed the global generator, which dropout draws from, and restore its state afterwards."""
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.set_rng_state(generator.get_state())
        if cuda:
            seeded = torch.Generator(device).manual_seed(generator.initial_seed())
            torch.cuda.set_rng_state(seeded.get_state(), device)
        yield
