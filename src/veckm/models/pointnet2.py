"""PointNet++ with single-scale grouping, VecKM <-> PN++ and, for scenes, VecKM -> PN++."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from veckm.models.base import Classifier, Output, PartSegmenter, PointModel, SemanticSegmenter
from veckm.models.clouds import Clouds, gather
from veckm.models.config import ClassifierConfig, DropoutPartsConfig, ModelConfig
from veckm.models.fused import mlp_maxpool, mlp_with_global
from veckm.models.layers import head, mlp

Level = tuple[Clouds, Tensor]  # points, and their features (N, C)


@dataclass(frozen=True)
class PointNet2ScenesConfig(ModelConfig):
    """Options of PointNet++ for scenes."""

    radius: float = 0.1  # of the first abstraction, doubled for each one after it
    dropout: float = 0.5  # before the last layer


class SetAbstraction(nn.Module):
    r"""Fewer points, each with the features of a ball around it.

    .. math:: f_i' = \max_{|x_j - x_i| \le r} \mathrm{MLP}(x_j - x_i, f_j)

    ``sizes`` are those of the layers, and a ball has at most ``k`` neighbors: the nearest, or the
    first ``in_order``.
    """

    def __init__(
        self, channels: int, sizes: Sequence[int], radius: float, k: int, *, in_order: bool = False
    ) -> None:
        super().__init__()
        self.radius, self.k, self.in_order = radius, k, in_order
        self.layers = mlp((3 + channels, *sizes))

    def forward(self, points: Clouds, x: Tensor, centers: Clouds) -> Tensor:  # (N, C) -> (M, C')
        near = points.ball(self.radius, self.k, centers, in_order=self.in_order)  # (M, k)
        return mlp_maxpool(self.layers, points.group(x, centers, near))


class Propagation(nn.Module):
    """Features of few points carried to many, joined with theirs and those of the cloud."""

    def __init__(self, channels: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = mlp((channels, *sizes))

    def forward(self, fine: Level, coarse: Level, of_cloud: Tensor | None = None) -> Tensor:
        points, own = fine
        x = torch.cat((coarse[0].interpolate(coarse[1], points), own), dim=-1)
        if of_cloud is not None:
            return mlp_with_global(self.layers, x, points, of_cloud)
        out: Tensor = self.layers(x)
        return out


class PointNet2(PointModel):
    """The three abstractions of an object: 512 points, 128 points, one vector.

    `PointNet++ <https://arxiv.org/abs/1706.02413>`_ (Qi et al., NIPS 2017), SSG in its
    supplementary: radius 0.2 and 32 neighbors, 0.4 and 64, then everything. With ``encoding`` it
    is VecKM <-> PN++ of Section 4.2 of the VecKM paper: the encoding takes the place of the first
    abstraction, on the same 512 points; where x is given, it is joined with it.
    Clouds of fewer points are taken whole.
    """

    name = "pointnet2"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.width = self.local_channels
        if config.encoding is None:
            self.first = SetAbstraction(config.in_channels, (64, 64, 128), 0.2, 32)
            self.width = 128
        self.second = SetAbstraction(self.width, (128, 128, 256), 0.4, 64)
        self.third = mlp((3 + 256, 256, 512, 1024))

    def first_level(self, clouds: Clouds, x: Tensor) -> Level:
        """512 points."""
        picks, fine = clouds.sample(lambda n: min(512, n))
        if self.encoding is None:
            return fine, self.first(clouds, x, fine)
        local = self.encoding.of(clouds, queries=fine)
        return fine, torch.cat((local, gather(x, picks)), dim=-1)

    def abstract(self, clouds: Clouds, x: Tensor) -> tuple[Level, Level, Tensor]:
        """The first level, 128 points, and the vector of the cloud (B, 1024)."""
        fine, x = self.first_level(clouds, x)
        coarse = fine.sample(lambda n: min(128, n))[1]
        y = self.second(fine, x, coarse)
        of_cloud = mlp_maxpool(self.third, torch.cat((coarse.pos, y), dim=-1), coarse)
        return (fine, x), (coarse, y), of_cloud


class PointNet2Classifier(PointNet2, Classifier):
    """The abstractions of :class:`PointNet2` and layers of the cloud."""

    config_type = ClassifierConfig

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__(config)
        self.head = head((1024, 512, 256), config.num_classes, config.dropout)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        return Output(self.head(self.abstract(clouds, x)[2]))


class PointNet2Parts(PointNet2, PartSegmenter):
    """The abstractions of :class:`PointNet2`, and propagation back to all points."""

    config_type = DropoutPartsConfig
    config: DropoutPartsConfig
    default_encoding = replace(PartSegmenter.default_encoding, position=0.0)  # sees coordinates
    coordinates: ClassVar[int] = 1  # how often they are among the features of a point

    def __init__(self, config: DropoutPartsConfig) -> None:
        super().__init__(config)
        self.up3 = mlp((1024 + 256, 256, 256))
        self.up2 = Propagation(256 + self.width, (256, 128))
        own = self.coordinates * 3 + config.in_channels
        self.up1 = Propagation(128 + own + config.num_categories, (128, 128, 128))
        self.head = head((128, 128), config.num_classes, config.dropout)

    def network(self, clouds: Clouds, x: Tensor, category: Tensor) -> Output:
        fine, (coarse, y), of_cloud = self.abstract(clouds, x)
        y = mlp_with_global(self.up3, y, coarse, of_cloud)
        y = self.up2(fine, (coarse, y))
        own = torch.cat((*[clouds.pos] * self.coordinates, x), dim=-1)
        return Output(self.head(self.up1((clouds, own), (fine[0], y), category)))


class PointNet2Scenes(SemanticSegmenter):
    """Four abstractions, each to a quarter of the points, and propagation back.

    The sizes are those of the authors' network for scenes. With ``encoding`` it is VecKM -> PN++ of
    Section 4.4 of the VecKM paper: the encoding of every point comes in as its features.
    """

    name = "pointnet2"
    config_type = PointNet2ScenesConfig
    default_encoding = replace(SemanticSegmenter.default_encoding, position=0.0)

    def __init__(self, config: PointNet2ScenesConfig) -> None:
        super().__init__(config)
        # The coordinates come in as features too, as in the authors' network: a scene has a floor.
        wide = self.local_channels + (0 if config.encoding is None else 3)
        sizes = ((32, 32, 64), (64, 64, 128), (128, 128, 256), (256, 256, 512))
        inner = (wide, *[s[-1] for s in sizes])
        self.down = nn.ModuleList(
            SetAbstraction(c, s, config.radius * 2**i, 32)
            for i, (c, s) in enumerate(zip(inner, sizes, strict=False))
        )
        self.up = nn.ModuleList(
            Propagation(c, s) for c, s in ((768, (256, 256)), (384, (256, 256)), (320, (256, 128)))
        )
        self.up_last = mlp((128, 128, 128, 128))
        self.head = head((128, 128), config.num_classes, config.dropout)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        local = [] if self.encoding is None else [self.encoding.of(clouds)]
        levels = [(clouds, torch.cat((clouds.pos, x, *local), dim=-1))]
        for down in self.down:
            points, x = levels[-1]
            centers = points.sample(lambda n: -(-n // 4))[1]
            levels.append((centers, down(points, x, centers)))
        points, x = levels.pop()
        for up in self.up:
            fine = levels.pop()
            points, x = fine[0], up(fine, (points, x))
        return Output(self.head(self.up_last(points.interpolate(x, clouds))))
