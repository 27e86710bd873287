"""PointNet, and VecKM -> PN: every point by itself, then the maximum over all."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from veckm.models.base import PointModel
from veckm.models.encoding import Encoding, EncodingSettings
from veckm.models.layers import beside, head, perceptron
from veckm.models.pooling import pooled


class TransformNet(nn.Module):
    """A small PointNet that answers with a K x K matrix to turn the channels by.

    It starts at the identity. Section 4.2 of the PointNet paper, "Joint Alignment Network".

    Shapes:
        - input: (B, N, C)
        - output: (B, K, K)
    """

    def __init__(self, in_channels: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.points = perceptron((in_channels, 64, 128, 1024))
        self.cloud = perceptron((1024, 512, 256))
        self.matrix = nn.Linear(256, size * size)
        nn.init.zeros_(self.matrix.weight)
        with torch.no_grad():
            self.matrix.bias.copy_(torch.eye(size).flatten())

    def forward(self, x: Tensor) -> Tensor:  # (B, K, K)
        """The matrix of each cloud."""
        out: Tensor = self.matrix(self.cloud(pooled(self.points, x)))
        return out.view(-1, self.size, self.size)


class PointNet(PointModel):
    r"""What PointNet's three heads share: the transforms, the encoding, the penalty.

    `PointNet <https://arxiv.org/abs/1612.00593>`_ (Qi et al., CVPR 2017). With ``encoding`` this is
    VecKM -> PN of Section 4.2 of the VecKM paper: the features of the local geometry come in
    instead of the coordinates, and there are no transform nets. For objects the two layers of the
    encoding are all that a point goes through before the maximum.

    Args:
        num_classes: logits.
        in_channels: channels of ``features``, beside the coordinates.
        num_categories: of objects, for part segmentation.
        encoding: sizes of VecKM in front; none for plain PointNet.
        input_transform: have the net that turns the coordinates.
        feature_transform: have the net that turns the channels.
        turned: channels that it turns.

    Attributes:
        penalty: :math:`0.001\, |I - T T^\top|_F^2`, mean over the clouds, of the last forward pass
            in training, which PointNet's paper adds to the loss; None where no channels are turned.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 0,
        num_categories: int = 0,
        encoding: EncodingSettings | None = None,
        *,
        input_transform: bool = True,
        feature_transform: bool = True,
        turned: int = 64,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories)
        plain = encoding is None
        self.encoding = (
            None if encoding is None else Encoding(encoding, in_channels, validate=False)
        )
        self.channels = 3 + in_channels if encoding is None else encoding.channels
        self.turn_input = TransformNet(self.channels, 3) if plain and input_transform else None
        self.turn_features = TransformNet(turned, turned) if plain and feature_transform else None

    def first(self, pos: Tensor, features: Tensor) -> Tensor:  # (B, N, channels)
        """What the shared perceptron sees: turned coordinates, or encodings."""
        if self.encoding is not None:
            out: Tensor = self.encoding(pos, None, features)
            return out
        if self.turn_input is not None:
            pos = pos @ self.turn_input(torch.cat((pos, features), dim=-1))
        return torch.cat((pos, features), dim=-1)

    def turned(self, x: Tensor) -> Tensor:  # (B, N, C) -> (B, N, C)
        """The channels turned by the second transform net, if there is one."""
        if self.turn_features is None:
            return x
        T: Tensor = self.turn_features(x)
        off = torch.eye(T.shape[1], device=T.device, dtype=T.dtype) - T @ T.mT
        self.penalty = 1e-3 * off.square().sum((1, 2)).mean() if self.training else None
        return x @ T


class PointNetClassifier(PointNet):
    """One answer for each cloud. Layers (64, 64), (64, 128, 1024), then (512, 256).

    With ``encoding`` its two layers stand for the first five.

    Shapes:
        - pos: (B, N, 3)
        - output: (B, num_classes)
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 0,
        num_categories: int = 0,
        encoding: EncodingSettings | None = None,
        *,
        input_transform: bool = True,
        feature_transform: bool = True,
        dropout: float = 0.3,
    ) -> None:
        super().__init__(
            num_classes,
            in_channels,
            num_categories,
            encoding,
            input_transform=input_transform,
            feature_transform=feature_transform,
        )
        if encoding is None:
            self.before = perceptron((self.channels, 64, 64))
            self.after = perceptron((64, 64, 128, 1024))
        self.widen = perceptron((1024 if encoding is None else encoding.channels, 512))
        self.answer = head((512, 256), num_classes, dropout)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """The maximum over the points, then the perceptron of the cloud."""
        if self.encoding is not None:
            cloud = self.encoding.largest(pos, features)
        else:
            cloud = pooled(self.after, self.turned(self.before(self.first(pos, features))))
        out: Tensor = self.answer(self.widen(cloud))
        return out


class PointNetParts(PointNet):
    """One answer for each point of an object of a known category.

    The part segmentation network of Figure 9 in the PointNet paper: layers (64, 128, 128), the
    second transform, (512, 2048), and (256, 256, 128) on all of these and the category. With
    ``encoding`` its two layers stand for the first five.

    Shapes:
        - pos: (B, N, 3)
        - category: (B,) int64
        - output: (B, N, num_classes)
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 0,
        num_categories: int = 0,
        encoding: EncodingSettings | None = None,
        *,
        input_transform: bool = True,
        feature_transform: bool = True,
    ) -> None:
        super().__init__(
            num_classes,
            in_channels,
            num_categories,
            encoding,
            input_transform=input_transform,
            feature_transform=feature_transform,
            turned=128,
        )
        sizes = (self.channels, 64, 128, 128, 512, 2048) if encoding is None else (self.channels,)
        self.layers = nn.ModuleList(perceptron(pair) for pair in pairwise(sizes))
        seen = sum(sizes[1:]) if encoding is None else self.channels
        self.answer = head((seen + sizes[-1] + num_categories, 256, 256, 128), num_classes, 0.0)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:
        """Everything that the layers said of a point, and of the cloud, side by side."""
        x = self.first(pos, features)
        seen = [] if self.encoding is None else [x]
        for i, layer in enumerate(self.layers):
            x = layer(self.turned(x) if i == 3 else x)
            seen.append(x)
        cloud = torch.cat((x.amax(1), category), dim=-1)
        return beside(self.answer, torch.cat(seen, dim=-1), cloud)


class PointNetScenes(PointNet):
    """One answer for each point of a scene: its own features beside those of the cloud.

    The segmentation network of Figure 2 in the PointNet paper: (64, 64), the second transform,
    (64, 128, 1024), then (512, 256, 128) on 64 + 1024 channels.

    Shapes:
        - pos: (B, N, 3)
        - output: (B, N, num_classes)
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 0,
        num_categories: int = 0,
        encoding: EncodingSettings | None = None,
        *,
        input_transform: bool = True,
        feature_transform: bool = True,
    ) -> None:
        super().__init__(
            num_classes,
            in_channels,
            num_categories,
            encoding,
            input_transform=input_transform,
            feature_transform=feature_transform,
        )
        self.before = perceptron((self.channels, 64, 64))
        self.after = perceptron((64, 64, 128, 1024))
        self.answer = head((64 + 1024, 512, 256, 128), num_classes, 0.0)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """The maximum over the points goes back to each of them."""
        x = self.turned(self.before(self.first(pos, features)))
        cloud = pooled(self.after, x)
        return beside(self.answer, x, cloud)
