"""Classification of objects: Section 4.2 of the VecKM paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from veckm.data.augment import Augment
from veckm.data.samples import Batch
from veckm.tasks import metrics
from veckm.training.recipe import Recipe


@dataclass(frozen=True)
class Classification:
    """One class for every cloud, with cross-entropy and the two accuracies of the paper's Table 2.

    Attributes:
        num_classes: 40 or 10 for ModelNet.
        points: of every cloud.
        smoothing: of the labels; none in the paper's text, 0.2 in its authors' program.
    """

    num_classes: int = 40
    points: int = 1024
    smoothing: float = 0.0
    name: ClassVar[str] = "classification"
    main: ClassVar[str] = "instance accuracy"

    @staticmethod
    def recipe(**changes: int | float) -> Recipe:
        """The paper's training settings, with changes."""
        return Recipe(**{"epochs": 250, "batch": 32, "rate": 1e-3, **changes})  # type: ignore[arg-type]

    @staticmethod
    def augment(normals: bool = False) -> Augment:
        """The paper's augmentation."""
        return Augment(normals=normals)

    def loss(
        self,
        logits: Tensor,  # (B, classes)
        batch: Batch,
    ) -> tuple[Tensor, Tensor]:  # (), ()
        """The sum of the cross-entropies, and how many it is of."""
        total = functional.cross_entropy(
            logits.float(), batch.label, reduction="sum", label_smoothing=self.smoothing
        )
        return total, torch.tensor(len(batch), device=logits.device)

    def tally(
        self,
        logits: Tensor,  # (B, classes)
        batch: Batch,
    ) -> Tensor:  # (classes, classes) int64
        """Counts of one batch, to be added up."""
        return metrics.confusion(logits.argmax(-1), batch.label, self.num_classes)

    def scores(self, tally: Tensor) -> dict[str, float]:
        """The metrics of all batches together."""
        return {
            "instance accuracy": metrics.overall_accuracy(tally),
            "class accuracy": metrics.class_accuracy(tally),
        }
