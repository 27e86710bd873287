"""PointMLP: residual layers on normalized groups; VecKM in front."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from veckm.models.base import Classifier, Output, PartSegmenter, PointModel
from veckm.models.clouds import Clouds, gather, per_cloud
from veckm.models.config import ClassifierConfig, DropoutPartsConfig
from veckm.models.fused import mlp_with_global
from veckm.models.layers import LinearBN, apply_valid, head, mlp

_EPS = 1e-5


@dataclass(frozen=True)
class PointMLPClassifierConfig(ClassifierConfig):
    """Options of PointMLP for objects."""

    k: int = 24  # neighbors


@dataclass(frozen=True)
class PointMLPPartsConfig(DropoutPartsConfig):
    """Options of PointMLP for parts."""

    k: int = 32  # neighbors


class Residual(nn.Module):
    """Two layers around a shortcut: (..., C) to (..., C)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            LinearBN(channels, channels), LinearBN(channels, channels, slope=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return (out + x).relu_()


class Stage(nn.Module):
    r"""Half or a quarter of the points, with twice the channels.

    .. math:: f_i' = \Phi_\mathrm{pos}\Big(\max_{j \in N_K(i)} \Phi_\mathrm{pre}\big(
              \alpha \odot \frac{f_j - f_i}{\sigma + \epsilon} + \beta,\; f_i\big)\Big)

    Sigma is the standard deviation of all differences in a cloud, alpha and beta are learned: the
    geometric affine module of Section 3.2 of the PointMLP paper. With ``place`` the coordinates
    are joined with the features of a group.
    """

    def __init__(self, channels: int, k: int, reduce: int, place: bool) -> None:
        super().__init__()
        self.k, self.reduce, self.place = k, reduce, place
        grouped = channels + (3 if place else 0)
        self.alpha = nn.Parameter(torch.ones(grouped))
        self.beta = nn.Parameter(torch.zeros(grouped))
        self.transfer = LinearBN(grouped + channels, 2 * channels)
        self.pre = nn.Sequential(*[Residual(2 * channels) for _ in range(2)])
        self.post = nn.Sequential(*[Residual(2 * channels) for _ in range(2)])

    def forward(self, clouds: Clouds, x: Tensor) -> tuple[Clouds, Tensor]:
        """From (N, C) to (N / reduce, 2 C)."""
        picks, centers = clouds.sample(lambda n: max(1, n // self.reduce))
        near = clouds.knn(self.k, centers)  # (M, K)
        valid = clouds.valid(near.shape[1], centers)
        both = torch.cat((x, clouds.pos), dim=-1) if self.place else x
        offset = gather(both, near) - gather(both, picks)[:, None]
        # Where the points of a cloud coincide, sigma is 0.
        offset = self.alpha * (offset / (_deviation(offset, valid, centers) + _EPS)) + self.beta
        own = gather(x, picks)[:, None].expand(-1, near.shape[1], -1)
        layers = nn.Sequential(self.transfer, *self.pre)
        y = apply_valid(layers, torch.cat((offset, own), dim=-1), valid, -torch.inf)
        return centers, self.post(y.amax(1))


def _deviation(offset: Tensor, valid: Tensor | None, centers: Clouds) -> Tensor:  # (M, 1, 1)
    """The standard deviation of all offsets (M, K, C) of a cloud, for each of its centers."""
    if valid is None:
        sigma = per_cloud(lambda o: o.flatten(1).std(1), (centers, offset))
    else:
        parts = zip(offset.split(centers.sizes), valid.split(centers.sizes), strict=True)
        sigma = torch.stack([part[real].std() for part, real in parts])
    return centers.repeat(sigma[:, None])[:, None]


class PointMLP(PointModel):
    """The way down: four stages, of 64 to 1024 channels.

    `PointMLP <https://arxiv.org/abs/2202.07123>`_ (Ma et al., ICLR 2022). With ``encoding`` the
    features of the local geometry come in instead of the coordinates; the groups are still those
    of the coordinates.
    """

    name = "pointmlp"

    def __init__(
        self, config: PointMLPClassifierConfig | PointMLPPartsConfig, reduce: int, place: bool
    ) -> None:
        super().__init__(config)
        self.embed = LinearBN(self.local_channels, 64)
        self.stages = nn.ModuleList(Stage(64 * 2**i, config.k, reduce, place) for i in range(4))

    def levels(self, clouds: Clouds, x: Tensor) -> list[tuple[Clouds, Tensor]]:
        """Points and features (N, C) of every level, the finest first."""
        found = [(clouds, self.embed(self.local(clouds, x)))]
        for stage in self.stages:
            found.append(stage(*found[-1]))
        return found


class PointMLPClassifier(PointMLP, Classifier):
    """Half of the points in each stage; the maximum of the last."""

    config_type = PointMLPClassifierConfig

    def __init__(self, config: PointMLPClassifierConfig) -> None:
        super().__init__(config, reduce=2, place=False)
        self.head = head((1024, 512, 256), config.num_classes, config.dropout)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        coarsest, x = self.levels(clouds, x)[-1]
        return Output(self.head(coarsest.max(x)))


class PointMLPParts(PointMLP, PartSegmenter):
    """A quarter of the points in each stage, and the way back up.

    The maximum of every level and the category go to each point.
    """

    config_type = PointMLPPartsConfig

    def __init__(self, config: PointMLPPartsConfig) -> None:
        super().__init__(config, reduce=4, place=True)
        ups = ((1024 + 512, 512), (512 + 256, 256), (256 + 128, 128), (128 + 64, 128))
        self.ups = nn.ModuleList(
            nn.Sequential(LinearBN(c, out), *[Residual(out) for _ in range(4)]) for c, out in ups
        )
        self.of_level = nn.ModuleList(LinearBN(64 * 2**i, 64) for i in range(5))
        self.of_cloud = LinearBN(5 * 64, 64)
        self.category = mlp((config.num_categories, 64, 64))
        self.head = head((128 + 64 + 64, 128), config.num_classes, config.dropout)

    def network(self, clouds: Clouds, x: Tensor, category: Tensor) -> Output:
        levels = self.levels(clouds, x)
        pairs = zip(self.of_level, levels, strict=True)
        maxima = torch.cat([layer(at.max(x)) for layer, (at, x) in pairs], dim=-1)
        of_cloud = torch.cat((self.of_cloud(maxima), self.category(category)), dim=-1)
        at, x = levels.pop()
        for up in self.ups:
            fine, own = levels.pop()
            x = up(torch.cat((at.interpolate(x, fine), own), dim=-1))
            at = fine
        return Output(mlp_with_global(self.head, x, clouds, of_cloud))
