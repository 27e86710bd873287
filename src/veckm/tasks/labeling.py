"""Tasks that learn labels: classification and segmentation, with the metrics of the paper's tables.

Metrics are computed from counts that can be summed over batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from veckm.data.augment import Augment
from veckm.data.samples import IGNORE, Batch
from veckm.data.shapenetpart import FIRST, NUM_PARTS, PARTS
from veckm.training.recipe import Recipe

_PART_COUNTS = tuple(PARTS.values())


class Labeling:
    """Labels of clouds or of points, learned by cross-entropy."""

    default_recipe: ClassVar[Recipe]
    num_classes: int
    smoothing: float = 0.0

    @staticmethod
    def augment(normals: bool = False) -> Augment:
        """The paper's augmentation of objects."""
        return Augment(normals=normals)

    def loss(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:  # (..., classes)
        """The sum of the cross-entropies, and their number; labels IGNORE do not count."""
        total = functional.cross_entropy(
            logits.float().flatten(0, -2),
            batch.label.flatten(),
            reduction="sum",
            ignore_index=IGNORE,
            label_smoothing=self.smoothing,
        )
        return total, (batch.label != IGNORE).sum()

    def tally(self, logits: Tensor, batch: Batch) -> Tensor:  # -> (classes, classes) int64
        """How often each true class (row) was predicted as each (column), without IGNORE."""
        keep = batch.label != IGNORE
        flat = batch.label[keep] * self.num_classes + logits.argmax(-1)[keep]
        counts = torch.bincount(flat, minlength=self.num_classes**2)
        return counts.reshape(self.num_classes, self.num_classes)

    def scores(self, tally: Tensor) -> dict[str, float]:  # (classes, classes)
        r"""Metrics from the summed counts; means are over the classes that are in the truth.

        .. math:: \mathrm{IoU}_c = \frac{n_{cc}}{\sum_k n_{ck} + \sum_k n_{kc} - n_{cc}}

        A class that is only predicted lowers the IoU of the others and has none itself.
        """
        hit, true = tally.diagonal(), tally.sum(1)
        present = true > 0
        return {
            "mIoU": float((hit / (tally.sum(0) + true - hit))[present].mean()),
            "class accuracy": float((hit / true)[present].mean()),
            "overall accuracy": float(hit.sum() / true.sum()),
        }


@dataclass(frozen=True)
class Classification(Labeling):
    """One class per cloud, with cross-entropy and the two accuracies of the paper's Table 2.

    Attributes:
        num_classes: 40 or 10 for ModelNet.
        points: per cloud.
        smoothing: of the labels; none in the paper's text, 0.2 in its authors' program.
    """

    num_classes: int = 40
    points: int = 1024
    smoothing: float = 0.0
    name: ClassVar[str] = "classification"
    default_recipe: ClassVar[Recipe] = Recipe(epochs=250, batch=32)

    def scores(self, tally: Tensor) -> dict[str, float]:
        """The share of right predictions, overall and averaged over classes."""
        found = super().scores(tally)
        return {
            "instance accuracy": found["overall accuracy"],
            "class accuracy": found["class accuracy"],
        }


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
        categories = batch.category.tolist()
        for scores, label, category in zip(logits, batch.label, categories, strict=True):
            first, count = FIRST[category], _PART_COUNTS[category]
            predicted = scores[:, first : first + count].argmax(-1) + first
            out[category, 0] += shape_iou(predicted, label, first, count)
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


@dataclass(frozen=True)
class SemanticSegmentation(Labeling):
    """One class per point of a scene, with the three metrics of the paper's Table 4.

    Epochs and scaling are the paper's, which trains as Point Transformer does. Unlike there, the
    optimizer is Adam with a cosine schedule, as in the other tasks, and colors are not changed.

    Attributes:
        num_classes: 13 for S3DIS.
        points: per block.
    """

    num_classes: int = 13
    points: int = 4096
    name: ClassVar[str] = "semantic-segmentation"
    default_recipe: ClassVar[Recipe] = Recipe(epochs=100, batch=16)

    @staticmethod
    def augment(normals: bool = False) -> Augment:
        """Blocks keep their place and, nearly, their size."""
        return Augment(0.0, (0.9, 1.1), per_axis=False, normals=normals)


def shape_iou(predicted: Tensor, label: Tensor, first: int, count: int) -> float:  # (N,), (N,)
    """Mean IoU over the parts of one object's category; a part absent in both counts 1."""
    keep = label != IGNORE
    parts = torch.arange(first, first + count, device=label.device)[:, None]
    found, true = predicted[keep] == parts, label[keep] == parts  # (count, N)
    union, both = (found | true).sum(1), (found & true).sum(1)
    return float(torch.where(union > 0, both / union.clamp_min(1), 1.0).mean())
