"""How a network is trained: fixed before training, and saved with every checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from veckm.data.samples import Batch


@dataclass(frozen=True)
class Recipe:
    r"""An optimizer with a cosine schedule, which is a function of the epoch alone.

    .. math:: \eta_e = \eta\, \frac{1 + \cos(\pi e / E)}{2}, \qquad e = 0, \dots, E - 1

    Attributes:
        epochs: E.
        batch: clouds per step, all processes together. The rest of an epoch that does not fill a
            batch is left out; it is another rest every time.
        rate: eta, the first learning rate.
        weight_decay: of the optimizer; none in the paper.
        seed: of the order, the augmentation and dropout. The initial weights have their own.
        amp: mixed precision, on CUDA only.
        optimizer: ``"adam"``, ``"adamw"``, or ``"sgd"`` with a momentum of 0.9.
        clip: largest norm of the gradient; 0 for no limit.
    """

    epochs: int = 250
    batch: int = 32
    rate: float = 1e-3
    weight_decay: float = 0.0
    seed: int = 0
    amp: bool = True
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    clip: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1:
            raise ValueError(
                f"epochs and batch must be at least 1, got {self.epochs} epochs and a batch of "
                f"{self.batch}"
            )
        if not (self.rate > 0 and self.weight_decay >= 0 and self.clip >= 0):
            raise ValueError(
                "rate must be positive, weight_decay and clip not negative, got "
                f"{self.rate!r}, {self.weight_decay!r} and {self.clip!r}"
            )

    def rate_of(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2

    def optimizer_of(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of these parameters."""
        options: dict[str, Any] = {"lr": self.rate, "weight_decay": self.weight_decay}
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, momentum=0.9, **options)
        kind = torch.optim.AdamW if self.optimizer == "adamw" else torch.optim.Adam
        return kind(parameters, **options)


class Task(Protocol):
    """A frozen dataclass with a loss and metrics."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]

    def loss(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss as a sum, and how many terms it has."""

    def tally(self, logits: Tensor, batch: Batch) -> Tensor:
        """Counts of a batch that are summed over batches and processes."""

    def scores(self, tally: Tensor) -> dict[str, float]:
        """The metrics, from the counts of all batches."""
