r"""The networks with VecKM as the authors of its paper build them in their program.

For objects and parts, from the sizes and formulas of https://github.com/dhyuan99/VecKM:
``create_model("pct", veckm=True, authors=True, num_classes=40)``. They encode by the definition,
all points are kept, and layers start as they do there. Two differences are left, neither of which
a learned weight sees: farthest points start at the point farthest from the mean, there at a random
one; a bias that a batch norm subtracts again is not there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from veckm.models.base import Output, PartSegmenter, PointModel
from veckm.models.clouds import Clouds
from veckm.models.config import ClassifierConfig, DropoutPartsConfig, EncodingConfig
from veckm.models.layers import LinearBN, head
from veckm.models.pct import OffsetAttention, PCTClassifier, PCTClassifierConfig, attend_in_turn
from veckm.models.pointnet import (
    PointNetClassifier,
    PointNetClassifierConfig,
    PointNetParts,
    PointNetPartsConfig,
)
from veckm.models.pointnet2 import (
    Level,
    PointNet2,
    PointNet2Classifier,
    PointNet2Parts,
    SetAbstraction,
)
from veckm.nn import ComplexLinear

_SLOPE = 0.2  # of the leaky ReLU in the head of PCT
_POINTNET = EncodingConfig(hidden=256, channels=1024, engine="dense")
_POINTNET2 = EncodingConfig(position=0.0, engine="dense")
_PCT = EncodingConfig(hidden=256, channels=256, engine="dense")


@dataclass(frozen=True)
class AuthorsPointNetConfig(PointNetClassifierConfig):
    """Options of VecKM -> PN for objects."""

    dropout: float = 0.4  # between the second layer of the head and its norm


@dataclass(frozen=True)
class AuthorsPointNet2Config(ClassifierConfig):
    """Options of VecKM <-> PN++ for objects."""

    dropout: float = 0.4  # after the layers of the head


class AuthorsPointNetClassifier(PointNetClassifier):
    """Dropout comes before the last norm, and nowhere else."""

    config_type = AuthorsPointNetConfig
    default_encoding = _POINTNET

    def __init__(self, config: AuthorsPointNetConfig) -> None:
        super().__init__(config)
        last = LinearBN(512, 256, bias=True, dropout=config.dropout)
        self.head = nn.Sequential(last, nn.Linear(256, config.num_classes))
        start_for_objects(self)


class AuthorsPointNetParts(PointNetParts):
    """Beta is that of objects."""

    default_encoding = _POINTNET

    def __init__(self, config: PointNetPartsConfig) -> None:
        super().__init__(config)
        start_for_parts(self)


class AuthorsPointNet2(PointNet2):
    """All points are the first level, and balls take points in their order."""

    def __init__(self, config: ClassifierConfig | DropoutPartsConfig) -> None:
        super().__init__(config)
        self.second = SetAbstraction(self.width, (128, 128, 256), 0.4, 64, in_order=True)

    def first_level(self, clouds: Clouds, x: Tensor) -> Level:
        """All points."""
        return clouds, self.local(clouds, x)


class AuthorsPointNet2Classifier(AuthorsPointNet2, PointNet2Classifier):
    """No position, though it hardly sees coordinates."""

    config_type = AuthorsPointNet2Config
    default_encoding = _POINTNET2

    def __init__(self, config: AuthorsPointNet2Config) -> None:
        super().__init__(config)
        start_for_objects(self)


class AuthorsPointNet2Parts(AuthorsPointNet2, PointNet2Parts):
    """The coordinates come in twice at the end."""

    default_encoding = EncodingConfig(beta=9.0, position=0.0, engine="dense")
    coordinates = 2

    def __init__(self, config: DropoutPartsConfig) -> None:
        super().__init__(config)
        start_for_parts(self)


class AuthorsPCTClassifier(PCTClassifier):
    """Attention among all points, and slope 0.2 up to the last layer."""

    default_encoding = _PCT

    def __init__(self, config: PCTClassifierConfig) -> None:
        super().__init__(config)
        self.head = head((512, 256), config.num_classes, config.dropout, _SLOPE)
        start_for_objects(self)

    def first_level(self, clouds: Clouds, x: Tensor) -> tuple[Clouds, Tensor]:
        """All points."""
        return clouds, self.local(clouds, x)


class AuthorsPCTParts(PartSegmenter):
    """Features times a learned vector of the category, four attentions, no vector of the cloud."""

    name = "pct"
    config_type = DropoutPartsConfig
    default_encoding = EncodingConfig(beta=9.0, hidden=256, channels=256, engine="dense")

    def __init__(self, config: DropoutPartsConfig) -> None:
        super().__init__(config)
        wide = self.local_channels
        self.category = nn.Parameter(torch.randn(config.num_categories, wide))
        self.before = nn.Sequential(LinearBN(wide, 128), LinearBN(128, 128, slope=1))
        self.attention = nn.ModuleList(OffsetAttention(128) for _ in range(4))
        self.fuse = LinearBN(4 * 128, 128)
        self.head = head((128, 128), config.num_classes, config.dropout)
        start_for_parts(self)

    def network(self, clouds: Clouds, x: Tensor, category: Tensor) -> Output:
        x = self.local(clouds, x) * clouds.repeat(category @ self.category)
        outputs = attend_in_turn(self.attention, self.before(x), clouds)
        return Output(self.head(self.fuse(torch.cat(outputs, dim=-1))))


def start_for_objects(model: PointModel) -> None:
    """Draw the complex layers as two real ones each: W = R + i S, b = (r - s) + i (r + s)."""
    for layer in _complex(model):
        bound = layer.in_features**-0.5  # torch's own for a real layer
        nn.init.uniform_(layer.weight_parts, -bound, bound)
        assert layer.bias_parts is not None
        with torch.no_grad():
            r, s = nn.init.uniform_(torch.empty(2, layer.out_features), -bound, bound)
            layer.bias_parts.copy_(torch.stack((r - s, r + s), dim=-1))


def start_for_parts(model: PointModel) -> None:
    """Glorot's normal draw for R and S, and for the abstractions of PointNet++."""
    for layer in _complex(model):
        std = (2 / (layer.in_features + layer.out_features)) ** 0.5
        nn.init.normal_(layer.weight_parts, std=std)
    if isinstance(model, PointNet2):
        for part in (*model.second.modules(), *model.third.modules()):
            if isinstance(part, nn.Linear):
                nn.init.xavier_normal_(part.weight)


def _complex(model: PointModel) -> list[ComplexLinear]:
    return [layer for layer in model.modules() if isinstance(layer, ComplexLinear)]
