"""KPConv: convolutions whose weights sit at points in space; VecKM in front."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from veckm.models.base import Classifier, Output, PointModel, SemanticSegmenter
from veckm.models.clouds import Clouds, gather
from veckm.models.config import ModelConfig
from veckm.models.layers import LinearBN, Norm, activate, head

_SLOPE = 0.1
_KERNEL = 15  # kernel points
_WIDTHS = (128, 256, 512, 1024, 2048)  # channels of the levels
#: Numbers (row, neighbor or kernel point, channel) held at a time without gradients.
_HELD = 1 << 25


@dataclass(frozen=True)
class KPConvConfig(ModelConfig):
    """Options of KPConv for scenes."""

    size: float = 0.04  # side of the cells of the first level, in the units of ``pos``
    neighbors: int = 32  # of one convolution, at the most


@dataclass(frozen=True)
class KPConvClassifierConfig(KPConvConfig):
    """Options of KPConv for objects."""

    # The paper's cells of 0.02 are for the 6,800 points that they leave of a shape in the unit
    # ball; this keeps the same number of points to a cell for shapes of 1,024 points.
    size: float = 0.05
    dropout: float = 0.5  # before the last layer


@dataclass(frozen=True, eq=False)
class Graph:
    """The neighbors of a convolution, and how much of each every kernel point receives."""

    near: Tensor  # (M, K) int64
    weight: Tensor  # (M, K, P)


@dataclass(frozen=True, eq=False)
class Level:
    """The points of all clouds of the batch at one cell size."""

    clouds: Clouds
    of_finer: Tensor  # (points of the finer level,) the row here that each of them went into
    within: Graph  # from this level to itself
    strided: Graph | None  # from the finer level to this one


def cells(clouds: Clouds, size: float) -> tuple[Tensor, Clouds]:  # (N,), clouds of M
    """The mean of the points in every cubic cell of side ``size``: an even density.

    Returns the row of the mean that each point went into, and the clouds of the means.
    """
    into, cloud = grid_cells(clouds.pos, clouds.batch, size)
    means = row_means(clouds.pos, into, len(cloud))
    return into, Clouds(means, tuple(cloud.bincount().tolist()))


def grid_cells(
    pos: Tensor,  # (N, 3)
    cloud: Tensor,  # (N,) ascending
    size: float,
) -> tuple[Tensor, Tensor]:  # (N,), (M,)
    """The cubic cell of side ``size`` of every point, and the cloud of every cell with points.

    Cells are numbered by cloud first.
    """
    cell = torch.floor(pos.detach().double() / size)
    cell -= cell.amin(0)
    sides = [int(side) + 1 for side in cell.amax(0)]
    total = math.prod(sides)
    if total * (int(cloud[-1]) + 1) >= 2**62:
        raise ValueError(
            f"cells of side {size:g} would be {total:.1e} for each cloud, more than can be "
            "numbered; use a larger size or drop far outliers"
        )
    key = cloud
    for axis, side in enumerate(sides):
        key = key * side + cell[:, axis].long()
    kept, of_point = torch.unique(key, return_inverse=True)
    return of_point, kept // total


def row_means(x: Tensor, into: Tensor, rows: int) -> Tensor:  # (N, C), (N,) -> (rows, C)
    """The mean of the rows that go to the same place."""
    total = x.new_zeros(rows, x.shape[1]).index_add(0, into, x)
    return total / torch.bincount(into, minlength=rows)[:, None].to(x)


def kernel_points() -> Tensor:  # (P, 3)
    """One point in the middle and the others apart from each other on the unit sphere.

    As Section 3.1 of the KPConv paper places 15; here they start on a spiral and only repel.
    """
    i = torch.arange(_KERNEL - 1, dtype=torch.float64)
    z = 1 - (2 * i + 1) / (_KERNEL - 1)
    angle = i * math.pi * (3 - math.sqrt(5))
    flat = (1 - z.square()).sqrt()
    x = torch.stack((flat * angle.cos(), flat * angle.sin(), z), dim=1)
    for _ in range(200):
        away = x[:, None] - x
        apart = away.square().sum(-1, keepdim=True)
        push = torch.where(apart > 0, away / apart.clamp_min(1e-12).pow(1.5), 0.0)
        x = nn.functional.normalize(x + 0.02 * push.sum(1), dim=1)
    return torch.cat((x.new_zeros(1, 3), x)).float()


def kernel_weights(offset: Tensor, kernel: Tensor, sigma: float) -> Tensor:
    r"""The influence of kernel points (P, 3) on neighbors (M, K, 3): (M, K, P).

    .. math:: \max(0, 1 - |z_j - c_p| / \sigma), \qquad z_j = x_j - x_i
    """
    apart = (offset[:, :, None] - kernel).square().sum(-1).sqrt()
    return (1 - apart / sigma).clamp_min(0)


def kernel_sums(weight: Tensor, x: Tensor) -> Tensor:  # (M, K, P), (M, K, C) -> (M, P C)
    """The weighted sums of the neighbors' features at every kernel point, side by side."""
    return (weight.mT @ x).flatten(1)


