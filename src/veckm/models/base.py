"""What every network has: a config, one set of input checks, and one kind of output."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from veckm import inputs
from veckm.models.clouds import Clouds
from veckm.models.config import EncodingConfig, ModelConfig, PartsConfig, Task
from veckm.models.encoding import Encoding

#: Points of a forward pass without gradients, as whole clouds: a batch of any size takes no more
#: memory than one of so many. Parts of 4,096 points were slower for every network.
_TOGETHER = 32768


class Output(NamedTuple):
    """What a network returns."""

    #: (B, classes) for classification; (B, N, classes) or (N, classes), like ``pos``, else.
    logits: Tensor
    #: () in training, for networks that add a term to the loss; else None.
    auxiliary_loss: Tensor | None = None


class PointModel(nn.Module):
    """A network from clouds to logits; see :class:`Classifier` and the two segmenters.

    Attributes:
        config: what the network was built from.
        encoding: VecKM in the network; None for the plain network.
        validate: whether a call checks values (finite, in range); shapes are always checked. The
            check is one pass over the input, and on a GPU a synchronization.

    Shapes:
        - pos: (B, N, 3), or (N, 3) with batch (N,), or (N, 3) for a single cloud
        - x: (B, N, C) or (N, C), features of the points; None where in_channels is 0
    """

    name: ClassVar[str]
    task: ClassVar[Task]
    config_type: ClassVar[type[ModelConfig]]
    default_encoding: ClassVar[EncodingConfig]
    encodes_x: ClassVar[bool] = False  # whether x goes into the layers of the encoding
    #: The network on checked input: clouds, x (N, C) where C may be 0 and, for parts, the one-hot
    #: categories (B, num_categories). Logits are (B, classes), or (N, classes) of all points.
    network: Callable[..., Output]
    config: ModelConfig
    encoding: Encoding | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.validate = True
        self.encoding = None
        if config.encoding is not None:
            channels = config.in_channels if self.encodes_x else 0
            self.encoding = Encoding(config.encoding, channels, validate=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PointModel:
        checked = inputs.full_precision(self, fn)
        super()._apply(checked, recurse)  # type: ignore[no-untyped-call]  # untyped in torch
        return self

    @property
    def local_channels(self) -> int:
        """Channels of :meth:`local`."""
        encoding = self.config.encoding
        return (3 if encoding is None else encoding.channels) + self.config.in_channels

    def local(self, clouds: Clouds, x: Tensor) -> Tensor:  # (N, local_channels)
        """The coordinates, or their encodings, then x."""
        place = clouds.pos if self.encoding is None else self.encoding.of(clouds)
        return torch.cat((place, x), dim=-1)

    def _run(self, clouds: Clouds, x: Tensor, *category: Tensor) -> Output:
        if self.training or torch.is_grad_enabled() or x.device.type != "cpu":
            return self.network(clouds, x, *category)
        # Batch norms have fixed statistics in evaluation, so clouds do not affect each other.
        found = [
            self.network(part, x[rows], *(c[numbers] for c in category)).logits
            for part, rows, numbers in clouds.parts(_TOGETHER)
        ]
        return Output(torch.cat(found))

    def _checked(
        self, pos: Tensor, x: Tensor | None, batch: Tensor | None
    ) -> tuple[Clouds, Tensor]:
        clouds = Clouds.of(pos, batch, validate=self.validate)
        expected = (*pos.shape[:-1], self.config.in_channels)
        if x is None and self.config.in_channels:
            raise ValueError(
                f"this network was built with in_channels={self.config.in_channels} and got no x; "
                f"pass x of shape {expected}"
            )
        x = pos.new_empty(expected) if x is None else x
        if tuple(x.shape) != expected:
            raise ValueError(
                f"x must have shape {expected}, got {tuple(x.shape)}; build the network with "
                "in_channels of that size, or pass other features"
            )
        if self.validate and x.numel():
            inputs.check_finite(x, "x")
        return clouds, x.to(pos).flatten(0, -2)


class Classifier(PointModel):
    """A network with one prediction per cloud: logits (B, num_classes)."""

    task = "classification"
    default_encoding = EncodingConfig()

    def forward(self, pos: Tensor, x: Tensor | None = None, batch: Tensor | None = None) -> Output:
        """Logits of every cloud."""
        return self._run(*self._checked(pos, x, batch))


class SemanticSegmenter(PointModel):
    """A network with one prediction per point of a scene: logits (..., num_classes)."""

    task = "semantic-segmentation"
    # Section 4.4 says "two complex linear layers from C^256 to C^64" and counts 0.16M parameters
    # more in Point Transformer, which is what 256 channels between the two have. Its random
    # features with p = 2048 are off by 24 % on spheres of 1,024 points at beta = 9, so an eps of
    # 5 % is still closer.
    default_encoding = EncodingConfig(beta=9.0, hidden=256, channels=64, eps=5e-2)

    def forward(self, pos: Tensor, x: Tensor | None = None, batch: Tensor | None = None) -> Output:
        """Logits of every point."""
        return _like_points(self._run(*self._checked(pos, x, batch)), pos)


class PartSegmenter(PointModel):
    """A network with one prediction per point of an object whose category is known.

    Shapes:
        - category: (B,) int64
        - logits: (B, N, num_classes) or (N, num_classes)
    """

    task = "part-segmentation"
    default_encoding = EncodingConfig(beta=9.0)
    config: PartsConfig

    def forward(
        self,
        pos: Tensor,
        x: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        category: Tensor,
    ) -> Output:
        """Logits of every point."""
        clouds, x = self._checked(pos, x, batch)
        count, categories = len(clouds.sizes), self.config.num_categories
        if category.dtype != torch.int64 or tuple(category.shape) != (count,):
            raise ValueError(
                f"category must be int64 of shape ({count},), one number per cloud, got "
                f"{category.dtype} of shape {tuple(category.shape)}"
            )
        if self.validate and not 0 <= int(category.min()) <= int(category.max()) < categories:
            raise ValueError(
                f"category must be from 0 to {categories - 1}, got {int(category.min())} to "
                f"{int(category.max())}; build the network with num_categories of that size"
            )
        one_hot = nn.functional.one_hot(category, categories).to(pos)
        return _like_points(self._run(clouds, x, one_hot), pos)


def _like_points(out: Output, pos: Tensor) -> Output:
    """Logits (N, classes) of all points in the shape of ``pos``."""
    return out._replace(logits=out.logits.view(*pos.shape[:-1], -1))
