"""Classification of objects: Section 4.2 of the VecKM paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from veckm.data.samples import Batch
from veckm.tasks import metrics
from veckm.tasks.labeling import Labeling
from veckm.training.recipe import Recipe


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

    def tally(self, logits: Tensor, batch: Batch) -> Tensor:  # (B, classes) -> (classes, classes)
        """The confusion matrix of a batch."""
        return metrics.confusion(logits.argmax(-1), batch.label, self.num_classes)

    def scores(self, tally: Tensor) -> dict[str, float]:
        """The metrics, from the summed confusion matrices."""
        return {
            "instance accuracy": metrics.overall_accuracy(tally),
            "class accuracy": metrics.class_accuracy(tally),
        }
