"""PointNet, and VecKM -> PN: every point by itself, then the maximum over all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from veckm.models.base import Classifier, Output, PartSegmenter, PointModel, SemanticSegmenter
from veckm.models.clouds import Clouds
from veckm.models.config import ModelConfig, PartsConfig
from veckm.models.fused import mlp_maxpool, mlp_with_global
from veckm.models.layers import MatrixHead, head, mlp


@dataclass(frozen=True)
class PointNetConfig(ModelConfig):
    """Options of PointNet."""

    input_transform: bool = True  # transform the coordinates; never with ``encoding``
    feature_transform: bool = True  # transform the channels; never with ``encoding``

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoding is not None and not (self.input_transform and self.feature_transform):
            raise ValueError("VecKM -> PN has no transforms; leave out their options")


@dataclass(frozen=True)
class PointNetPartsConfig(PointNetConfig, PartsConfig):
    """Options of PointNet for parts."""


@dataclass(frozen=True)
class PointNetClassifierConfig(PointNetConfig):
    """Options of PointNet for objects."""

    dropout: float = 0.3  # after the layers of the head


class TransformNet(nn.Module):
    """A small PointNet that predicts a K x K matrix to transform the channels by.

    It starts at the identity. Section 4.2 of the PointNet paper, "Joint Alignment Network".
    """

    def __init__(self, in_channels: int, size: int) -> None:
        super().__init__()
        self.points = mlp((in_channels, 64, 128, 1024))
        self.cloud = mlp((1024, 512, 256))
        self.matrix = MatrixHead(256, size)

    def forward(self, x: Tensor, clouds: Clouds) -> Tensor:  # (N, C) -> (B, K, K)
        out: Tensor = self.matrix(self.cloud(mlp_maxpool(self.points, x, clouds)))
        return out


class PointNet(PointModel):
    r"""What PointNet's three heads share: the transforms, the encoding, the auxiliary loss.

    `PointNet <https://arxiv.org/abs/1612.00593>`_ (Qi et al., CVPR 2017). With ``encoding`` this is
    VecKM -> PN of Section 4.2 of the VecKM paper: the features of the local geometry come in
    instead of the coordinates, and there are no transform networks. For objects the two layers of
    the encoding are all that a point goes through before the maximum.

    The auxiliary loss is :math:`0.001\, |I - T T^\top|_F^2`, averaged over the clouds, of the
    matrix T that transforms the channels.
    """

    name = "pointnet"
    encodes_x = True
    transformed_channels = 64
    config: PointNetConfig

    def __init__(self, config: PointNetConfig) -> None:
        super().__init__(config)
        self.input_transform = self.feature_transform = None
        if config.encoding is not None:
            self.channels = config.encoding.channels
            return
        self.channels, size = 3 + config.in_channels, self.transformed_channels
        if config.input_transform:
            self.input_transform = TransformNet(self.channels, 3)
        if config.feature_transform:
            self.feature_transform = TransformNet(size, size)

    def first(self, clouds: Clouds, x: Tensor) -> Tensor:  # (N, channels)
        """The input of the shared layers: transformed coordinates, or encodings."""
        if self.encoding is not None:
            return self.encoding.of(clouds, x)
        both = torch.cat((clouds.pos, x), dim=-1)
        if self.input_transform is None:
            return both
        pos = clouds.transform(clouds.pos, self.input_transform(both, clouds))
        return torch.cat((pos, x), dim=-1)

    def transformed(self, x: Tensor, clouds: Clouds) -> tuple[Tensor, Tensor | None]:
        """The channels (N, C) after the second transform, and the auxiliary loss."""
        if self.feature_transform is None:
            return x, None
        T: Tensor = self.feature_transform(x, clouds)
        off = torch.eye(T.shape[1]).to(T) - T @ T.mT
        loss = 1e-3 * off.square().sum((1, 2)).mean()
        return clouds.transform(x, T), loss if self.training else None


class PointNetClassifier(PointNet, Classifier):
    """The classification network of Figure 2 in the PointNet paper.

    With ``encoding`` its two layers stand for the first five.
    """

    config_type = PointNetClassifierConfig
    # The paper does not give the width of VecKM -> PN: 1024 channels are PointNet's before its
    # maximum. The authors' has 256 hidden channels, with twice the products.
    default_encoding = replace(Classifier.default_encoding, channels=1024)

    def __init__(self, config: PointNetClassifierConfig) -> None:
        super().__init__(config)
        wide = self.channels
        if config.encoding is None:
            self.before = mlp((self.channels, 64, 64))
            self.after = mlp((64, 64, 128, wide := 1024))
        self.widen = mlp((wide, 512))
        self.head = head((512, 256), config.num_classes, config.dropout)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        if self.encoding is not None:
            return Output(self.head(self.widen(self.encoding.maxpool(clouds, x))))
        x, loss = self.transformed(self.before(self.first(clouds, x)), clouds)
        return Output(self.head(self.widen(mlp_maxpool(self.after, x, clouds))), loss)


class PointNetParts(PointNet, PartSegmenter):
    """The part segmentation network of Figure 9 in the PointNet paper.

    With ``encoding`` its two layers stand for the first five.
    """

    config_type = PointNetPartsConfig
    config: PointNetPartsConfig
    transformed_channels = 128
    default_encoding = replace(PartSegmenter.default_encoding, channels=1024)

    def __init__(self, config: PointNetPartsConfig) -> None:
        super().__init__(config)
        plain = config.encoding is None
        sizes = (self.channels, 64, 128, 128, 512, 2048) if plain else (self.channels,)
        self.layers = nn.ModuleList(mlp(pair) for pair in pairwise(sizes))
        wide = (sum(sizes[1:]) if plain else self.channels) + sizes[-1] + config.num_categories
        self.head = head((wide, 256, 256, 128), config.num_classes, 0.0)

    def network(self, clouds: Clouds, x: Tensor, category: Tensor) -> Output:
        x, loss = self.first(clouds, x), None
        outputs = [] if self.encoding is None else [x]
        for i, layer in enumerate(self.layers):
            if i == 3:
                x, loss = self.transformed(x, clouds)
            x = layer(x)
            outputs.append(x)
        of_cloud = torch.cat((clouds.max(x), category), dim=-1)
        logits = mlp_with_global(self.head, torch.cat(outputs, dim=-1), clouds, of_cloud)
        return Output(logits, loss)


class PointNetScenes(PointNet, SemanticSegmenter):
    """The segmentation network of Figure 2 in the PointNet paper."""

    config_type = PointNetConfig

    def __init__(self, config: PointNetConfig) -> None:
        super().__init__(config)
        self.before = mlp((self.channels, 64, 64))
        self.after = mlp((64, 64, 128, 1024))
        self.head = head((64 + 1024, 512, 256, 128), config.num_classes, 0.0)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        x, loss = self.transformed(self.before(self.first(clouds, x)), clouds)
        of_cloud = mlp_maxpool(self.after, x, clouds)
        return Output(mlp_with_global(self.head, x, clouds, of_cloud), loss)
