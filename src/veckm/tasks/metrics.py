"""Losses and metrics of the paper's tables, from counts that can be summed over batches."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from veckm.data.samples import IGNORE


def cross_entropy(
    logits: Tensor,  # (..., classes)
    label: Tensor,  # (...) int64
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:  # (), ()
    """The sum of the cross-entropies, and their number; labels IGNORE do not count."""
    total = functional.cross_entropy(
        logits.float().flatten(0, -2),
        label.flatten(),
        reduction="sum",
        ignore_index=IGNORE,
        label_smoothing=smoothing,
    )
    return total, (label != IGNORE).sum()


def confusion(
    predicted: Tensor,  # (...) int64
    label: Tensor,  # (...) int64
    classes: int,
) -> Tensor:  # (classes, classes) int64
    """How often each true class (row) was predicted as each class (column).

    Points with the label IGNORE do not count.
    """
    keep = label != IGNORE
    flat = label[keep] * classes + predicted[keep]
    return torch.bincount(flat, minlength=classes * classes).reshape(classes, classes)


def overall_accuracy(counts: Tensor) -> float:  # (classes, classes)
    """The share of right predictions: instance accuracy of objects, overall accuracy of points."""
    total = float(counts.sum())
    return float(counts.diagonal().sum()) / total if total else float("nan")


def class_accuracy(counts: Tensor) -> float:  # (classes, classes)
    """The share of right predictions per class, averaged over the classes that are present."""
    true = counts.sum(1)
    present = true > 0
    return _mean(counts.diagonal()[present] / true[present])


def mean_iou(counts: Tensor) -> float:  # (classes, classes)
    r"""Intersection over union, averaged over the classes that are present in the truth.

    A class that is only predicted lowers the IoU of the others and has none itself.

    .. math:: \mathrm{IoU}_c = \frac{n_{cc}}{\sum_k n_{ck} + \sum_k n_{kc} - n_{cc}}
    """
    hit = counts.diagonal()
    union = counts.sum(0) + counts.sum(1) - hit
    present = counts.sum(1) > 0
    return _mean(hit[present] / union[present])


def shape_iou(
    predicted: Tensor,  # (N,) int64
    label: Tensor,  # (N,) int64
    first: int,
    count: int,
) -> float:
    """Mean IoU over the parts of one object's category; a part absent in both counts 1."""
    keep = label != IGNORE
    parts = torch.arange(first, first + count, device=label.device)[:, None]
    found, true = predicted[keep] == parts, label[keep] == parts  # (count, N)
    union = (found | true).sum(1)
    both = (found & true).sum(1)
    return float(torch.where(union > 0, both / union.clamp_min(1), 1.0).mean())


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")
