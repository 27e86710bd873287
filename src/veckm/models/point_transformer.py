"""Point Transformer: vector attention among neighbors, and VecKM <-> PT."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from veckm.models import ops
from veckm.models.base import PointModel
from veckm.models.encoding import Encoding, EncodingSettings
from veckm.models.layers import Dense, Norm, head

_WIDTHS = (32, 64, 128, 256, 512)
_BLOCKS = (1, 2, 3, 5, 2)  # transformer blocks of each level on the way down
_NEIGHBORS = (8, 16, 16, 16, 16)
_GROUPS = 8  # channels that share an attention weight: C / 8 weights

Level = tuple[Tensor, Tensor, Tensor]  # pos (B, N, 3), features (B, N, C), near (B, N, K)


class VectorAttention(nn.Module):
    r"""Attention with one weight for each group of channels.

    .. math:: y_i = \sum_{j \in N_K(i)} \mathrm{softmax}_j\big(\gamma(\varphi(x_i) - \psi(x_j)
              + \delta_{ij})\big) \odot (\alpha(x_j) + \delta_{ij}), \qquad
              \delta_{ij} = \theta(p_i - p_j)

    Equation 3 and 4 of the Point Transformer paper.

    Shapes:
        - pos: (B, N, 3), x: (B, N, C), near: (B, N, K)
        - output: (B, N, C)
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(channels, channels) for _ in range(3))
        self.place = nn.Sequential(nn.Linear(3, 3), Norm(3), nn.ReLU(True), nn.Linear(3, channels))
        weights = channels // _GROUPS
        self.weigh = nn.Sequential(
            Norm(channels),
            nn.ReLU(True),
            nn.Linear(channels, weights),
            Norm(weights),
            nn.ReLU(True),
            nn.Linear(weights, weights),
        )

    def forward(self, pos: Tensor, x: Tensor, near: Tensor) -> Tensor:
        """What each point takes from its neighbors."""
        place = self.place(ops.gather(pos, near) - pos[:, :, None])  # (B, N, K, C)
        apart = ops.gather(self.key(x), near) - self.query(x)[:, :, None] + place
        weight: Tensor = self.weigh(apart).softmax(2)  # (B, N, K, C / 8)
        del apart  # as large as the two that follow: a scene has to fit
        value: Tensor = ops.gather(self.value(x), near) + place
        # Channel c has weight c mod C / 8.
        grouped = value.view(*value.shape[:3], _GROUPS, -1)
        return (grouped * weight[:, :, :, None]).sum(2).flatten(2)


