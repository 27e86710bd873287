"""Point Cloud Transformer (PCT), and VecKM <-> PCT."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from veckm.models.base import Classifier, Output, PartSegmenter
from veckm.models.clouds import Clouds, gather, per_cloud
from veckm.models.config import ClassifierConfig, DropoutPartsConfig
from veckm.models.fused import mlp_maxpool, mlp_with_global
from veckm.models.layers import LinearBN, head, mlp

_SLOPE = 0.2  # of the leaky ReLU after the attention layers
_K = 32  # neighbors of a group


@dataclass(frozen=True)
class PCTClassifierConfig(ClassifierConfig):
    """Options of PCT for objects."""

    points: int = 256  # per cloud that the transformer sees


class OffsetAttention(nn.Module):
    r"""Attention among all points of a cloud, subtracted from the input before a layer.

    .. math:: F' = F + \mathrm{LBR}(F - A^\top V), \qquad
              A = \mathrm{norm}_1(\mathrm{softmax}(Q K^\top))

    Section 3.3 of the PCT paper: the softmax over the keys, then a division by the sum over the
    queries. Queries and keys share one matrix of C / 4 columns; without that the network would
    have more than the 2.88M parameters that the paper counts.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.key = nn.Linear(channels, channels // 4, bias=False)
        self.value = nn.Linear(channels, channels)
        self.transform = LinearBN(channels, channels, bias=True)  # as the paper counts

    def forward(self, x: Tensor, clouds: Clouds) -> Tensor:  # (N, C) -> (N, C)
        seen = per_cloud(_attend, (clouds, self.key(x)), (clouds, self.value(x)))
        out: Tensor = x + self.transform(x - seen)
        return out


def attend_in_turn(layers: nn.ModuleList, x: Tensor, clouds: Clouds) -> list[Tensor]:
    """The outputs of attentions one after the other."""
    outputs = []
    for layer in layers:
        x = layer(x, clouds)
        outputs.append(x)
    return outputs


def _attend(key: Tensor, value: Tensor) -> Tensor:  # (B, N, C / 4), (B, N, C) -> (B N, C)
    # Under autocast too in float32: a point that nobody attends to has a total near zero, which
    # vanishes in float16, or whose reciprocal, a factor of the gradient, is infinite there.
    with torch.autocast(key.device.type, enabled=False):
        wide = torch.promote_types(key.dtype, torch.float32)
        return _attend_wide(key.to(wide), value.to(wide))


def _attend_wide(key: Tensor, value: Tensor) -> Tensor:
    attention = (key @ key.mT).softmax(-1)
    total = 1e-9 + attention.sum(1)  # (B, N); it divides rows of A^T V as well as those of A^T
    return (attention.mT @ value / total[..., None]).flatten(0, 1)


class Grouping(nn.Module):
    r"""The sample-and-group of PCT's neighbor embedding.

    .. math:: f_i' = \max_{j \in N_{32}(i)} \mathrm{MLP}(f_j - f_i, f_i)

    From (N, C) to (M, 2 C), at ``count`` points per cloud.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = mlp((2 * channels, 2 * channels, 2 * channels))

    def forward(self, clouds: Clouds, x: Tensor, count: int) -> tuple[Clouds, Tensor]:
        picks, centers = clouds.sample(lambda n: min(count, n))
        near = clouds.knn(_K, centers)
        own = gather(x, picks)[:, None].expand(-1, near.shape[1], -1)
        groups = torch.cat((gather(x, near) - own, own), dim=-1)
        return centers, mlp_maxpool(self.layers, groups)


class NeighborEmbedding(nn.Module):
    """PCT's input embedding for classification: 512 and then 256 points with 256 channels."""

    def __init__(self, in_channels: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.points = mlp((3 + in_channels, 64, 64))
        self.first, self.second = Grouping(64), Grouping(128)

    def forward(self, clouds: Clouds, x: Tensor) -> tuple[Clouds, Tensor]:
        x = self.points(torch.cat((clouds.pos, x), dim=-1))
        clouds, x = self.first(clouds, x, 2 * self.count)
        return self.second(clouds, x, self.count)  # type: ignore[no-any-return]


class PCTClassifier(Classifier):
    """Embedding, four attentions one after the other, maximum, head.

    `PCT <https://arxiv.org/abs/2012.09688>`_ (Guo et al., Computational Visual Media 2021). With
    ``encoding`` it is VecKM <-> PCT of Section 4.2 of the VecKM paper: the encoding takes the place
    of the input embedding, at the 256 points where that would leave its features.
    """

    name = "pct"
    config_type = PCTClassifierConfig
    config: PCTClassifierConfig

    def __init__(self, config: PCTClassifierConfig) -> None:
        super().__init__(config)
        wide = self.local_channels
        if config.encoding is None:
            self.embedding = NeighborEmbedding(config.in_channels, config.points)
            wide = 256
        self.before = mlp((wide, 256, 256))
        self.attention = nn.ModuleList(OffsetAttention(256) for _ in range(4))
        self.fuse = LinearBN(wide + 4 * 256, 1024, _SLOPE)
        # The first layer of the head is leaky, as the one before it.
        self.widen = mlp((1024, 512), _SLOPE, config.dropout)
        self.head = head((512, 256), config.num_classes, config.dropout)

    def first_level(self, clouds: Clouds, x: Tensor) -> tuple[Clouds, Tensor]:
        """The points that the attentions see, and their features."""
        if self.encoding is None:
            embedded: tuple[Clouds, Tensor] = self.embedding(clouds, x)
            return embedded
        picks, centers = clouds.sample(lambda n: min(self.config.points, n))
        local = self.encoding.of(clouds, queries=centers)
        return centers, torch.cat((local, gather(x, picks)), dim=-1)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        clouds, x = self.first_level(clouds, x)
        outputs = attend_in_turn(self.attention, self.before(x), clouds)
        of_cloud = mlp_maxpool(self.fuse, torch.cat((x, *outputs), dim=-1), clouds)
        return Output(self.head(self.widen(of_cloud)))


class PCTParts(PartSegmenter):
    """PCT's segmentation network.

    A pointwise embedding of 128 channels, four attentions among all points, 1024 channels whose
    maximum and mean go back to each point. With ``encoding``, VecKM takes the place of the
    embedding. Attention is N^2 in memory: for objects, not for scenes.
    """

    name = "pct"
    config_type = DropoutPartsConfig

    def __init__(self, config: DropoutPartsConfig) -> None:
        super().__init__(config)
        wide = self.local_channels
        self.embedding: nn.Module = nn.Identity()
        if config.encoding is None:
            self.embedding = mlp((wide, 128, 128))
            wide = 128
        self.attention = nn.ModuleList(OffsetAttention(wide) for _ in range(4))
        self.fuse = LinearBN(4 * wide, 1024, _SLOPE)
        self.category = LinearBN(config.num_categories, 64, _SLOPE)
        self.first = mlp((3 * 1024 + 64, 256), dropout=config.dropout)
        self.head = head((256, 256), config.num_classes, 0.0)

    def network(self, clouds: Clouds, x: Tensor, category: Tensor) -> Output:
        x = self.embedding(self.local(clouds, x))
        x = self.fuse(torch.cat(attend_in_turn(self.attention, x, clouds), dim=-1))
        of_cloud = torch.cat((clouds.max(x), clouds.mean(x), self.category(category)), dim=-1)
        return Output(self.head(mlp_with_global(self.first, x, clouds, of_cloud)))
