"""Segmentation of objects into parts: Section 4.3 of the VecKM paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from veckm.data.samples import Batch
from veckm.data.shapenetpart import FIRST, NUM_PARTS, PARTS
from veckm.tasks import metrics
from veckm.tasks.labeling import Labeling
from veckm.training.recipe import Recipe

_COUNTS = tuple(PARTS.values())


@dataclass(frozen=True)
class PartSegmentation(Labeling):
    """One part per point, the category being known; the two IoUs of the paper's Table 3.

    The loss is over all parts. The prediction is the likeliest part of the object's own category.

    Attributes:
        points: per cloud.
        num_classes: parts of all categories together.
        num_categories: categories of objects.
    """

    points: int = 2048
    num_classes: int = NUM_PARTS
    num_categories: int = len(PARTS)
    name: ClassVar[str] = "part-segmentation"
    default_recipe: ClassVar[Recipe] = Recipe(epochs=250, batch=16)

    def tally(self, logits: Tensor, batch: Batch) -> Tensor:  # (B, N, parts) -> (categories, 2)
        """For every category the sum of the IoUs of its objects, and their number."""
        assert batch.category is not None
        out = torch.zeros(self.num_categories, 2, dtype=torch.float64)
        for scores, label, category in zip(
            logits, batch.label, batch.category.tolist(), strict=True
        ):
            first, count = FIRST[category], _COUNTS[category]
            predicted = scores[:, first : first + count].argmax(-1) + first
            out[category, 0] += metrics.shape_iou(predicted, label, first, count)
            out[category, 1] += 1
        return out

    def scores(self, tally: Tensor) -> dict[str, float]:
        """The mean over objects, and the mean over the means of the categories."""
        total, count = tally.unbind(-1)
        present = count > 0
        return {
            "instance mIoU": float(total.sum() / count.sum()),
            "class mIoU": float((total[present] / count[present]).mean()),
        }
