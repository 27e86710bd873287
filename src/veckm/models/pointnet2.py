"""PointNet++ with single-scale grouping, VecKM <-> PN++ and, for scenes, VecKM -> PN++."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from veckm.models import ops
from veckm.models.base import PointModel
from veckm.models.encoding import Encoding, EncodingSettings
from veckm.models.layers import Dense, beside, head, perceptron
from veckm.models.pooling import pooled

Level = tuple[Tensor, Tensor]  # pos (B, N, 3), features (B, N, C)


class SetAbstraction(nn.Module):
    r"""Fewer points, each with the features of a ball around it.

    .. math:: f_i' = \max_{|x_j - x_i| \le r} \mathrm{MLP}(x_j - x_i, f_j)

    Args:
        channels: of ``features`` that come in.
        sizes: of the perceptron's layers.
        radius: of the ball.
        k: neighbors at the most.

    Shapes:
        - pos: (B, N, 3), features: (B, N, C), picks: (B, M)
        - output: (B, M, 3) and (B, M, sizes[-1])
    """

    def __init__(self, channels: int, sizes: Sequence[int], radius: float, k: int) -> None:
        super().__init__()
        self.radius, self.k = radius, k
        self.first = Dense(3 + channels, sizes[0])
        self.layers = perceptron(sizes)

    def forward(self, pos: Tensor, features: Tensor, picks: Tensor) -> Level:
        """The picks and what is around them."""
        center = ops.gather(pos, picks)
        near = ops.ball_query(pos, center, self.radius, self.k, validate=False)  # (B, M, k)
        x = self.first.grouped(pos, features, center, near)
        return center, pooled(self.layers, x.flatten(0, 1)).view(*picks.shape, -1)


class Propagation(nn.Module):
    """Features of few points carried to many, beside what those had before.

    Shapes:
        - fine: (B, N, 3) and (B, N, C_fine); coarse: (B, M, 3) and (B, M, C_coarse)
        - cloud: (B, C_cloud) or None
        - output: (B, N, sizes[-1])
    """

    def __init__(self, channels: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = perceptron((channels, *sizes))

    def forward(self, fine: Level, coarse: Level, cloud: Tensor | None = None) -> Tensor:
        """Three-point interpolation, then a perceptron on each point and what its cloud is."""
        carried = ops.interpolate(coarse[1], coarse[0], fine[0], validate=False)
        x = torch.cat((carried, fine[1]), dim=-1)
        out: Tensor = self.layers(x) if cloud is None else beside(self.layers, x, cloud)
        return out


class PointNet2Objects(PointModel):
    """The three abstractions of an object: 512 points, 128 points, one vector.

    `PointNet++ <https://arxiv.org/abs/1706.02413>`_ (Qi et al., NIPS 2017), SSG in its
    supplementary: radius 0.2 and 32 neighbors, 0.4 and 64, then everything. With ``encoding`` it
    is VecKM <-> PN++ of Section 4.2 of the VecKM paper: the encoding takes the place of the first
    abstraction, on the same 512 points; where features are given, they go beside it.
    Clouds of fewer points are taken whole.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 0,
        num_categories: int = 0,
        encoding: EncodingSettings | None = None,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories)
        self.encoding: Encoding | None = None
        self.first: SetAbstraction | None = None
        if encoding is None:
            self.first = SetAbstraction(in_channels, (64, 64, 128), 0.2, 32)
            self.width = 128
        else:
            self.encoding = Encoding(encoding, validate=False)
            self.width = encoding.channels + in_channels
        self.second = SetAbstraction(self.width, (128, 128, 256), 0.4, 64)
        self.third = perceptron((3 + 256, 256, 512, 1024))

    def abstracted(self, pos: Tensor, features: Tensor) -> tuple[Level, Level, Tensor]:
        """512 points, 128 points, and the vector of the cloud (B, 1024)."""
        picks = ops.farthest_points(pos, min(512, pos.shape[1]), validate=False)
        if self.first is not None:
            fine = self.first(pos, features, picks)
        else:
            assert self.encoding is not None
            at = ops.gather(pos, picks)
            local = self.encoding(pos, at)
            fine = (at, torch.cat((local, ops.gather(features, picks)), dim=-1))
        few = ops.farthest_points(fine[0], min(128, fine[0].shape[1]), validate=False)
        coarse = self.second(*fine, few)
        return fine, coarse, pooled(self.third, torch.cat(coarse, dim=-1))


