"""Training of the normal network: stage after stage, each on the output of the previous one.

A stage is trained alone, on points drawn from clouds whose pyramids were computed once. Its inputs
at the neighbors are the output of the previous stage, computed for whole clouds in between. So a
backward pass holds only one stage of a few thousand points, and every stage is trained on the
inputs that it has at inference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from veckm.data.samples import generator_of
from veckm.parallel import share, threads
from veckm.tasks.normals.network import (
    DEGREES,
    KNOTS,
    NormalNet,
    Stage,
    gather_inputs,
    run_stage,
)
from veckm.tasks.normals.pyramid import Pyramid, make_pyramid
from veckm.training.loop import fit
from veckm.training.recipe import Recipe

_STEPS = 100  # between checkpoints
_CLEAN = 0.3  # of the square of the angle, to the normal of the nearest point without noise
#: Points of each cloud that the expected error is calibrated on.
_CALIBRATION = 2000


@dataclass(frozen=True)
class Budget:
    """The amount of training."""

    steps: int = 25000  # of every stage
    clouds: int = 8  # in a step
    points: int = 512  # of each
    rate: float = 3e-3
    seed: int = 0
    absolute: float = 0.3  # weight of the mean angle in the loss, beside its root mean square


@dataclass
class Example:
    """A cloud to learn from: its pyramid, the true normals, and the output so far."""

    pyramid: Pyramid
    truth: Tensor  # (N, 3), zero where there is no normal to learn
    nearest: Tensor  # (N, 3) of the nearest point of the cloud without noise, zero likewise
    previous: Tensor | None = None  # (N, 4) of the previous stage

    def draw(self, count: int, generator: torch.Generator) -> Tensor:  # (count,) int64
        """Rows with a normal, at random."""
        known = self.truth.any(1).nonzero()[:, 0]
        return known[torch.randint(len(known), (count,), generator=generator)]


def angles(n: Tensor, m: Tensor) -> Tensor:  # (B, 3), (B, 3) -> (B,) rad
    """Angles between lines, not directions; smooth at zero."""
    sine = torch.linalg.cross(n, m).square().sum(-1)
    return torch.atan2((sine + 1e-8).sqrt(), (n * m).sum(-1).abs())


def loss_of(
    output: Tensor,  # (B, 4) normals and logarithms of their expected errors
    plane: Tensor,  # (B, 3)
    truth: Tensor,  # (2, B, 3) of the points themselves, and of the nearest without noise
    clouds: int,
    absolute: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The loss, and the mean over clouds of the root mean square angle in degrees.

    The loss is that angle, a part of its square to the normal of the nearest point without noise,
    whose scatter is less, plus the same of the plane alone, so that it stays a good candidate. The
    expected error mu is fitted by log(mu) + error / mu, which is least where mu is the mean error
    of such points.
    """
    wrong = torch.stack([angles(n, m) for n in (output[:, :3], plane) for m in truth])  # (4, B)
    square = wrong.view(2, 2, clouds, -1).square().mean(3)
    parts = (1 - _CLEAN) * square[:, 0] + _CLEAN * square[:, 1]
    found, of_plane = (parts + 1e-8).sqrt().mean(1)
    score = (square[0, 0] + 1e-8).sqrt().mean()
    log_error = output[:, 3] + math.log(DEGREES)
    calibration = (log_error + torch.rad2deg(wrong[0].detach()) / log_error.exp()).mean()
    found = found + absolute * wrong[0].mean()  # small angles count as much as large ones
    return found + 0.3 * of_plane + 0.02 * calibration, torch.rad2deg(score.detach())


