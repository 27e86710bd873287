"""Training of the normal network: stage after stage, each on the output of the previous one.

A stage is trained alone, on points drawn from clouds whose pyramids were computed once. Its inputs
at the neighbors are the output of the previous stage, computed for whole clouds in between. So a
backward pass holds only one stage of a few thousand points, and every stage is trained on the
inputs that it has at inference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from veckm.data.samples import generator_of
from veckm.parallel import one_thread, threads
from veckm.tasks.normals.network import (
    NormalNet,
    Stage,
    StageOutput,
    gather_inputs,
    join,
    run_stage,
)
from veckm.tasks.normals.pyramid import Pyramid, make_pyramid
from veckm.training.loop import fit
from veckm.training.recipe import Recipe

#: Steps between checkpoints.
_STEPS = 100


@dataclass(frozen=True)
class Budget:
    """The amount of training."""

    steps: int = 3000  # of every stage
    clouds: int = 8  # in a step
    points: int = 512  # of each
    rate: float = 3e-3
    seed: int = 0


@dataclass
class Example:
    """A cloud to learn from: its pyramid, the true normals, and the output so far."""

    pyramid: Pyramid
    truth: Tensor  # (N, 3)
    previous: StageOutput | None = None  # of the previous stage, at all points


def make_example(pos: Tensor, normal: Tensor) -> Example:
    """The pyramid of a cloud and its true normals."""
    return Example(make_pyramid(pos), normal.float())


def angles(n: Tensor, m: Tensor) -> Tensor:  # (B, 3), (B, 3) -> (B,) rad
    """Angles between lines, not directions; smooth at zero."""
    sine = torch.linalg.cross(n, m).square().sum(-1)
    return torch.atan2((sine + 1e-8).sqrt(), (n * m).sum(-1).abs())


def loss_of(output: StageOutput, truth: Tensor, clouds: int) -> tuple[Tensor, Tensor]:
    """The loss, and the mean over clouds of the root mean square angle in degrees.

    The loss is that angle, plus the same of the plane alone, so that it stays a good candidate. The
    expected error mu is fitted by log(mu) + error / mu, which is least where mu is the mean error
    of such points.
    """
    wrong = angles(output.normal, truth)
    score = _rms(wrong, clouds)
    plane = _rms(angles(output.plane, truth), clouds)
    degrees = torch.rad2deg(wrong.detach())
    calibration = (output.error.log() + degrees / output.error).mean()
    return score + 0.3 * plane + 0.02 * calibration, torch.rad2deg(score.detach())


def _rms(wrong: Tensor, clouds: int) -> Tensor:
    return (wrong.view(clouds, -1).square().mean(1) + 1e-8).sqrt().mean()


def train(
    net: NormalNet,
    examples: Sequence[Example],
    budget: Budget,
    folder: Path,
    note: Callable[[str], None],
) -> None:
    """Train all stages of `net` in place; a stopped training resumes from `folder`."""
    epochs = math.ceil(budget.steps / _STEPS)
    recipe = Recipe(
        epochs, budget.clouds, budget.rate, 1e-4, budget.seed, optimizer="adamw", clip=1.0
    )
    data = {"clouds": [len(example.truth) for example in examples], "points": budget.points}
    for number, stage in enumerate(net.stages):
        gradients = _Gradients(stage, number, examples, budget)
        with one_thread(), ThreadPoolExecutor(gradients.threads) as gradients.pool:
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
        if number + 1 < len(net.stages):
            for example in examples:
                example.previous = run_stage(stage, example.pyramid, example.previous)


class _Gradients:
    """The gradient of a step, for :func:`veckm.training.loop.fit`.

    Each thread takes its share of the clouds: this is faster than torch's threads inside each small
    operation.
    """

    pool: ThreadPoolExecutor

    def __init__(
        self, stage: Stage, number: int, examples: Sequence[Example], budget: Budget
    ) -> None:
        self.stage, self.number, self.examples, self.budget = stage, number, examples, budget
        self.threads = min(threads(), budget.clouds)
        self._scores: list[float] = []  # degrees, since the last line of the log

    def __call__(self, epoch: int, step: int, _: object) -> tuple[float, float]:
        """Leave the gradient in the stage; the loss, and one as the number of terms."""
        budget, weights = self.budget, list(self.stage.parameters())
        generator = generator_of(budget.seed, self.number, epoch, step)
        picked = torch.randint(len(self.examples), (budget.clouds,), generator=generator).tolist()
        drawn = [
            (e, torch.randint(len(e.truth), (budget.points,), generator=generator))
            for e in (self.examples[k] for k in picked)
        ]

        def work(thread: int) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
            torch.set_num_threads(1)
            mine = drawn[thread :: self.threads]
            inputs = join([gather_inputs(e.pyramid, rows, e.previous) for e, rows in mine])
            truth = torch.cat([e.truth[rows] for e, rows in mine])
            loss, score = loss_of(self.stage(inputs), truth, len(mine))
            share = len(mine) / budget.clouds
            return loss.detach() * share, score * share, torch.autograd.grad(loss * share, weights)

        losses, scores, grads = zip(*self.pool.map(work, range(self.threads)), strict=True)
        sums = [torch.stack(parts).sum(0) for parts in zip(*grads, strict=True)]
        if not all(bool(grad.isfinite().all()) for grad in sums):
            return 0.0, 0.0  # one bad point in a million must not end the training
        for weight, grad in zip(weights, sums, strict=True):
            weight.grad = grad
        self._scores.append(float(sum(scores)))
        return float(sum(losses)), 1.0

    def describe(self, line: str) -> str:
        """A line of the log with the root mean square angle of the clouds since the last one."""
        text = f"stage {self.number}: {line}"
        if self._scores:
            text += f", {sum(self._scores) / len(self._scores):.2f} degrees"
            self._scores = []
        return text
