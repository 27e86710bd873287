"""Training of one row: rounds of visits to turned clouds, checkpoints, and the test at the end."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.common import log, write
from experiments.evaluation import mean_over_sets
from experiments.table1.paper import DenseNormalNet, unoriented_loss
from experiments.table1.rows import Options, Row
from veckm.data.protocol import LabeledCloud
from veckm.data.sampling import make_generator, rotation
from veckm.models.layers import seeded
from veckm.tasks.normals.evaluate import angle_error, rmse

ROUND = 16  # visits whose points are learned from together; a checkpoint follows each round
NORM_CLOUDS = 20  # rotated clouds that the batch norms average over at the end


def train(
    row: Row, seed: int, clouds: Sequence[LabeledCloud], options: Options
) -> tuple[DenseNormalNet, dict[str, Any]]:
    """The network at the end of its budget, and a record of the training; resumes a checkpoint."""
    net = seeded(row.make, seed).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=options.rate)
    generator = make_generator(seed + 1)
    done: dict[str, Any] = {"visits": 0, "steps": 0, "seconds": 0.0, "losses": []}
    path = checkpoint(row, seed, options)
    if path.exists():
        state = torch.load(path, weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        generator.set_state(state["generator"])
        done = state["done"]
        log(f"{row.title}, seed {seed}: resumes at visit {done['visits']}, {path}")
    while (spent := spent_share(done, options)) < 1:
        start = time.process_time()
        optimizer.param_groups[0]["lr"] = options.rate * (1 + math.cos(math.pi * spent)) / 2
        count = ROUND if options.minutes else min(ROUND, options.visits - done["visits"])
        steps, loss = learn_round(net, optimizer, clouds, row, count, generator)
        done["visits"] += count
        done["steps"] += steps
        done["seconds"] += time.process_time() - start
        done["losses"].append([round(done["seconds"], 1), round(loss, 4)])
        save_checkpoint(path, net, optimizer, generator, done)
        log(f"{row.title}: {done['visits']} visits, {done['seconds']:.0f} s, loss {loss:.4f}")
    estimate_batch_norms(net, row, clouds, generator)
    return net, done


def spent_share(done: dict[str, Any], options: Options) -> float:
    """How much of the budget is spent, 1 at the end of the training."""
    if options.minutes:
        return float(done["seconds"]) / (60 * options.minutes)
    return float(done["visits"]) / options.visits


def learn_round(
    net: DenseNormalNet,
    optimizer: torch.optim.Optimizer,
    clouds: Sequence[LabeledCloud],  # their points in the unit ball
    row: Row,
    visits: int,
    generator: torch.Generator,
) -> tuple[int, float]:
    """Learn from points of several turned clouds, mixed; returns the steps and the mean loss.

    Steps that each see one cloud in one turn follow it, and batch norms with them. A graph has to
    stay whole.
    """
    picks = torch.randint(len(clouds), (visits,), generator=generator).tolist()
    found = [gather_inputs(net, clouds[k], row.points, generator) for k in picks]
    inputs, normal = (torch.cat(parts) for parts in zip(*found, strict=True))
    order = torch.arange(len(normal))
    if not row.whole:
        order = torch.randperm(len(normal), generator=generator)
    losses = []
    for at in order.split(row.batch):
        if len(at) < 2:  # a batch norm has no statistics of one point
            continue
        loss = unoriented_loss(net.normals(net.encoder.features(inputs[at])), normal[at])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return len(losses), statistics.fmean(losses)


@torch.no_grad()
def gather_inputs(
    net: DenseNormalNet, cloud: LabeledCloud, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:  # (M, ...), (M, 3)
    """What the encoder gathers at random points of the rotated cloud, and their normals."""
    matrix = rotation(generator).float()
    at = torch.randperm(len(cloud.pos), generator=generator)[:count]
    return net.encoder.gather(cloud.pos @ matrix.T, at), cloud.normal[at] @ matrix.T


@torch.no_grad()
def estimate_batch_norms(
    net: DenseNormalNet, row: Row, clouds: Sequence[LabeledCloud], generator: torch.Generator
) -> None:
    """Set batch norms to the average over many rotated training clouds, with the final weights.

    The running statistics follow the last few steps and weights that still changed; VecKM has no
    batch norm.
    """
    norms = [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm1d)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain average
    net.train()
    for _ in range(NORM_CLOUDS):
        pick = int(torch.randint(len(clouds), (1,), generator=generator))
        inputs, _ = gather_inputs(net, clouds[pick], row.batch, generator)
        net.normals(net.encoder.features(inputs))


@torch.no_grad()
def evaluate(net: DenseNormalNet, clouds: Iterable[LabeledCloud]) -> dict[str, float]:
    """RMSE in degrees: of each cloud, its mean over each set, and the mean over the sets."""
    net.eval()
    scores: dict[str, list[float]] = {}
    for cloud in clouds:
        errors = angle_error(net(cloud.pos, cloud.subset), cloud.normal[cloud.subset])
        scores.setdefault(cloud.set, []).append(rmse(errors))
    return mean_over_sets(scores)


def checkpoint(row: Row, seed: int, options: Options) -> Path:
    """Where a training is kept; other settings have another place."""
    kept = ("meshes", "points", "shapes", "visits", "minutes", "graph", "rate")
    settings = json.dumps({name: str(getattr(options, name)) for name in kept})
    mark = hashlib.sha256(settings.encode()).hexdigest()[:10]
    return options.out / "checkpoints" / f"{row.name}-seed{seed}-{mark}.pt"


def save_checkpoint(
    path: Path,
    net: DenseNormalNet,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    done: dict[str, Any],
) -> None:
    """All that the next visit depends on."""
    state = {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "generator": generator.get_state(),
        "done": done,
    }
    write(path, lambda part: torch.save(state, part))
