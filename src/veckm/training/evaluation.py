"""The metrics of a model on a set, over one process or several."""

from __future__ import annotations

from itertools import groupby

import torch
from torch import Tensor, nn

from veckm.data.samples import Sample, Samples, collate
from veckm.progress import bar
from veckm.training.ranks import Ranks, current
from veckm.training.recipe import Task


def evaluate(
    model: nn.Module,
    task: Task,
    samples: Samples,
    *,
    batch: int = 32,
    device: torch.device | str = "cpu",
    label: str | None = "evaluate",
) -> dict[str, float]:
    """The task's metrics of a model on all samples; the model's mode is put back.

    Args:
        model: takes ``(pos, features, category)``.
        task: says what is measured.
        samples: the set; clouds of different sizes are put in batches apart.
        batch: clouds at a time.
        device: where the model is.
        label: of the progress bar; None for none.
    """
    if not len(samples):
        raise ValueError("there is nothing to evaluate: the set is empty")
    ranks, training = current(), model.training
    model.eval()
    try:
        with torch.no_grad(), bar(len(samples), label if ranks.first else None) as advance:
            total: Tensor | None = None
            for start in range(0, len(samples), batch):
                indices = range(start, min(start + batch, len(samples)))
                for part in _alike([samples.draw(i) for i in ranks.mine(indices)]):
                    joint = collate(part).to(device)
                    logits = model(joint.pos, joint.features, joint.category)
                    counts = task.tally(logits, joint).cpu()
                    total = counts if total is None else total + counts
                advance(len(indices))
        return task.scores(_sum(total, ranks))
    finally:
        model.train(training)


def _alike(samples: list[Sample]) -> list[list[Sample]]:
    """Runs of samples with equally many points."""
    return [list(group) for _, group in groupby(samples, key=lambda s: len(s.pos))]


def _sum(total: Tensor | None, ranks: Ranks) -> Tensor:
    """Over all processes; one that had no sample adds nothing."""
    if ranks.world == 1:
        assert total is not None
        return total
    parts: list[Tensor | None] = [None] * ranks.world
    torch.distributed.all_gather_object(parts, total)
    there = [part for part in parts if part is not None]
    return torch.stack(there).sum(0)
