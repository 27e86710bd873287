"""Training of the normal network: stage after stage, each on the output of the previous one.

A stage is trained alone, on points drawn from clouds whose pyramids were computed once. Its inputs
at the neighbors are the output of the previous stage, computed for whole clouds in between. So a
backward pass holds only one stage of a few thousand points, and every stage is trained on the
inputs that it has at inference.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from veckm.parallel import one_thread
from veckm.progress import bar
from veckm.tasks.normals.network import NormalNet, StageOutput, gather_inputs, join, run_stage
from veckm.tasks.normals.pyramid import Pyramid, make_pyramid


@dataclass(frozen=True)
class Budget:
    """How much is done: fixed before it begins."""

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
    """Between lines, not directions; smooth at zero."""
    sine = torch.linalg.cross(n, m).square().sum(-1)
    return torch.atan2((sine + 1e-8).sqrt(), (n * m).sum(-1).abs())


def loss_of(output: StageOutput, truth: Tensor, clouds: int) -> tuple[Tensor, Tensor]:
    """What the field measures, the root mean square angle of each cloud, and the mean of these.

    The plane alone is asked for the same, so that it stays a good candidate. The expected error mu
    is fitted by log(mu) + error / mu, which is least where mu is the mean error of such points.
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
    """Train all stages of `net` in place; what was done is in `folder`, and is taken up again."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(len(net.stages)):
        done = folder / f"stage{number}.pt"
        if done.exists():
            net.stages[number].load_state_dict(torch.load(done, weights_only=True))
            note(f"stage {number}: taken from {done}")
        else:
            _train_stage(net, number, examples, budget, folder, note)
            torch.save(net.stages[number].state_dict(), done)
        if number + 1 < len(net.stages):
            for example in examples:
                stage = net.stage(number)
                example.previous = run_stage(stage, example.pyramid, example.previous)


def _train_stage(
    net: NormalNet,
    number: int,
    examples: Sequence[Example],
    budget: Budget,
    folder: Path,
    note: Callable[[str], None],
) -> None:
    stage = net.stages[number]
    optimizer = torch.optim.AdamW(stage.parameters(), lr=budget.rate, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(1000 * budget.seed + number)
    first, resume = 0, folder / f"stage{number}.resume.pt"
    if resume.exists():
        state = torch.load(resume, weights_only=True)
        stage.load_state_dict(state["stage"])
        optimizer.load_state_dict(state["optimizer"])
        generator.set_state(state["generator"])
        first = state["step"]
        note(f"stage {number}: going on from step {first}")
    begin, seen = time.perf_counter(), []
    replicas = [stage, *(deepcopy(stage) for _ in range(torch.get_num_threads() - 1))]
    replicas = replicas[: budget.clouds]
    with (
        bar(budget.steps - first, f"stage {number}") as advance,
        one_thread(),
        ThreadPoolExecutor(len(replicas)) as pool,
    ):
        for step in range(first, budget.steps):
            for group in optimizer.param_groups:
                group["lr"] = budget.rate * _schedule(step, budget.steps)
            seen.append(_step(replicas, examples, budget, generator, pool))
            length = nn.utils.clip_grad_norm_(stage.parameters(), 1.0)
            if torch.isfinite(length):  # one point in a million must not end the training
                optimizer.step()
            advance()
            if (step + 1) % 100 == 0:
                line = {"stage": number, "step": step + 1, "rmse": sum(seen) / len(seen)}
                line["seconds"] = round(time.perf_counter() - begin, 1)
                with (folder / "log.jsonl").open("a") as log:
                    log.write(json.dumps(line) + "\n")
                note(f"stage {number} step {step + 1}: {line['rmse']:.2f} degrees")
                seen = []
                _save(resume, stage, optimizer, generator, step + 1)
    resume.unlink(missing_ok=True)


def _step(
    replicas: Sequence[nn.Module],
    examples: Sequence[Example],
    budget: Budget,
    generator: torch.Generator,
    pool: ThreadPoolExecutor,
) -> float:
    """Leave the gradient of one step in the first replica; the root mean square angle.

    Each replica takes its share of the clouds on a thread of its own: half the work at a time is
    faster than torch's threads inside each small operation.
    """
    picked = torch.randint(len(examples), (budget.clouds,), generator=generator).tolist()
    drawn = [
        torch.randint(len(examples[k].truth), (budget.points,), generator=generator) for k in picked
    ]
    state = replicas[0].state_dict()

    def work(number: int) -> float:
        torch.set_num_threads(1)
        mine = range(number, budget.clouds, len(replicas))
        if number:
            replicas[number].load_state_dict(state)
        replicas[number].zero_grad(set_to_none=True)
        some = [examples[picked[i]] for i in mine]
        inputs = [
            gather_inputs(e.pyramid, drawn[i], e.previous) for e, i in zip(some, mine, strict=True)
        ]
        truth = torch.cat([examples[picked[i]].truth[drawn[i]] for i in mine])
        loss, score = loss_of(replicas[number](join(inputs)), truth, len(mine))
        (loss * (len(mine) / budget.clouds)).backward()
        return float(score) * len(mine) / budget.clouds

    scores = list(pool.map(work, range(len(replicas))))
    for other in replicas[1:]:
        for p, q in zip(replicas[0].parameters(), other.parameters(), strict=True):
            assert p.grad is not None
            assert q.grad is not None
            p.grad += q.grad
    return sum(scores)


def _schedule(step: int, steps: int) -> float:
    """A short rise, then a cosine to zero."""
    rise = min(1.0, (step + 1) / 100)
    return rise * (0.5 + 0.5 * math.cos(math.pi * step / steps))


def _save(
    path: Path,
    stage: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    step: int,
) -> None:
    """Written beside and renamed: a kill leaves the old one or the new one."""
    state = {
        "stage": stage.state_dict(),
        "optimizer": optimizer.state_dict(),
        "generator": generator.get_state(),
        "step": step,
    }
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)
