"""Segmentation of objects into parts: Section 4.3 of the VecKM paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from veckm.data.augment import Augment
from veckm.data.samples import IGNORE, Batch
from veckm.data.shapenetpart import FIRST, NUM_PARTS, PARTS
from veckm.tasks import metrics
from veckm.training.recipe import Recipe

_COUNTS = tuple(PARTS.values())


@dataclass(frozen=True)
class PartSegmentation:
    """A part for every point, the category being known; the two IoUs of the paper's Table 3.

    The loss is over all parts. The answer is the likeliest part of the object's own category.

    Attributes:
        points: of every cloud.
        num_classes: parts of all categories together.
        num_categories: categories of objects.
    """

    points: int = 2048
    num_classes: int = NUM_PARTS
    num_categories: int = len(PARTS)
    name: ClassVar[str] = "part-segmentation"
    main: ClassVar[str] = "instance mIoU"

    @staticmethod
    def recipe(**changes: int | float) -> Recipe:
        """The paper's training settings, with changes."""
        return Recipe(**{"epochs": 250, "batch": 16, "rate": 1e-3, **changes})  # type: ignore[arg-type]

    @staticmethod
    def augment(normals: bool = False) -> Augment:
        """The paper's augmentation."""
        return Augment(normals=normals)

    def loss(
        self,
        logits: Tensor,  # (B, N, parts)
        batch: Batch,
    ) -> tuple[Tensor, Tensor]:  # (), ()
        """The sum of the cross-entropies of the points, and how many they are."""
        return pointwise_loss(logits, batch.label)

    def tally(
        self,
        logits: Tensor,  # (B, N, parts)
        batch: Batch,
    ) -> Tensor:  # (categories, 2) float64
        """Of every category the sum of the IoUs of its objects, and their number."""
        assert batch.category is not None
        out = torch.zeros(self.num_categories, 2, dtype=torch.float64)
        for scores, label, category in zip(
            logits, batch.label, batch.category.tolist(), strict=True
        ):
            first, count = FIRST[category], _COUNTS[category]
            said = scores[:, first : first + count].argmax(-1) + first
            out[category, 0] += metrics.shape_iou(said, label, first, count)
            out[category, 1] += 1
        return out

    def scores(self, tally: Tensor) -> dict[str, float]:
        """Mean over objects, and mean over the categories' own means."""
        total, count = tally.unbind(-1)
        there = count > 0
        return {
            "instance mIoU": float(total.sum() / count.sum()),
            "class mIoU": float((total[there] / count[there]).mean()),
        }


def pointwise_loss(
    logits: Tensor,  # (B, N, classes)
    label: Tensor,  # (B, N)
) -> tuple[Tensor, Tensor]:  # (), ()
    """The sum of the cross-entropies of the points that count, and how many they are.

    Shapes:
        - logits: (B, N, classes), label: (B, N)
    """
    total = functional.cross_entropy(
        logits.float().flatten(0, 1), label.flatten(), reduction="sum", ignore_index=IGNORE
    )
    return total, (label != IGNORE).sum()
