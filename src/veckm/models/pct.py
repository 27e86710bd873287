"""Point Cloud Transformer (PCT), and VecKM <-> PCT."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veckm.models import ops
from veckm.models.base import PointModel
from veckm.models.encoding import Encoding, EncodingSettings
from veckm.models.layers import Dense, Norm, activate, beside, head, perceptron
from veckm.models.pooling import pooled

_SLOPE = 0.2  # of the leaky ReLU after the attention layers
_K = 32  # neighbors of a group


class OffsetAttention(nn.Module):
    r"""Attention among all points whose result is subtracted before it is transformed.

    .. math:: F' = F + \mathrm{LBR}(F - A^\top V), \qquad
              A = \mathrm{norm}_1(\mathrm{softmax}(Q K^\top))

    Section 3.3 of the PCT paper: the softmax over the keys, then a division by the sum over the
    queries. Queries and keys share one matrix of C / 4 columns; without that the network would
    have more than the 2.88M parameters that the paper counts.

    Shapes:
        - input: (B, N, C)
        - output: (B, N, C)
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.key = nn.Linear(channels, channels // 4, bias=False)
        self.value = nn.Linear(channels, channels)
        # The bias is subtracted by the norm again, but it is in the paper's count.
        self.transform = nn.Linear(channels, channels)
        self.norm = Norm(channels)

    def forward(self, x: Tensor) -> Tensor:  # (B, N, C)
        """The points after one look at each other."""
        key = self.key(x)
        attention = (key @ key.mT).softmax(-1)
        total = 1e-9 + attention.sum(1)  # (B, N); it divides rows of A^T V as well as those of A^T
        seen = attention.mT @ self.value(x) / total[..., None]
        return x + activate(self._transformed(x - seen), 0)

    def _transformed(self, x: Tensor) -> Tensor:  # (B, N, C)
        """The linear layer and its norm, which in evaluation are one layer."""
        linear = self.transform
        if self.training:
            out: Tensor = self.norm(linear(x))
            return out
        scale, shift = self.norm.affine()
        weight, bias = linear.weight * scale[:, None], linear.bias * scale + shift
        return nn.functional.linear(x, weight, bias)


class Grouping(nn.Module):
    r"""The sample-and-group of PCT's neighbor embedding.

    .. math:: f_i' = \max_{j \in N_{32}(i)} \mathrm{MLP}(f_j - f_i, f_i)

    Shapes:
        - pos: (B, N, 3), x: (B, N, C), count: M
        - output: (B, M, 3) and (B, M, 2 C)
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = perceptron((2 * channels, 2 * channels, 2 * channels))

    def forward(self, pos: Tensor, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """M farthest points and what is around them."""
        picks = ops.farthest_points(pos, min(count, pos.shape[1]), validate=False)
        center, own = ops.gather(pos, picks), ops.gather(x, picks)
        near = ops.knn(pos, center, min(_K, pos.shape[1]), validate=False)
        own = own[:, :, None].expand(-1, -1, near.shape[2], -1)
        grouped = torch.cat((ops.gather(x, near) - own, own), dim=-1)
        return center, pooled(self.layers, grouped.flatten(0, 1)).view(*picks.shape, -1)


class NeighborEmbedding(nn.Module):
    """PCT's input embedding for classification: 512 and then 256 points with 256 channels.

    Shapes:
        - pos: (B, N, 3), features: (B, N, C)
        - output: (B, 256, 256)
    """

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.points = perceptron((3 + in_channels, 64, 64))
        self.first, self.second = Grouping(64), Grouping(128)

    def forward(self, pos: Tensor, features: Tensor) -> Tensor:
        """Two rounds of sampling and grouping."""
        x = self.points(torch.cat((pos, features), dim=-1))
        pos, x = self.first(pos, x, 512)
        out: Tensor = self.second(pos, x, 256)[1]
        return out


class PCTClassifier(PointModel):
    """One answer for each cloud.

    `PCT <https://arxiv.org/abs/2012.09688>`_ (Guo et al., Computational Visual Media 2021). With
    ``encoding`` it is VecKM <-> PCT of Section 4.2 of the VecKM paper: the encoding takes the place
    of the input embedding, at the 256 points where that would leave its features.

    Args:
        num_classes: logits.
        in_channels: channels of ``features``.
        num_categories: not used by classification.
        encoding: sizes of VecKM instead of the input embedding; none for plain PCT.
        points: of the clouds that the transformer sees, with ``encoding``.
        dropout: after each layer of the head.

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
        points: int = 256,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories)
        self.points = points
        self.encoding: Encoding | None = None
        self.embedding: NeighborEmbedding | None = None
        if encoding is None:
            self.embedding = NeighborEmbedding(in_channels)
            wide = 256
        else:
            self.encoding = Encoding(encoding, validate=False)
            wide = encoding.channels + in_channels
        self.before = perceptron((wide, 256, 256))
        self.attention = nn.ModuleList(OffsetAttention(256) for _ in range(4))
        self.fuse = Dense(wide + 4 * 256, 1024, _SLOPE)
        # The first layer of the head is leaky, as the one before it.
        self.widen = perceptron((1024, 512), _SLOPE, dropout)
        self.answer = head((512, 256), num_classes, dropout)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """Embedding, four attentions one after the other, maximum, head."""
        embedded = self._embedded(pos, features)
        x = self.before(embedded)
        seen = [embedded]
        for layer in self.attention:
            x = layer(x)
            seen.append(x)
        x = pooled(self.fuse, torch.cat(seen, dim=-1))
        out: Tensor = self.answer(self.widen(x))
        return out

    def _embedded(self, pos: Tensor, features: Tensor) -> Tensor:
        if self.embedding is not None:
            out: Tensor = self.embedding(pos, features)
            return out
        assert self.encoding is not None
        picks = ops.farthest_points(pos, min(self.points, pos.shape[1]), validate=False)
        local = self.encoding(pos, ops.gather(pos, picks))
        return torch.cat((local, ops.gather(features, picks)), dim=-1)