class PointNet2Classifier(PointNet2Objects):
    """One answer for each cloud.

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
        dropout: float = 0.5,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories, encoding)
        self.answer = head((1024, 512, 256), num_classes, dropout)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """From the vector of the cloud."""
        out: Tensor = self.answer(self.abstracted(pos, features)[2])
        return out


class PointNet2Parts(PointNet2Objects):
    """One answer for each point of an object of a known category.

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
        dropout: float = 0.5,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories, encoding)
        self.up3 = perceptron((1024 + 256, 256, 256))
        self.up2 = Propagation(256 + self.width, (256, 128))
        self.up1 = Propagation(128 + 3 + in_channels + num_categories, (128, 128, 128))
        self.answer = head((128, 128), num_classes, dropout)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:
        """Down to one vector and up again, with what each level had before."""
        fine, coarse, cloud = self.abstracted(pos, features)
        x = beside(self.up3, coarse[1], cloud)
        x = self.up2(fine, (coarse[0], x))
        own = torch.cat((pos, features), dim=-1)
        out: Tensor = self.answer(self.up1((pos, own), (fine[0], x), category))
        return out


class PointNet2Scenes(PointModel):
    """One answer for each point of a scene: four abstractions, each to a quarter of the points.

    The sizes are those of the authors' network for scenes, with radii from 0.1 to 0.8. With
    ``encoding`` it is VecKM -> PN++ of Section 4.4 of the VecKM paper: the encoding of every point
    comes in as its features.

    Args:
        num_classes: logits of a point.
        in_channels: channels of ``features``.
        num_categories: of objects; 0 for scenes.
        encoding: sizes of VecKM in front; none for plain PointNet++.
        radius: of the first abstraction, doubled for each one after it.
        dropout: before the last layer.

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
        radius: float = 0.1,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories)
        self.encoding = None if encoding is None else Encoding(encoding, validate=False)
        # The coordinates come in as features too, as in the authors' network: a scene has a floor.
        wide = 3 + in_channels + (0 if encoding is None else encoding.channels)
        sizes = ((32, 32, 64), (64, 64, 128), (128, 128, 256), (256, 256, 512))
        inner = (wide, *[s[-1] for s in sizes])
        self.down = nn.ModuleList(
            SetAbstraction(c, s, radius * 2**i, 32)
            for i, (c, s) in enumerate(zip(inner, sizes, strict=False))
        )
        self.up = nn.ModuleList(
            Propagation(c, s) for c, s in ((768, (256, 256)), (384, (256, 256)), (320, (256, 128)))
        )
        self.up_last = perceptron((128, 128, 128, 128))
        self.answer = head((128, 128), num_classes, dropout)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """Down by quarters and up again."""
        local = [] if self.encoding is None else [self.encoding(pos)]
        levels = [(pos, torch.cat((pos, features, *local), dim=-1))]
        for down in self.down:
            count = -(-levels[-1][0].shape[1] // 4)
            picks = ops.farthest_points(levels[-1][0], count, validate=False)
            levels.append(down(*levels[-1], picks))
        at, x = levels.pop()
        for up in self.up:
            fine = levels.pop()
            x = up(fine, (at, x))
            at = fine[0]
        x = self.up_last(ops.interpolate(x, at, pos, validate=False))
        out: Tensor = self.answer(x)
        return out
