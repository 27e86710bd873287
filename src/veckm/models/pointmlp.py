"""PointMLP: residual perceptrons on normalized groups; VecKM in front."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veckm.models import ops
from veckm.models.base import PointModel
from veckm.models.encoding import EncodingSettings, front
from veckm.models.layers import Dense, beside, head, perceptron
from veckm.models.pointnet2 import Level

_EPS = 1e-5


class Residual(nn.Module):
    """Two dense layers around a shortcut.

    Shapes:
        - input: (..., C)
        - output: (..., C)
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(Dense(channels, channels), Dense(channels, channels, slope=1))

    def forward(self, x: Tensor) -> Tensor:
        """x plus what the layers make of it."""
        out: Tensor = self.layers(x)
        return (out + x).relu_()


class Stage(nn.Module):
    r"""Half or a quarter of the points, with twice the channels.

    .. math:: f_i' = \Phi_\mathrm{pos}\Big(\max_{j \in N_K(i)} \Phi_\mathrm{pre}\big(
              \alpha \odot \frac{f_j - f_i}{\sigma + \epsilon} + \beta,\; f_i\big)\Big)

    Sigma is the deviation of all differences in a cloud, alpha and beta are learned: the geometric
    affine module of Section 3.2 of the PointMLP paper.

    Args:
        channels: C; the stage gives 2 C.
        k: K, neighbors.
        reduce: how many times fewer points.
        place: group the coordinates beside the features.

    Shapes:
        - pos: (B, N, 3), x: (B, N, C)
        - output: (B, N / reduce, 3) and (B, N / reduce, 2 C)
    """

    def __init__(self, channels: int, k: int, reduce: int, place: bool) -> None:
        super().__init__()
        self.k, self.reduce, self.place = k, reduce, place
        grouped = channels + (3 if place else 0)
        self.alpha = nn.Parameter(torch.ones(grouped))
        self.beta = nn.Parameter(torch.zeros(grouped))
        self.transfer = Dense(grouped + channels, 2 * channels)
        self.pre = nn.Sequential(*[Residual(2 * channels) for _ in range(2)])
        self.post = nn.Sequential(*[Residual(2 * channels) for _ in range(2)])

    def forward(self, pos: Tensor, x: Tensor) -> Level:
        """The picks and what is around them."""
        picks = ops.farthest_points(pos, max(1, pos.shape[1] // self.reduce), validate=False)
        center, own = ops.gather(pos, picks), ops.gather(x, picks)
        near = ops.knn(pos, center, min(self.k, pos.shape[1]), validate=False)
        both = torch.cat((x, pos), dim=-1) if self.place else x
        offset = ops.gather(both, near) - ops.gather(both, picks)[:, :, None]
        # Over everything of a cloud; a cloud whose points coincide has nothing to divide by.
        sigma = offset.flatten(1).std(1).view(-1, 1, 1, 1)
        offset = self.alpha * (offset / (sigma + _EPS)) + self.beta
        own = own[:, :, None].expand(-1, -1, near.shape[2], -1)
        y = self.pre(self.transfer(torch.cat((offset, own), dim=-1)))
        return center, self.post(y.amax(2))


class PointMLPClassifier(PointModel):
    """One answer for each cloud: four stages, each with half of the points, 24 neighbors.

    `PointMLP <https://arxiv.org/abs/2202.07123>`_ (Ma et al., ICLR 2022). With ``encoding`` the
    features of the local geometry come in instead of the coordinates; the groups are still those
    of the coordinates.

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
        k: int = 24,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories)
        self.encoding, wide = front(encoding, in_channels)
        self.embed = Dense(wide, 64)
        self.stages = nn.ModuleList(Stage(64 * 2**i, k, 2, place=False) for i in range(4))
        self.answer = head((1024, 512, 256), num_classes, dropout)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """Four stages and the maximum."""
        local = pos if self.encoding is None else self.encoding(pos)
        x = self.embed(torch.cat((local, features), dim=-1))
        for stage in self.stages:
            pos, x = stage(pos, x)
        out: Tensor = self.answer(x.amax(1))
        return out


class PointMLPParts(PointModel):
    """One answer for each point of an object of a known category.

    Four stages, each with a quarter of the points and 32 neighbors, and the way back up; the
    maximum of every level and the category go to each point.

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
        k: int = 32,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories)
        self.encoding, wide = front(encoding, in_channels)
        self.embed = Dense(wide, 64)
        self.stages = nn.ModuleList(Stage(64 * 2**i, k, 4, place=True) for i in range(4))
        ups = ((1024 + 512, 512), (512 + 256, 256), (256 + 128, 128), (128 + 64, 128))
        self.ups = nn.ModuleList(
            nn.Sequential(Dense(c, out), *[Residual(out) for _ in range(4)]) for c, out in ups
        )
        self.pooled = nn.ModuleList(Dense(64 * 2**i, 64) for i in range(5))
        self.cloud = Dense(5 * 64, 64)
        self.category = perceptron((num_categories, 64, 64)) if num_categories else None
        seen = 128 + 64 + (64 if num_categories else 0)
        self.answer = head((seen, 128), num_classes, dropout)

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:
        """Down four stages, and up again with what each level had."""
        local = pos if self.encoding is None else self.encoding(pos)
        levels = [(pos, self.embed(torch.cat((local, features), dim=-1)))]
        for stage in self.stages:
            levels.append(stage(*levels[-1]))
        pairs = zip(self.pooled, levels, strict=True)
        cloud = [self.cloud(torch.cat([pool(x.amax(1)) for pool, (_, x) in pairs], dim=-1))]
        if self.category is not None:
            cloud.append(self.category(category))
        at, x = levels.pop()
        for up in self.ups:
            fine, own = levels.pop()
            carried = ops.interpolate(x, at, fine, validate=False)
            x = up(torch.cat((carried, own), dim=-1))
            at = fine
        return beside(self.answer, x, torch.cat(cloud, dim=-1))
