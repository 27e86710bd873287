"""The metrics of a model on a set, over one process or several."""

from __future__ import annotations

from itertools import groupby

import torch
from torch import Tensor, nn

from veckm.data.samples import Batch, Samples, collate
from veckm.progress import bar
from veckm.training.ranks import current
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
    """The task's metrics of a model on all samples; the model's mode is restored.

    Args:
        model: as for :func:`veckm.training.train`.
        task: defines the metrics.
        samples: the set; clouds of different sizes come in separate batches.
        batch: clouds at a time.
        device: where the model is.
        label: of the progress bar; None for none.
    """
    if not len(samples):
        raise ValueError("the set to evaluate is empty")
    ranks, training = current(), model.training
    model.eval()
    try:
        with torch.no_grad(), bar(len(samples), label if ranks.first else None) as advance:
            total: Tensor | None = None
            for start in range(0, len(samples), batch):
                indices = range(start, min(start + batch, len(samples)))
                drawn = [samples.draw(i) for i in ranks.mine(indices)]
                for _, part in groupby(drawn, key=lambda sample: len(sample.pos)):
                    joint = collate(list(part)).to(device)
                    counts = task.tally(predict(model, joint)[0], joint).cpu()
                    total = counts if total is None else total + counts
                advance(len(indices))
        # All processes together; one that had no sample adds nothing.
        tallies = [total] * ranks.world
        if ranks.world > 1:
            torch.distributed.all_gather_object(tallies, total)
        return task.scores(torch.stack([part for part in tallies if part is not None]).sum(0))
    finally:
        model.train(training)


def predict(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Logits and auxiliary loss of a batch; a model may return the logits alone."""
    category = {} if batch.category is None else {"category": batch.category}
    out = model(batch.pos, batch.features, **category)
    return out if isinstance(out, tuple) else (out, None)
