"""DGCNN: convolutions on the edges of a graph that is found anew before each; VecKM in front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from veckm.models.base import Classifier, Output, PartSegmenter, PointModel, SemanticSegmenter
from veckm.models.clouds import Clouds, gather
from veckm.models.config import ClassifierConfig, DropoutPartsConfig
from veckm.models.fused import mlp_maxpool, mlp_with_global, track
from veckm.models.layers import LinearBN, MatrixHead, Norm, activate, head, mlp

_SLOPE = 0.2


@dataclass(frozen=True)
class DGCNNConfig(ClassifierConfig):
    """Options of DGCNN for objects and for scenes."""

    k: int = 20  # neighbors in each graph, the point itself included


@dataclass(frozen=True)
class DGCNNPartsConfig(DropoutPartsConfig):
    """Options of DGCNN for parts."""

    k: int = 40  # neighbors in each graph, the point itself included


class EdgeConv(nn.Module):
    r"""The maximum over the edges of every point.

    .. math:: f_i' = \max_{j \in N_K(i)} \mathrm{MLP}(f_j - f_i, f_i)

    The first layer is linear in both arguments, so it is applied to points and not to edges:
    :math:`\Theta (f_j - f_i) + \Phi f_i = \Theta f_j + (\Phi - \Theta) f_i`, K times less work.
    A single layer needs no edges at all: :func:`edge_maxpool`.

    Args:
        channels: of the input.
        sizes: of the layers.
    """

    def __init__(self, channels: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * channels, sizes[0], bias=False)  # (Theta, Phi)
        self.norm = Norm(sizes[0])
        self.layers = mlp(sizes, _SLOPE)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:  # (N, C), (N, K) rows -> (N, sizes[-1])
        if not len(self.layers):
            return edge_maxpool(self.linear.weight, self.norm, _SLOPE, x, near)
        theta, phi = self.linear.weight.chunk(2, dim=1)
        edge = gather(x @ theta.t(), near) + (x @ (phi - theta).t())[:, None]
        return mlp_maxpool(self.layers, activate(self.norm(edge), _SLOPE))


def edge_maxpool(
    weight: Tensor,  # (C_out, 2 C), Theta and Phi
    norm: Norm,
    slope: float,
    x: Tensor,  # (N, C)
    near: Tensor,  # (N, K)
) -> Tensor:  # (N, C_out)
    r"""The maximum over edges of one layer on (f_j - f_i, f_i), without the N x K edges.

    .. math:: \Theta (f_j - f_i) + \Phi f_i = u_j + c_i, \qquad
              u = \Theta f, \quad c = (\Phi - \Theta) f

    Norm and activation are monotone in each channel, so the maximum over the edges of i is that of
    u (the minimum where gamma < 0), and the mean and variance over all edges follow from sums over
    neighbors: Var(u_j + c_i) = Var(u_j) + Var(c_i) + 2 Cov(u_j, c_i).
    """
    if torch.is_autocast_enabled(x.device.type) or near.numel() < 2:
        own = x[:, None].expand(-1, near.shape[1], -1)
        edge = torch.cat((gather(x, near) - own, own), dim=-1) @ weight.t()
        return activate(norm(edge), slope).amax(1)
    theta, phi = weight.chunk(2, dim=1)
    u, c = x @ theta.t(), x @ (phi - theta).t()
    sign = torch.where(norm.weight.detach() < 0, -1.0, 1.0).to(u)
    best = sign * nn.functional.embedding_bag(near, sign * u, mode="max")
    if not norm.training:
        scale, shift = norm.scale_and_shift()
        return activate((best + c) * scale + shift, slope)
    edges = near.numel()
    share = torch.bincount(near.flatten(), minlength=len(u)).to(u) / edges  # (N,)
    u_mean, c_mean = share @ u, c.mean(0)
    off_u, off_c = u - u_mean, c - c_mean
    around = nn.functional.embedding_bag(near, off_u, mode="sum")  # (N, C_out)
    var = share @ off_u.square() + off_c.square().mean(0) + 2 * (around * off_c).sum(0) / edges
    var = var.clamp_min(0)
    track(norm, u_mean + c_mean, var, edges)
    scale = norm.weight * (var + norm.eps).rsqrt()
    return activate((best + c - u_mean - c_mean) * scale + norm.bias, slope)


def convolve(edges: nn.ModuleList, clouds: Clouds, x: Tensor, near: Tensor, k: int) -> Tensor:
    """The outputs of all edge convolutions, joined; the first graph is given, the others follow.

    Graphs among features compare all pairs of points: memory is linear in N, time is not.
    """
    outputs = []
    for i, layer in enumerate(edges):
        x = layer(x, clouds.knn(k, among=x) if i else near)
        outputs.append(x)
    return torch.cat(outputs, dim=-1)


class DGCNNClassifier(Classifier):
    """Four edge convolutions, 1024 channels, maximum and mean.

    `DGCNN <https://arxiv.org/abs/1801.07829>`_ (Wang et al., TOG 2019), 20 neighbors. With
    ``encoding`` the first graph is still that of the coordinates; its nodes carry the encodings.
    """

    name = "dgcnn"
    config_type = DGCNNConfig
    config: DGCNNConfig

    def __init__(self, config: DGCNNConfig) -> None:
        super().__init__(config)
        sizes = ((self.local_channels, 64), (64, 64), (64, 128), (128, 256))
        self.edges = nn.ModuleList(EdgeConv(c, (out,)) for c, out in sizes)
        self.fuse = LinearBN(64 + 64 + 128 + 256, 1024, _SLOPE)
        self.head = head((2 * 1024, 512, 256), config.num_classes, config.dropout, _SLOPE)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        k = self.config.k
        x = self.fuse(convolve(self.edges, clouds, self.local(clouds, x), clouds.knn(k), k))
        return Output(self.head(torch.cat((clouds.max(x), clouds.mean(x)), dim=-1)))


class SpatialTransform(nn.Module):
    """A 3 x 3 matrix for each cloud, from its first graph; starts at the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.edges = EdgeConv(3, (64, 128))
        self.points = LinearBN(128, 1024, _SLOPE)
        self.cloud = mlp((1024, 512, 256), _SLOPE)
        self.matrix = MatrixHead(256, 3)

    def forward(self, clouds: Clouds, near: Tensor) -> Tensor:  # (B, 3, 3)
        x = mlp_maxpool(self.points, self.edges(clouds.pos, near), clouds)
        out: Tensor = self.matrix(self.cloud(x))
        return out


