"""What the tasks that learn labels share: settings of the training, and the loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from veckm.data.augment import Augment
from veckm.data.samples import Batch
from veckm.tasks import metrics
from veckm.training.recipe import Recipe


class Labeling:
    """Labels of clouds or of points, learned by cross-entropy."""

    default_recipe: ClassVar[Recipe]
    smoothing: float = 0.0

    @classmethod
    def recipe(cls, **changes: Any) -> Recipe:
        """The task's training settings, with changes."""
        return replace(cls.default_recipe, **changes)

    @staticmethod
    def augment(normals: bool = False) -> Augment:
        """The paper's augmentation of objects."""
        return Augment(normals=normals)

    def loss(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:  # (..., classes)
        """The sum of the cross-entropies of all that has a label, and their number."""
        return metrics.cross_entropy(logits, batch.label, self.smoothing)
