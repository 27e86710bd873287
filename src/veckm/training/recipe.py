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

    .. math:: \eta_e = \eta' + (\eta - \eta')\, \frac{1 + \cos(\pi e / E)}{2},
              \qquad e = 0, \ldots, E - 1

    The rest of an epoch that does not fill a batch is left out; it is another rest every time.
    """

    epochs: int = 250  #: E, passes over the data
    batch: int = 32  #: clouds per step, all processes together
    rate: float = 1e-3  #: eta, the first learning rate
    weight_decay: float = 0.0  #: of the optimizer; none in the paper
    seed: int = 0  #: of the order, the augmentation and dropout
    amp: bool = True  #: mixed precision on CUDA
    amp_cpu: bool = False  #: and on a CPU that has instructions for bfloat16
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"  #: kind of steps
    momentum: float = 0.9  #: of "sgd"
    clip: float = 0.0  #: largest norm of the gradient; 0 for no limit
    last_rate: float = 0.0  #: eta', which the learning rate goes to
    halve_every: int = 0  #: epochs after which the rate is halved, instead of the cosine; 0 for it

    def __post_init__(self) -> None:
        check_count(self.epochs, "epochs")
        check_count(self.batch, "batch")
        check_positive(self.rate, "rate")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        check_count(self.halve_every, "halve_every", 0)
        for name in ("weight_decay", "clip", "last_rate"):
            if not (value := getattr(self, name)) >= 0:
                raise ValueError(f"{name} must not be negative, got {value!r}")

    def rate_of(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        if self.halve_every:
            return max(self.rate * 0.5 ** (epoch // self.halve_every), self.last_rate)
        share = (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        return self.last_rate + (self.rate - self.last_rate) * share

    def optimizer_of(
        self, parameters: Iterable[nn.Parameter], fused: bool = False
    ) -> torch.optim.Optimizer:
        """The optimizer of these parameters; ``fused`` makes a step one kernel."""
        options: dict[str, Any] = {"lr": self.rate, "weight_decay": self.weight_decay}
        options["fused"] = fused or None
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, momentum=self.momentum, **options)
        kind = torch.optim.AdamW if self.optimizer == "adamw" else torch.optim.Adam
        return kind(parameters, **options)

    def in_force(self, optimizer: torch.optim.Optimizer) -> str:
        """The steps as they are made, in words."""
        group = optimizer.param_groups[0]
        momentum = f" with momentum {group['momentum']:g}" if "momentum" in group else ""
        how = f"a cosine over {self.epochs} epochs"
        if self.halve_every:
            how = f"halved every {self.halve_every} epochs"
        end = f" to {self.last_rate:g}" if self.last_rate else ""
        return (
            f"{type(optimizer).__name__}{momentum}{', fused' if group['fused'] else ''}; rate "
            f"{self.rate:g}, {how}{end}; weight decay "
            f"{group['weight_decay']:g}; "
            + (f"gradients of norm {self.clip:g} at most" if self.clip else "no clipping")
        )


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