def train(
    net: NormalNet,
    examples: Sequence[Example],
    budget: Budget,
    folder: Path,
    note: Callable[[str], None],
) -> None:
    """Train all stages of `net` in place; a stopped training resumes from `folder`."""
    epochs = math.ceil(budget.steps / _STEPS)
    given = (epochs, budget.clouds, budget.rate, 1e-4, budget.seed)
    recipe = Recipe(*given, optimizer="adamw", clip=1.0)
    data = {"clouds": [len(example.truth) for example in examples], "points": budget.points}
    data |= {"absolute": budget.absolute} if budget.absolute else {}
    for number, stage in enumerate(net.stages):
        gradients = _Gradients(stage, number, examples, budget)
        fit(
            stage,
            gradients,
            math.ceil(budget.steps / epochs),
            recipe,
            folder / f"stage{number}",
            task={"name": f"normals, stage {number}"},
            data=data,
            note=lambda line, g=gradients: note(g.describe(line)),  # type: ignore[misc]
        )
        for example in examples:
            example.previous = run_stage(stage, example.pyramid, example.previous)


def calibrate(
    net: NormalNet, clouds: Iterable[tuple[Tensor, Tensor]], generator: torch.Generator
) -> None:
    """Set the mean error where the last stage predicts one of about so much, equally many of each.

    On points and true normals, (N, 3) each, of clouds that were not trained on.
    """
    predicted, measured = [], []
    for pos, truth in clouds:
        known = Example(make_pyramid(pos), truth.float(), truth)
        rows = known.draw(_CALIBRATION, generator)
        out = net.run(known.pyramid)[rows]
        predicted.append(out[:, 3])
        measured.append(torch.rad2deg(angles(out[:, :3], known.truth[rows])) / DEGREES)
    order = torch.cat(predicted).argsort()
    parts = [torch.cat(values)[order].tensor_split(KNOTS) for values in (predicted, measured)]
    at, error = (torch.stack([part.mean() for part in some]) for some in parts)
    at = at + 1e-4 * torch.arange(len(at))  # no two are equal
    net.calibration = torch.stack((at, error.log().cummax(0).values))


@dataclass
class _Gradients:
    """The gradient of a step, for :func:`veckm.training.loop.fit`.

    Each thread takes its share of the clouds: this is faster than torch's threads inside each small
    operation.
    """

    stage: Stage
    number: int
    examples: Sequence[Example]
    budget: Budget
    scores: list[float] = field(default_factory=list)  # degrees, since the last line of the log

    def __call__(self, epoch: int, step: int, _: object) -> tuple[float, float]:
        """Leave the gradient in the stage; the loss, and one as the number of terms."""
        budget, weights = self.budget, list(self.stage.parameters())
        generator = generator_of(budget.seed, self.number, epoch, step)
        picked = torch.randint(len(self.examples), (budget.clouds,), generator=generator).tolist()
        drawn = [(e, e.draw(budget.points, generator)) for e in (self.examples[k] for k in picked)]
        count = min(threads(), budget.clouds)
        found: dict[int, tuple[Tensor, ...]] = {}  # loss, score and gradients of each thread

        @torch.enable_grad()
        def work(thread: int) -> None:
            mine = drawn[thread::count]
            output, plane = self.stage(gather_inputs(e.pyramid, r, e.previous) for e, r in mine)
            truth = torch.cat([torch.stack((e.truth[r], e.nearest[r])) for e, r in mine], 1)
            loss, score = loss_of(output, plane, truth, len(mine), self.budget.absolute)
            grads = torch.autograd.grad(loss, weights)
            part = len(mine) / budget.clouds
            found[thread] = tuple(x.detach() * part for x in (loss, score, *grads))

        share(range(count), lambda _: work, count)
        loss, score, *grads = (
            sum(parts) for parts in zip(*(found[k] for k in range(count)), strict=True)
        )
        if not all(bool(grad.isfinite().all()) for grad in grads):
            return 0.0, 0.0  # one bad point in a million must not end the training
        for weight, grad in zip(weights, grads, strict=True):
            weight.grad = grad
        self.scores.append(float(score))
        return float(loss), 1.0

    def describe(self, line: str) -> str:
        """A line of the log with the root mean square angle of the clouds since the last one."""
        degrees = f", {fmean(self.scores):.2f} degrees" if self.scores else ""
        self.scores.clear()
        return f"stage {self.number}: {line}{degrees}"
