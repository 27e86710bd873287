"""DGCNN: convolutions on the edges of a graph that is found anew before each; VecKM in front."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from veckm.models import ops
from veckm.models.base import PointModel
from veckm.models.encoding import EncodingSettings, front
from veckm.models.layers import Dense, Norm, activate, beside, head, perceptron

_SLOPE = 0.2


class EdgeConv(nn.Module):
    r"""The maximum over the edges of what a perceptron makes of each.

    .. math:: f_i' = \max_{j \in N_K(f_i)} \mathrm{MLP}(f_j - f_i, f_i)

    The first layer is linear in both arguments, so it is applied to points and not to edges:
    :math:`\Theta (f_j - f_i) + \Phi f_i = \Theta f_j + (\Phi - \Theta) f_i`, K times less work.

    Args:
        channels: of what comes in.
        sizes: of the perceptron's layers.
        k: K, the point itself among them; a smaller cloud is taken whole.

    Shapes:
        - x: (B, N, C); near: (B, N, K), or None to look among the features
        - output: (B, N, sizes[-1])
    """

    def __init__(self, channels: int, sizes: Sequence[int], k: int) -> None:
        super().__init__()
        self.k = k
        self.linear = nn.Linear(2 * channels, sizes[0], bias=False)  # (Theta, Phi)
        self.norm = Norm(sizes[0])
        self.layers = perceptron(sizes, _SLOPE)

    def forward(self, x: Tensor, near: Tensor | None = None) -> Tensor:
        """One layer of the graph."""
        if near is None:
            seen = x.to(torch.promote_types(x.dtype, torch.float32))  # autocast's are too coarse
            near = ops.knn(seen, seen, min(self.k, x.shape[1]), validate=False)
        theta, phi = self.linear.weight.chunk(2, dim=1)
        edge = ops.gather(x @ theta.t(), near) + (x @ (phi - theta).t())[:, :, None]
        out: Tensor = self.layers(activate(self.norm(edge), _SLOPE))
        return out.amax(2)


class DGCNNClassifier(PointModel):
    """One answer for each cloud: four edge convolutions, 1024 channels, maximum and mean.

    `DGCNN <https://arxiv.org/abs/1801.07829>`_ (Wang et al., TOG 2019), 20 neighbors. With
    ``encoding`` the first graph is that of the coordinates still; its nodes carry the encodings.

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
        k: int = 20,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories)
        self.k = k
        self.encoding, wide = front(encoding, in_channels)
        sizes = ((wide, 64), (64, 64), (64, 128), (128, 256))
        self.edges = nn.ModuleList(EdgeConv(c, (out,), k) for c, out in sizes)
        self.fuse = Dense(64 + 64 + 128 + 256, 1024, _SLOPE)
        self.answer = head((2 * 1024, 512, 256), num_classes, dropout, _SLOPE)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """All four layers side by side."""
        x = torch.cat((pos if self.encoding is None else self.encoding(pos), features), dim=-1)
        near: Tensor | None = ops.knn(pos, pos, min(self.k, pos.shape[1]), validate=False)
        seen = []
        for layer in self.edges:
            x, near = layer(x, near), None
            seen.append(x)
        x = self.fuse(torch.cat(seen, dim=-1))
        out: Tensor = self.answer(torch.cat((x.amax(1), x.mean(1)), dim=-1))
        return out


class SpatialTransform(nn.Module):
    """A 3 x 3 matrix for each cloud, from the edges of its first graph; starts at the identity.

    Shapes:
        - pos: (B, N, 3), near: (B, N, K)
        - output: (B, 3, 3)
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self.edges = EdgeConv(3, (64, 128), k)
        self.points = Dense(128, 1024, _SLOPE)
        self.cloud = perceptron((1024, 512, 256), _SLOPE)
        self.matrix = nn.Linear(256, 9)
        nn.init.zeros_(self.matrix.weight)
        with torch.no_grad():
            self.matrix.bias.copy_(torch.eye(3).flatten())

    def forward(self, pos: Tensor, near: Tensor) -> Tensor:
        """The matrix of each cloud."""
        x = self.points(self.edges(pos, near)).amax(1)
        out: Tensor = self.matrix(self.cloud(x)).view(-1, 3, 3)
        return out


class DGCNNSegmenter(PointModel):
    """What the two segmentation networks share: three edge convolutions, 1024 channels, a head.

    Args:
        num_classes: logits of a point.
        in_channels: channels of ``features``.
        num_categories: of objects, for part segmentation; 0 for scenes.
        encoding: sizes of VecKM in front; none for plain DGCNN.
        k: neighbors.
        transform: turn the coordinates by :class:`SpatialTransform` first; not with ``encoding``.
        sizes: of the head's layers.
        dropout: after those of its layers that ``dropped`` counts.
        dropped: layers of the head with dropout, the first ones.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        num_categories: int,
        encoding: EncodingSettings | None,
        *,
        k: int,
        transform: bool,
        sizes: Sequence[int],
        dropout: float,
        dropped: int,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories)
        self.k = k
        self.encoding, wide = front(encoding, in_channels)
        self.transform = SpatialTransform(k) if transform and encoding is None else None
        self.edges = nn.ModuleList(
            (EdgeConv(wide, (64, 64), k), EdgeConv(64, (64, 64), k), EdgeConv(64, (64,), k))
        )
        self.fuse = Dense(3 * 64, 1024, _SLOPE)
        self.category = Dense(num_categories, 64, _SLOPE) if num_categories else None
        seen = 1024 + 3 * 64 + (64 if num_categories else 0)
        self.first = perceptron((seen, *sizes[:dropped]), _SLOPE, dropout)
        self.answer = head(sizes[dropped - 1 :], num_classes, 0.0, _SLOPE)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:
        """Each point's features beside the cloud's and, for objects, the category's."""
        near: Tensor | None = ops.knn(pos, pos, min(self.k, pos.shape[1]), validate=False)
        place = pos if self.transform is None else pos @ self.transform(pos, near)
        x = torch.cat((place if self.encoding is None else self.encoding(pos), features), dim=-1)
        seen = []
        for layer in self.edges:
            x, near = layer(x, near), None
            seen.append(x)
        cloud = [self.fuse(torch.cat(seen, dim=-1)).amax(1)]
        if self.category is not None:
            cloud.append(self.category(category))
        x = beside(self.first, torch.cat(seen, dim=-1), torch.cat(cloud, dim=-1))
        out: Tensor = self.answer(x)
        return out


class DGCNNParts(DGCNNSegmenter):
    """One answer for each point of an object of a known category; 40 neighbors.

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
        k: int = 40,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(
            num_classes,
            in_channels,
            num_categories,
            encoding,
            k=k,
            transform=True,
            sizes=(256, 256, 128),
            dropout=dropout,
            dropped=2,
        )


class DGCNNScenes(DGCNNSegmenter):
    """One answer for each point of a scene; 20 neighbors.

    The graphs among features compare all pairs of points, a chunk at a time: memory is linear in
    N, time is not. The paper runs it on blocks of 4,096 points.

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
        k: int = 20,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(
            num_classes,
            in_channels,
            num_categories,
            encoding,
            k=k,
            transform=False,
            sizes=(512, 256),
            dropout=dropout,
            dropped=2,
        )
