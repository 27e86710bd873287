"""How a network is trained, fixed before it begins and saved with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from veckm.data.samples import Batch


@dataclass(frozen=True)
class Recipe:
    r"""Adam with a cosine schedule, which is a function of the epoch alone.

    .. math:: \eta_e = \eta\, \frac{1 + \cos(\pi e / E)}{2}, \qquad e = 0, \dots, E - 1

    Attributes:
        epochs: E.
        batch: clouds of a step, all processes together. The rest of an epoch that does not fill a
            batch is left out; it is another rest every time.
        rate: eta, the first learning rate.
        weight_decay: of Adam; none in the paper.
        seed: of the order, the augmentation and dropout. The first weights have their own.
        amp: mixed precision, on CUDA only.
    """

    epochs: int = 250
    batch: int = 32
    rate: float = 1e-3
    weight_decay: float = 0.0
    seed: int = 0
    amp: bool = True

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1:
            raise ValueError(
                f"a recipe needs an epoch and a cloud a batch at least, got {self.epochs} epochs "
                f"and batches of {self.batch}"
            )
        if not (self.rate > 0 and self.weight_decay >= 0):
            raise ValueError(
                f"rate must be positive and weight_decay not negative, got {self.rate!r} and "
                f"{self.weight_decay!r}"
            )

    def rate_of(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2


class Task(Protocol):
    """What the loop asks of a task: a frozen dataclass with a loss and metrics for one batch."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    main: ClassVar[str]

    def loss(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss as a sum, and how many terms it has."""

    def tally(self, logits: Tensor, batch: Batch) -> Tensor:
        """Counts of a batch that add up over batches and processes."""

    def scores(self, tally: Tensor) -> dict[str, float]:
        """The metrics, from the counts of all batches."""