class Block(nn.Module):
    """Linear, attention, linear, around a shortcut.

    Shapes:
        - pos: (B, N, 3), x: (B, N, C), near: (B, N, K)
        - output: (B, N, C)
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.before = Dense(channels, channels)
        self.attention = VectorAttention(channels)
        self.norm = Norm(channels)
        self.after = Dense(channels, channels, slope=1)

    def forward(self, pos: Tensor, x: Tensor, near: Tensor) -> Tensor:
        """x plus what the block makes of it."""
        y = self.norm(self.attention(pos, self.before(x), near)).relu_()
        out: Tensor = self.after(y)
        return (out + x).relu_()


class Down(nn.Module):
    """A quarter of the points, each with the maximum over its 16 neighbors.

    Shapes:
        - pos: (B, N, 3), x: (B, N, C)
        - output: (B, N / 4, 3) and (B, N / 4, C_out)
    """

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.layer = Dense(3 + channels, out)

    def forward(self, pos: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The picks and what is around them."""
        picks = ops.farthest_points(pos, -(-pos.shape[1] // 4), validate=False)
        center = ops.gather(pos, picks)
        near = ops.knn(pos, center, min(16, pos.shape[1]), validate=False)
        return center, self.layer.grouped(pos, x, center, near).amax(2)


class Up(nn.Module):
    """Features of a coarse level carried to a fine one and added to what it had.

    Shapes:
        - fine: (B, N, 3) and (B, N, C_fine); coarse: (B, M, 3) and (B, M, C_coarse)
        - output: (B, N, C_fine)
    """

    def __init__(self, fine: int, coarse: int) -> None:
        super().__init__()
        # With their biases, which the norms take out again: they are in the paper's count.
        self.own = nn.Sequential(nn.Linear(fine, fine), Norm(fine), nn.ReLU(True))
        self.carried = nn.Sequential(nn.Linear(coarse, fine), Norm(fine), nn.ReLU(True))

    def forward(self, pos: Tensor, x: Tensor, at: Tensor, coarse: Tensor) -> Tensor:
        """Three-point interpolation and a sum."""
        carried = ops.interpolate(self.carried(coarse), at, pos, validate=False)
        out: Tensor = self.own(x) + carried
        return out


class PointTransformer(PointModel):
    """The way down: five levels of 32 to 512 channels, each with a quarter of the points.

    `Point Transformer <https://arxiv.org/abs/2012.09164>`_ (Zhao et al., ICCV 2021). With
    ``encoding`` it is VecKM <-> PT of Section 4.4 of the VecKM paper: the first level, a dense
    encoder of the neighborhoods of all points, gives way to the encoding and one layer.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 0,
        num_categories: int = 0,
        encoding: EncodingSettings | None = None,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories)
        self.encoding = None if encoding is None else Encoding(encoding, validate=False)
        wide = 3 + in_channels + (0 if encoding is None else encoding.channels)
        self.embed = Dense(wide, _WIDTHS[0])
        counts = (_BLOCKS[0] if encoding is None else 0, *_BLOCKS[1:])
        self.blocks = nn.ModuleList(
            nn.ModuleList(Block(c) for _ in range(n)) for c, n in zip(_WIDTHS, counts, strict=True)
        )
        self.downs = nn.ModuleList(Down(c, out) for c, out in pairwise(_WIDTHS))

    def levels(self, pos: Tensor, features: Tensor) -> list[Level]:
        """Positions, features and neighbors of every level, the finest first."""
        local = [] if self.encoding is None else [self.encoding(pos)]
        x = self.embed(torch.cat((pos, features, *local), dim=-1))
        found: list[Level] = []
        for i, blocks in enumerate(self.blocks):
            if i:
                pos, x = self.downs[i - 1](pos, x)
            # One search for all blocks of a level, on the way down and up.
            near = ops.knn(pos, pos, min(_NEIGHBORS[i], pos.shape[1]), validate=False)
            for block in blocks:  # type: ignore[attr-defined]
                x = block(pos, x, near)
            found.append((pos, x, near))
        return found


class PointTransformerClassifier(PointTransformer):
    """One answer for each cloud: the mean of the coarsest level and a perceptron.

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
        self.answer = head((512, 256, 128), num_classes, dropout)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """From the mean of the coarsest level."""
        out: Tensor = self.answer(self.levels(pos, features)[-1][1].mean(1))
        return out


class PointTransformerScenes(PointTransformer):
    """One answer for each point of a scene: down five levels and up again.

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
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories, encoding)
        top = _WIDTHS[-1]
        self.mean = nn.Sequential(nn.Linear(top, top), nn.ReLU(True))
        self.top = nn.Sequential(nn.Linear(2 * top, top), Norm(top), nn.ReLU(True))
        self.ups = nn.ModuleList(Up(fine, coarse) for fine, coarse in pairwise(_WIDTHS))
        self.back = nn.ModuleList(Block(c) for c in _WIDTHS)
        self.answer = head((_WIDTHS[0], _WIDTHS[0]), num_classes, 0.0)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """The coarsest level sees its mean; every finer one the level below it."""
        levels = self.levels(pos, features)
        at, x, near = levels.pop()
        mean = self.mean(x.mean(1, keepdim=True)).expand_as(x)
        x = self.back[-1](at, self.top(torch.cat((x, mean), dim=-1)), near)
        for up, block in zip(reversed(self.ups), reversed(self.back[:-1]), strict=True):
            fine, own, near = levels.pop()
            x = block(fine, up(fine, own, at, x), near)
            at = fine
        out: Tensor = self.answer(x)
        return out
