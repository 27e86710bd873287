"""What the paper's tables measure, from counts that can be added up over batches and processes."""

from __future__ import annotations

import torch
from torch import Tensor

from veckm.data.samples import IGNORE


def confusion(
    predicted: Tensor,  # (...) int64
    label: Tensor,  # (...) int64
    classes: int,
) -> Tensor:  # (classes, classes) int64
    """How often each true class (row) was called each class (column).

    Points with the label IGNORE do not count.

    Shapes:
        - predicted, label: (...) int64
        - output: (classes, classes) int64
    """
    keep = label != IGNORE
    flat = label[keep] * classes + predicted[keep]
    return torch.bincount(flat, minlength=classes * classes).reshape(classes, classes)


def overall_accuracy(counts: Tensor) -> float:
    """The share that was called right: instance accuracy of objects, overall accuracy of points."""
    return _ratio(float(counts.diagonal().sum()), float(counts.sum()))


def class_accuracy(counts: Tensor) -> float:
    """The share of each class that was called right, averaged over the classes that are there."""
    true = counts.sum(1)
    there = true > 0
    return _mean(counts.diagonal()[there] / true[there])


def mean_iou(counts: Tensor) -> float:
    r"""Intersection over union, averaged over the classes that are in the truth.

    A class that is in the answer alone costs those whose points it took, and has no share itself.

    .. math:: \mathrm{IoU}_c = \frac{n_{cc}}{\sum_k n_{ck} + \sum_k n_{kc} - n_{cc}}

    Shapes:
        - counts: (classes, classes)
    """
    hit = counts.diagonal()
    union = counts.sum(0) + counts.sum(1) - hit
    there = counts.sum(1) > 0
    return _mean(hit[there] / union[there])


def shape_iou(
    predicted: Tensor,  # (N,) int64
    label: Tensor,  # (N,) int64
    first: int,
    count: int,
) -> float:
    """Mean IoU over the parts of one object's category; a part absent in both counts 1.

    Shapes:
        - predicted, label: (N,) int64
    """
    keep = label != IGNORE
    parts = torch.arange(first, first + count, device=label.device)[:, None]
    said, true = predicted[keep] == parts, label[keep] == parts  # (count, N)
    union = (said | true).sum(1)
    both = (said & true).sum(1)
    return float(torch.where(union > 0, both / union.clamp_min(1), 1.0).mean())


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
