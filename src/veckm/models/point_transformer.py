"""Point Transformer: vector attention among neighbors, and VecKM <-> PT."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from veckm.models.base import Classifier, Output, PointModel, SemanticSegmenter
from veckm.models.clouds import Clouds, gather
from veckm.models.config import ClassifierConfig, ModelConfig
from veckm.models.layers import LinearBN, Norm, apply_valid, head

_WIDTHS = (32, 64, 128, 256, 512)
_BLOCKS = (1, 2, 3, 5, 2)  # transformer blocks of each level on the way down
_NEIGHBORS = (8, 16, 16, 16, 16)
_GROUPS = 8  # channels that share an attention weight: C / 8 weights


@dataclass(frozen=True, eq=False)
class Level:
    """The points of a level and their neighbors, found once for all its blocks."""

    clouds: Clouds
    near: Tensor  # (N, K)
    valid: Tensor | None  # (N, K) bool: neighbors that are no repetitions; None for all


class VectorAttention(nn.Module):
    r"""Attention with one weight for each group of channels.

    .. math:: y_i = \sum_{j \in N_K(i)} \mathrm{softmax}_j(\gamma(\varphi(x_i) - \psi(x_j)
              + \delta_{ij})) \odot (\alpha(x_j) + \delta_{ij}), \qquad
              \delta_{ij} = \theta(p_i - p_j)

    Equation 3 and 4 of the Point Transformer paper.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(channels, channels) for _ in range(3))
        self.place = nn.Sequential(nn.Linear(3, 3), Norm(3), nn.ReLU(), nn.Linear(3, channels))
        weights = channels // _GROUPS
        layers = (nn.Linear(channels, weights), Norm(weights), nn.ReLU())
        self.weigh = nn.Sequential(Norm(channels), nn.ReLU(), *layers, nn.Linear(weights, weights))

    def forward(self, level: Level, x: Tensor) -> Tensor:  # (N, C) -> (N, C)
        pos, near, valid = level.clouds.pos, level.near, level.valid
        place = apply_valid(self.place, gather(pos, near) - pos[:, None], valid)  # (N, K, C)
        apart = gather(self.key(x), near) - self.query(x)[:, None] + place
        weight = apply_valid(self.weigh, apart, valid, -torch.inf).softmax(1)  # (N, K, C / 8)
        del apart  # as large as the two that follow: a scene has to fit
        value: Tensor = gather(self.value(x), near) + place
        # Channel c has weight c mod C / 8.
        grouped = value.view(*value.shape[:2], _GROUPS, -1)
        return (grouped * weight[:, :, None]).sum(1).flatten(1)


class Block(nn.Module):
    """Linear, attention, linear, around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.before = LinearBN(channels, channels)
        self.attention = VectorAttention(channels)
        self.norm = Norm(channels)
        self.after = LinearBN(channels, channels, slope=1)

    def forward(self, level: Level, x: Tensor) -> Tensor:  # (N, C) -> (N, C)
        y = self.norm(self.attention(level, self.before(x))).relu_()
        out: Tensor = self.after(y)
        return (out + x).relu_()


class Down(nn.Module):
    """A quarter of the points, each with the maximum over its 16 neighbors."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.layer = LinearBN(3 + channels, out)

    def forward(self, clouds: Clouds, x: Tensor) -> tuple[Clouds, Tensor]:
        centers = clouds.sample(lambda n: -(-n // 4))[1]
        near = clouds.knn(16, centers)
        return centers, self.layer(clouds.group(x, centers, near)).amax(1)


class Up(nn.Module):
    """Features of a coarse level carried to a fine one and added to its own: (N, C_fine)."""

    def __init__(self, fine: int, coarse: int) -> None:
        super().__init__()
        # With biases, as the paper counts.
        self.own = LinearBN(fine, fine, bias=True)
        self.carried = LinearBN(coarse, fine, bias=True)

    def forward(self, fine: Clouds, x: Tensor, coarse: Clouds, y: Tensor) -> Tensor:
        out: Tensor = self.own(x) + coarse.interpolate(self.carried(y), fine)
        return out


class PointTransformer(PointModel):
    """The way down: five levels of 32 to 512 channels, each with a quarter of the points.

    `Point Transformer <https://arxiv.org/abs/2012.09164>`_ (Zhao et al., ICCV 2021). With
    ``encoding`` it is VecKM <-> PT of Section 4.4 of the VecKM paper: the first level, a dense
    encoder of the neighborhoods of all points, gives way to the encoding and one layer.
    """

    name = "point_transformer"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        plain = config.encoding is None
        self.embed = LinearBN(self.local_channels + (0 if plain else 3), _WIDTHS[0])
        counts = (_BLOCKS[0] if plain else 0, *_BLOCKS[1:])
        self.blocks = nn.ModuleList(
            nn.ModuleList(Block(c) for _ in range(n)) for c, n in zip(_WIDTHS, counts, strict=True)
        )
        self.downs = nn.ModuleList(Down(c, out) for c, out in pairwise(_WIDTHS))

    def levels(self, clouds: Clouds, x: Tensor) -> list[tuple[Level, Tensor]]:
        """All levels with their features (N, C), the finest first."""
        local = [] if self.encoding is None else [self.encoding.of(clouds)]
        x = self.embed(torch.cat((clouds.pos, x, *local), dim=-1))
        found = []
        for i, blocks in enumerate(self.blocks):
            if i:
                clouds, x = self.downs[i - 1](clouds, x)
            near = clouds.knn(_NEIGHBORS[i])
            level = Level(clouds, near, clouds.valid(near.shape[1]))
            for block in blocks:  # type: ignore[attr-defined]
                x = block(level, x)
            found.append((level, x))
        return found


class PointTransformerClassifier(PointTransformer, Classifier):
    """The mean of the coarsest level, and a head."""

    config_type = ClassifierConfig
    default_encoding = replace(Classifier.default_encoding, position=0.0)  # sees coordinates

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__(config)
        self.head = head((512, 256, 128), config.num_classes, config.dropout)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        coarsest, x = self.levels(clouds, x)[-1]
        return Output(self.head(coarsest.clouds.mean(x)))


class PointTransformerScenes(PointTransformer, SemanticSegmenter):
    """Down five levels and up again."""

    config_type = ModelConfig
    default_encoding = replace(SemanticSegmenter.default_encoding, position=0.0)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        top = _WIDTHS[-1]
        self.mean = nn.Sequential(nn.Linear(top, top), nn.ReLU())
        self.top = LinearBN(2 * top, top, bias=True)
        self.ups = nn.ModuleList(Up(fine, coarse) for fine, coarse in pairwise(_WIDTHS))
        self.back = nn.ModuleList(Block(c) for c in _WIDTHS)
        self.head = head((_WIDTHS[0], _WIDTHS[0]), config.num_classes, 0.0)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        """The coarsest level sees its mean; every finer one the level below it."""
        levels = self.levels(clouds, x)
        level, x = levels.pop()
        mean = self.mean(level.clouds.mean(x))
        x = self.back[-1](level, self.top(torch.cat((x, level.clouds.repeat(mean)), dim=-1)))
        for up, block in zip(reversed(self.ups), reversed(self.back[:-1]), strict=True):
            coarse, (level, own) = level.clouds, levels.pop()
            x = block(level, up(level.clouds, own, coarse, x))
        return Output(self.head(x))