class DGCNNSegmenter(PointModel):
    """Three edge convolutions; the head sees their 3 x 64 channels and 1024 of the cloud."""

    name = "dgcnn"
    config: DGCNNConfig | DGCNNPartsConfig

    def __init__(self, config: DGCNNConfig | DGCNNPartsConfig, transform: bool = False) -> None:
        super().__init__(config)
        self.transform = SpatialTransform() if transform else None
        sizes = ((self.local_channels, (64, 64)), (64, (64, 64)), (64, (64,)))
        self.edges = nn.ModuleList(EdgeConv(c, out) for c, out in sizes)
        self.fuse = LinearBN(3 * 64, 1024, _SLOPE)

    def features(self, clouds: Clouds, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features of every point (N, 192) and of every cloud (B, 1024)."""
        near = clouds.knn(self.config.k)
        x = self.local(clouds, x)
        if self.transform is not None:
            pos = clouds.transform(clouds.pos, self.transform(clouds, near))
            x = torch.cat((pos, x[:, 3:]), dim=-1)
        x = convolve(self.edges, clouds, x, near, self.config.k)
        return x, mlp_maxpool(self.fuse, x, clouds)


class DGCNNParts(DGCNNSegmenter, PartSegmenter):
    """For objects of a known category; 40 neighbors, and coordinates that are transformed first."""

    config_type = DGCNNPartsConfig
    config: DGCNNPartsConfig

    def __init__(self, config: DGCNNPartsConfig) -> None:
        super().__init__(config, transform=config.encoding is None)
        self.category = LinearBN(config.num_categories, 64, _SLOPE)
        self.first = mlp((1024 + 3 * 64 + 64, 256, 256), _SLOPE, config.dropout)
        self.head = head((256, 128), config.num_classes, 0.0, _SLOPE)

    def network(self, clouds: Clouds, x: Tensor, category: Tensor) -> Output:
        x, of_cloud = self.features(clouds, x)
        of_cloud = torch.cat((of_cloud, self.category(category)), dim=-1)
        return Output(self.head(mlp_with_global(self.first, x, clouds, of_cloud)))


class DGCNNScenes(DGCNNSegmenter, SemanticSegmenter):
    """For scenes; 20 neighbors."""

    config_type = DGCNNConfig

    def __init__(self, config: DGCNNConfig) -> None:
        super().__init__(config)
        self.first = mlp((1024 + 3 * 64, 512, 256), _SLOPE, config.dropout)
        self.head = head((256,), config.num_classes, 0.0, _SLOPE)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        x, of_cloud = self.features(clouds, x)
        return Output(self.head(mlp_with_global(self.first, x, clouds, of_cloud)))