class KernelConv(nn.Module):
    r"""The rigid kernel point convolution.

    .. math:: f_i' = \sum_p W_p \sum_{|x_j - x_i| \le r}
              \max\Big(0, 1 - \frac{|x_j - x_i - c_p|}{\sigma}\Big) f_j

    Equation 1 to 3 of the KPConv paper. All layers have the same kernel points, so the weights
    are those of the ``Graph`` and are computed once for each level.

    Args:
        channels: C_in.
        out: C_out.
    """

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(_KERNEL * channels, out, bias=False)  # all W_p side by side

    def forward(self, x: Tensor, graph: Graph) -> Tensor:  # (N, C_in) -> (M, C_out)
        def convolve(near: Tensor, weight: Tensor) -> Tensor:
            out: Tensor = self.linear(kernel_sums(weight, gather(x, near)))
            return out

        held = x.shape[1] * max(graph.near.shape[1], _KERNEL)
        return _in_parts(convolve, held, graph.near, graph.weight)


def _in_parts(fn: Callable[..., Tensor], held: int, *rows: Tensor) -> Tensor:
    """``fn`` of the rows, a few at a time without gradients; each takes ``held`` numbers."""
    few = len(rows[0]) if torch.is_grad_enabled() else max(1, _HELD // held)
    return torch.cat([fn(*part) for part in zip(*(x.split(few) for x in rows), strict=True)])


class Bottleneck(nn.Module):
    """A quarter of the channels, the convolution, all channels again, around a shortcut."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.before = LinearBN(channels, out // 4, _SLOPE)
        self.conv = KernelConv(out // 4, out // 4)
        self.norm = Norm(out // 4)
        self.after = LinearBN(out // 4, out, slope=1)
        self.shortcut = LinearBN(channels, out, slope=1) if channels != out else None

    def forward(self, x: Tensor, graph: Graph, strided: bool = False) -> Tensor:
        """From (N, C_in) to (N, C_out), or to (M, C_out) of a coarser level."""
        y = activate(self.norm(self.conv(self.before(x), graph)), _SLOPE)
        if strided:
            held = x.shape[1] * graph.near.shape[1]
            x = _in_parts(lambda near: gather(x, near).amax(1), held, graph.near)
        own = x if self.shortcut is None else self.shortcut(x)
        return activate(self.after(y) + own, _SLOPE)


class KPConv(PointModel):
    """The way down: five levels of a grid, each twice as coarse, of 128 to 2048 channels.

    `KPConv <https://arxiv.org/abs/1904.08889>`_ (Thomas et al., ICCV 2019), rigid, with 15 kernel
    points at 1.5 sigma, sigma the side of a cell, and a radius of 2.5 sigma. The points come in
    with the feature 1, then x and, with ``encoding``, the features of VecKM.
    """

    name = "kpconv"
    config: KPConvConfig
    kernel: Tensor  # (P, 3)

    def __init__(self, config: KPConvConfig) -> None:
        super().__init__(config)
        wide = self.local_channels - (3 if config.encoding is None else 0)
        self.register_buffer("kernel", kernel_points(), persistent=False)
        self.first = KernelConv(1 + wide, 64)
        self.norm = Norm(64)
        self.strided = nn.ModuleList(Bottleneck(c, c) for c in _WIDTHS[:-1])
        self.blocks = nn.ModuleList(Bottleneck(c, out) for c, out in pairwise((64, *_WIDTHS)))

    def descend(self, clouds: Clouds, x: Tensor) -> tuple[list[Level], list[Tensor]]:
        """The five levels and the features (N, C) of their points, the finest first."""
        carried = [torch.ones_like(clouds.pos[:, :1]), x]
        if self.encoding is not None:
            carried.append(self.encoding.of(clouds))
        levels = self._levels(clouds)
        first = levels[0]
        x = row_means(torch.cat(carried, dim=-1), first.of_finer, len(first.clouds.pos))
        x = activate(self.norm(self.first(x, first.within)), _SLOPE)
        found = [self.blocks[0](x, first.within)]
        for strided, block, level in zip(self.strided, self.blocks[1:], levels[1:], strict=True):
            found.append(block(strided(found[-1], level.strided, strided=True), level.within))
        return levels, found

    @torch.no_grad()
    def _levels(self, clouds: Clouds) -> list[Level]:
        """Grids, neighbors and kernel weights: nothing of it is learned."""
        levels: list[Level] = []
        for i in range(len(_WIDTHS)):
            size = self.config.size * 2**i
            of_finer, coarse = cells(clouds, size)
            within = self._graph(coarse, coarse, size)
            strided = self._graph(clouds, coarse, size / 2) if i else None
            levels.append(Level(coarse, of_finer, within, strided))
            clouds = coarse
        return levels

    def _graph(self, points: Clouds, queries: Clouds, sigma: float) -> Graph:
        near = points.ball(2.5 * sigma, self.config.neighbors, queries)
        kernel = self.kernel.to(points.pos) * (1.5 * sigma)
        weight = points.pos.new_empty(*near.shape, len(kernel))
        rows = max(1, _HELD // (near.shape[1] * len(kernel)))
        for i in range(0, len(near), rows):
            part = near[i : i + rows]
            offset = points.pos[part] - queries.pos[i : i + rows, None]
            weight[i : i + rows] = kernel_weights(offset, kernel, sigma)
            # A ball with too few points repeats its nearest one, which must count once.
            weight[i : i + rows, 1:] *= (part[:, 1:] != part[:, :1])[..., None]
        return Graph(near, weight)


class KPConvClassifier(KPConv, Classifier):
    """The mean of the coarsest level, 1024 channels, the classes."""

    config_type = KPConvClassifierConfig
    default_encoding = replace(Classifier.default_encoding, position=0.0)  # sees coordinates

    def __init__(self, config: KPConvClassifierConfig) -> None:
        super().__init__(config)
        self.head = nn.Sequential(
            LinearBN(2048, 1024, _SLOPE),
            nn.Dropout(config.dropout),
            nn.Linear(1024, config.num_classes),
        )

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        levels, found = self.descend(clouds, x)
        return Output(self.head(levels[-1].clouds.mean(found[-1])))


class KPConvScenes(KPConv, SemanticSegmenter):
    """Down five levels and up again by the nearest point; ``pos`` is in meters."""

    config_type = KPConvConfig
    default_encoding = replace(SemanticSegmenter.default_encoding, position=0.0)

    def __init__(self, config: KPConvConfig) -> None:
        super().__init__(config)
        self.ups = nn.ModuleList(
            LinearBN(coarse + fine, fine, _SLOPE) for fine, coarse in pairwise(_WIDTHS)
        )
        self.head = head((128, 128), config.num_classes, 0.0, _SLOPE)

    def network(self, clouds: Clouds, x: Tensor) -> Output:
        """The features of a cell are those of all points in it."""
        levels, found = self.descend(clouds, x)
        x = found.pop()
        while found:
            up = self.ups[len(found) - 1]
            x = up(torch.cat((x[levels[len(found)].of_finer], found.pop()), dim=-1))
        return Output(self.head(x)[levels[0].of_finer])
