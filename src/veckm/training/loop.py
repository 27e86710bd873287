"""The training loop.

    for every epoch:  order the samples, and for every batch:  draw, augment, forward, step
                      write a line of the log and a checkpoint

The order, the points and the augmentation of an epoch depend on (seed, epoch) alone, and the
learning rate on the epoch. A run that was killed goes on from its last checkpoint and ends in the
same weights, to the last bit on a CPU. Several processes share each batch: see :mod:`ranks`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from veckm.data.augment import Augment
from veckm.data.samples import Batch, Samples, collate, generator_of
from veckm.progress import bar
from veckm.training.checkpoint import Checkpoint, describe, load_checkpoint, settings_of
from veckm.training.evaluation import evaluate
from veckm.training.log import Log
from veckm.training.ranks import Ranks, current
from veckm.training.recipe import Recipe, Task


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
    note: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """Train a model in place; what was done is in ``folder``, and is taken up again.

    Args:
        model: ``forward(pos, features, category) -> logits``.
        task: the loss and the metrics.
        samples: what it learns from.
        recipe: how.
        folder: for ``last.pt`` after every epoch and ``log.jsonl``.
        augment: changes every sample every time; None for none.
        validation: another set. It is measured after the last epoch; nothing is chosen by it.
        validate_every: measure it also after every so many epochs; 0 for the last only.
        device: where the work is done.
        note: is told a line an epoch.

    Returns the metrics on the validation set after the last epoch, or nothing without one.
    """
    folder, device, ranks = Path(folder), torch.device(device), current()
    _check(samples, recipe, ranks)
    folder.mkdir(parents=True, exist_ok=True)
    run = _Run(model.to(device), task, samples, recipe, augment, device, ranks)
    first = run.resume(folder / "last.pt")
    if first:
        note(f"going on after epoch {first} of {recipe.epochs}")
    ranks.wait()  # nobody writes before everybody has read
    log = Log(folder, first) if ranks.first else None
    scores: dict[str, float] = {}
    try:
        steps = (recipe.epochs - first) * run.steps
        with bar(steps, task.name if ranks.first else None) as advance:
            for epoch in range(first, recipe.epochs):
                begin = time.perf_counter()
                line: dict[str, Any] = {"epoch": epoch + 1, "loss": run.epoch(epoch, advance)}
                line |= {"rate": recipe.rate_of(epoch)}
                last = epoch + 1 == recipe.epochs
                due = last or (validate_every > 0 and (epoch + 1) % validate_every == 0)
                if validation is not None and due:
                    scores = run.evaluate(validation)
                    line |= scores
                line["seconds"] = round(time.perf_counter() - begin, 3)
                if log is not None:
                    log.write(line)
                    run.checkpoint(epoch + 1).save(folder / "last.pt")
                note(_words(line, recipe.epochs))
    finally:
        if log is not None:
            log.close()
    if not scores and validation is not None:  # it was finished before
        scores = run.evaluate(validation)
    return scores


def _check(samples: Samples, recipe: Recipe, ranks: Ranks) -> None:
    if not len(samples):
        raise ValueError("there is nothing to learn from: the training set is empty")
    if min(recipe.batch, len(samples)) < ranks.world:
        raise ValueError(
            f"{ranks.world} processes cannot share batches of {min(recipe.batch, len(samples))}; "
            "use a larger batch or fewer processes"
        )


def _words(line: dict[str, Any], epochs: int) -> str:
    scores = [f"{k} {100 * v:.2f} %" for k, v in line.items() if k not in _PLAIN]
    said = ", ".join([f"loss {line['loss']:.4f}", *scores])
    return f"epoch {line['epoch']}/{epochs}: {said} ({line['seconds']:.1f} s)"


_PLAIN = ("epoch", "loss", "rate", "seconds")


@dataclass
class _Run:
    """What stays the same from step to step."""

    model: nn.Module
    task: Task
    samples: Samples
    recipe: Recipe
    augment: Augment | None
    device: torch.device
    ranks: Ranks

    def __post_init__(self) -> None:
        r = self.recipe
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=r.rate, weight_decay=r.weight_decay
        )
        self.amp = r.amp and self.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.amp)
        self.steps = max(1, len(self.samples) // r.batch)
        self.network: nn.Module | None = None  # the model, shared by all processes

    @property
    def data(self) -> dict[str, Any]:
        """What the checkpoint says about the samples and what is done to them."""
        return {
            "classes": list(self.samples.classes),
            "checksum": self.samples.checksum,
            "samples": len(self.samples),
            "augment": None if self.augment is None else repr(self.augment),
        }

    def resume(self, path: Path) -> int:
        """Take up a checkpoint if there is one; how many epochs it has behind it."""
        done = 0
        if path.is_file():
            saved = load_checkpoint(path)
            saved.restore(self.model, path)
            saved.check(self.task, self.recipe, self.data, path)
            self.optimizer.load_state_dict(saved.optimizer)
            if saved.scaler:
                self.scaler.load_state_dict(saved.scaler)
            done = saved.epoch
        self.network = self.model
        if self.ranks.world > 1:
            self.network = DistributedDataParallel(self.model)
        return done

    def checkpoint(self, done: int) -> Checkpoint:
        """The state after ``done`` epochs."""
        return Checkpoint(
            done,
            settings_of(self.model),
            describe(self.task),
            {name: getattr(self.recipe, name) for name in self.recipe.__dataclass_fields__},
            self.data,
            self.model.state_dict(),
            self.optimizer.state_dict(),
            self.scaler.state_dict(),
        )

    def evaluate(self, samples: Samples) -> dict[str, float]:
        """Metrics of the model as it is."""
        return evaluate(
            self.model, self.task, samples, batch=self.recipe.batch, device=self.device, label=None
        )

    def epoch(self, number: int, advance: Callable[..., object]) -> float:
        """All steps of an epoch; the mean loss over them."""
        seed, batch = self.recipe.seed, self.recipe.batch
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate_of(number)
        self.model.train()
        order = torch.randperm(
            len(self.samples), generator=generator_of(seed, number, "order")
        ).tolist()
        total, count = 0.0, 0.0
        with _seeded(generator_of(seed, number, "layers", self.ranks.rank), self.device):
            for step in range(self.steps):
                joint = order[step * batch : (step + 1) * batch]
                part, terms = self.step(self.batch(self.ranks.mine(joint), number, step))
                total, count = total + part, count + terms
                advance()
        if not math.isfinite(total):
            raise ValueError(
                f"the loss is {total / count} in epoch {number + 1}; the checkpoint before it is "
                f"kept. Use a smaller rate than {self.recipe.rate:g}, and look for samples that "
                "are out of scale"
            )
        return total / count

    def batch(self, indices: Any, epoch: int, step: int) -> Batch:
        """Samples drawn and augmented, each by a generator of its own, and thinned alike."""
        seed, augment = self.recipe.seed, self.augment
        share = augment.share(generator_of(seed, epoch, "share", step)) if augment else 0.0
        drawn = []
        for index in indices:
            generator = generator_of(seed, epoch, "sample", index)
            sample = self.samples.draw(index, generator)
            drawn.append(augment(sample, generator, share) if augment else sample)
        return collate(drawn).to(self.device)

    def step(self, batch: Batch) -> tuple[float, float]:
        """One step; the sum of the losses over all processes, and how many there are."""
        assert self.network is not None
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, enabled=self.amp):
            logits = self.network(batch.pos, batch.features, batch.category)
        part, terms = self.task.loss(logits, batch)
        count = self.ranks.total(terms).clamp_min(1)
        # The mean over processes of these gradients is that of the joint batch, whoever has more.
        loss: Tensor = part * (self.ranks.world / count)
        penalty = getattr(self.model, "penalty", None)  # a user's own network has none
        if penalty is not None:
            loss = loss + penalty
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return float(self.ranks.total(part.detach())), float(count)


@contextmanager
def _seeded(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Dropout draws from the global generator: give it a state of ours, and then its own back."""
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.set_rng_state(generator.get_state())
        if cuda:
            seeded = torch.Generator(device).manual_seed(generator.initial_seed())
            torch.cuda.set_rng_state(seeded.get_state(), device)
        yield
