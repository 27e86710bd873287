"""How a network is trained: fixed before training, and saved with every checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from veckm.data.samples import Batch
from veckm.inputs import check_count, check_positive


@dataclass(frozen=True)
class Recipe:
    r"""An optimizer with a cosine schedule, which is a function of the epoch alone.

    .. math:: \eta_e = \eta\, \frac{1 + \cos(\pi e / E)}{2}, \qquad e = 0, \dots, E - 1

    The rest of an epoch that does not fill a batch is left out; it is another rest every time.
    """

    epochs: int = 250  #: E, passes over the data
    batch: int = 32  #: clouds per step, all processes together
    rate: float = 1e-3  #: eta, the first learning rate
    weight_decay: float = 0.0  #: of the optimizer; none in the paper
    seed: int = 0  #: of the order, the augmentation and dropout
    amp: bool = True  #: mixed precision, on CUDA only
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"  #: "sgd" has a momentum of 0.9
    clip: float = 0.0  #: largest norm of the gradient; 0 for no limit

    def __post_init__(self) -> None:
        check_count(self.epochs, "epochs")
        check_count(self.batch, "batch")
        check_positive(self.rate, "rate")
        if not (self.weight_decay >= 0 and self.clip >= 0):
            raise ValueError(
                "weight_decay and clip must not be negative, got "
                f"{self.weight_decay!r} and {self.clip!r}"
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