class PCTParts(PointModel):
    """One answer for each point of an object of a known category.

    PCT's segmentation network: a pointwise embedding of 128 channels, four attentions among all
    points, 1024 channels whose maximum and mean go back to each point. With ``encoding``, VecKM
    takes the place of the embedding. Attention is N^2 in memory: for objects, not for scenes.

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
        super().__init__(num_classes, in_channels, num_categories)
        self.encoding: Encoding | None = None
        if encoding is None:
            self.embedding = perceptron((3 + in_channels, 128, 128))
            wide = 128
        else:
            self.encoding = Encoding(encoding, validate=False)
            wide = encoding.channels + in_channels
        self.attention = nn.ModuleList(OffsetAttention(wide) for _ in range(4))
        self.fuse = Dense(4 * wide, 1024, _SLOPE)
        self.category = Dense(num_categories, 64, _SLOPE) if num_categories else None
        seen = 3 * 1024 + (64 if num_categories else 0)
        self.first = perceptron((seen, 256), dropout=dropout)
        self.answer = head((256, 256), num_classes, 0.0)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:
        """Each point's features beside the cloud's and the category's."""
        if self.encoding is None:
            x = self.embedding(torch.cat((pos, features), dim=-1))
        else:
            x = torch.cat((self.encoding(pos), features), dim=-1)
        seen = []
        for layer in self.attention:
            x = layer(x)
            seen.append(x)
        x = self.fuse(torch.cat(seen, dim=-1))
        cloud = [x.amax(1), x.mean(1)]
        if self.category is not None:
            cloud.append(self.category(category))
        x = beside(self.first, x, torch.cat(cloud, dim=-1))
        out: Tensor = self.answer(x)
        return out
