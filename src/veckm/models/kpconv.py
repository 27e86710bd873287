"""KPConv: convolutions whose weights sit at points in space; VecKM in front."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from veckm.models import ops
from veckm.models.base import PointModel
from veckm.models.encoding import Encoding, EncodingSettings
from veckm.models.layers import Dense, Norm, activate

_SLOPE = 0.1
_KERNEL = 15  # kernel points
_LEVELS = 5
#: Numbers (row, neighbor or kernel point, channel) held at a time when nothing is learned.
_HELD = 1 << 25


@dataclass(frozen=True)
class Graph:
    """Who sees whom between two sets of points, and how much of it each kernel point feels."""

    near: Tensor  # (M, K) int64
    weight: Tensor  # (M, K, P)


@dataclass(frozen=True)
class Level:
    """One set of points, of all clouds of the batch."""

    pos: Tensor  # (N, 3)
    batch: Tensor  # (N,)
    of_finer: Tensor  # (points of the finer level,) the row here that each of them went into
    within: Graph  # from this level to itself
    strided: Graph | None  # from the finer level to this one


def kernel_points(count: int = _KERNEL) -> Tensor:  # (P, 3)
    """One point in the middle and the others apart from each other on the unit sphere.

    Section 3.1 of the KPConv paper places them by repulsion and attraction; for 15 the result is
    a shell around the middle. Here they start on a spiral and only repel.
    """
    i = torch.arange(count - 1, dtype=torch.float64)
    z = 1 - (2 * i + 1) / (count - 1)
    turn = i * math.pi * (3 - math.sqrt(5))
    flat = (1 - z.square()).sqrt()
    x = torch.stack((flat * turn.cos(), flat * turn.sin(), z), dim=1)
    for _ in range(200):
        away = x[:, None] - x
        apart = away.square().sum(-1, keepdim=True)
        push = torch.where(apart > 0, away / apart.clamp_min(1e-12).pow(1.5), 0.0)
        x = nn.functional.normalize(x + 0.02 * push.sum(1), dim=1)
    return torch.cat((x.new_zeros(1, 3), x)).float()


class KernelConv(nn.Module):
    r"""The rigid kernel point convolution.

    .. math:: f_i' = \sum_p W_p \sum_{|x_j - x_i| \le r}
              \max\Big(0, 1 - \frac{|x_j - x_i - c_p|}{\sigma}\Big) f_j

    Equation 1 to 3 of the KPConv paper. All layers have the same kernel points, so the weights
    are those of the :class:`Graph` and are computed once for each level.

    Shapes:
        - x: (N, C_in)
        - output: (M, C_out)
    """

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(_KERNEL * channels, out, bias=False)  # all W_p side by side

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """The sums at the kernel points, then their weights."""
        if torch.is_grad_enabled():
            return self._rows(x, graph.near, graph.weight)
        held = x.shape[1] * max(graph.near.shape[1], _KERNEL)
        rows = max(1, _HELD // held)
        cut = zip(graph.near.split(rows), graph.weight.split(rows), strict=True)
        return torch.cat([self._rows(x, near, weight) for near, weight in cut])

    def _rows(self, x: Tensor, near: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = self.linear((weight.mT @ ops.gather(x, near)).flatten(1))
        return out


class Bottleneck(nn.Module):
    """A quarter of the channels, the convolution, all channels again, around a shortcut.

    Shapes:
        - x: (N, C_in)
        - output: (M, C_out)
    """

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.before = Dense(channels, out // 4, _SLOPE)
        self.conv = KernelConv(out // 4, out // 4)
        self.norm = Norm(out // 4)
        self.after = Dense(out // 4, out, slope=1)
        self.shortcut = Dense(channels, out, slope=1) if channels != out else None

    def forward(self, x: Tensor, graph: Graph, strided: bool = False) -> Tensor:
        """On the same points, or from a finer level to a coarser one."""
        y = activate(self.norm(self.conv(self.before(x), graph)), _SLOPE)
        if strided:
            x = _highest(x, graph.near)
        own = x if self.shortcut is None else self.shortcut(x)
        return activate(self.after(y) + own, _SLOPE)


def _highest(x: Tensor, near: Tensor) -> Tensor:  # (N, C), (M, K) -> (M, C)
    """The maximum over the neighbors."""
    rows = len(near) if torch.is_grad_enabled() else max(1, _HELD // (x.shape[1] * near.shape[1]))
    return torch.cat([ops.gather(x, part).amax(1) for part in near.split(max(1, rows))])


class KPConv(PointModel):
    """The way down: five levels of a grid, each twice as coarse, of 128 to 2048 channels.

    `KPConv <https://arxiv.org/abs/1904.08889>`_ (Thomas et al., ICCV 2019), rigid, with its
    numbers: 15 kernel points at 1.5 sigma, sigma the side of a cell, radius 2.5 sigma, two blocks
    a level, of which the first is strided. The points come in with the feature 1, then their
    features and, with ``encoding``, those of VecKM.

    Args:
        num_classes: logits.
        in_channels: channels of ``features``.
        num_categories: of objects; 0 here.
        encoding: sizes of VecKM in front; none for plain KPConv.
        size: side of the cells of the first level, in the units of ``pos``.
        neighbors: at the most, for one convolution.
    """

    kernel: Tensor  # (P, 3)

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 0,
        num_categories: int = 0,
        encoding: EncodingSettings | None = None,
        *,
        size: float,
        neighbors: int = 32,
    ) -> None:
        super().__init__(num_classes, in_channels, num_categories)
        self.size, self.neighbors = size, neighbors
        self.encoding = None if encoding is None else Encoding(encoding, validate=False)
        wide = 1 + in_channels + (0 if encoding is None else encoding.channels)
        self.register_buffer("kernel", kernel_points(), persistent=False)
        self.first = KernelConv(wide, 64)
        self.norm = Norm(64)
        widths = [128 * 2**i for i in range(_LEVELS)]
        self.strided = nn.ModuleList(Bottleneck(c, c) for c in widths[:-1])
        self.blocks = nn.ModuleList(Bottleneck(c, out) for c, out in pairwise([64, *widths]))

    def descend(self, pos: Tensor, features: Tensor) -> tuple[list[Level], list[Tensor]]:
        """The five levels and the features (N, C) of their points, the finest first."""
        carried = [torch.ones_like(pos[..., :1]), features]
        if self.encoding is not None:
            carried.append(self.encoding(pos))
        levels = self._levels(pos)
        first = levels[0]
        x = _mean(torch.cat(carried, dim=-1).flatten(0, 1), first.of_finer, len(first.pos))
        x = activate(self.norm(self.first(x, first.within)), _SLOPE)
        x = self.blocks[0](x, first.within)
        found = [x]
        for i, level in enumerate(levels[1:]):
            x = self.strided[i](x, level.strided, strided=True)
            x = self.blocks[i + 1](x, level.within)
            found.append(x)
        return levels, found

    @torch.no_grad()
    def _levels(self, pos: Tensor) -> list[Level]:
        """Grids, neighbors and kernel weights: nothing of it is learned."""
        clouds, n, _ = pos.shape
        flat, batch = pos.reshape(-1, 3), torch.arange(clouds, device=pos.device)
        batch = batch.repeat_interleave(n)
        levels: list[Level] = []
        for i in range(_LEVELS):
            size = self.size * 2**i
            at, cloud, of_finer = ops.grid_points(flat, size, batch, validate=False)
            within = self._graph(at, cloud, at, cloud, size)
            strided = self._graph(flat, batch, at, cloud, size / 2) if i else None
            levels.append(Level(at, cloud, of_finer, within, strided))
            flat, batch = at, cloud
        return levels

    def _graph(
        self, points: Tensor, batch: Tensor, queries: Tensor, query_batch: Tensor, sigma: float
    ) -> Graph:
        near = ops.ball_query(
            points, queries, 2.5 * sigma, self.neighbors, batch, query_batch, validate=False
        )
        kernel = self.kernel.to(points) * (1.5 * sigma)
        weight = points.new_empty(*near.shape, len(kernel))
        rows = max(1, _HELD // (near.shape[1] * len(kernel)))
        for i in range(0, len(near), rows):
            part = near[i : i + rows]
            offset = points[part] - queries[i : i + rows, None]
            apart = (offset[:, :, None] - kernel).square().sum(-1).sqrt()
            weight[i : i + rows] = (1 - apart / sigma).clamp_min(0)
            # Places that were left over hold the nearest point again: it counts once.
            weight[i : i + rows, 1:] *= (part[:, 1:] != part[:, :1])[..., None]
        return Graph(near, weight)


def _mean(x: Tensor, into: Tensor, rows: int) -> Tensor:  # (N, C), (N,) -> (rows, C)
    """The mean of the rows that go to the same place."""
    total = x.new_zeros(rows, x.shape[1]).index_add(0, into, x)
    return total / torch.bincount(into, minlength=rows)[:, None].to(x)


class KPConvClassifier(KPConv):
    """One answer for each cloud: the mean of the coarsest level, 1024 channels, the classes.

    The paper's cells of 0.02 are for the 6,800 points that they leave of a shape in the unit ball;
    the default of 0.05 keeps the same number of points to a cell for shapes of 1,024 points.

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
        size: float = 0.05,
        neighbors: int = 32,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(
            num_classes, in_channels, num_categories, encoding, size=size, neighbors=neighbors
        )
        self.answer = nn.Sequential(
            Dense(2048, 1024, _SLOPE), nn.Dropout(dropout), nn.Linear(1024, num_classes)
        )

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """From the mean of the coarsest level."""
        levels, found = self.descend(pos, features)
        out: Tensor = self.answer(_mean(found[-1], levels[-1].batch, len(pos)))
        return out


class KPConvScenes(KPConv):
    """One answer for each point of a scene: down five levels and up again by the nearest point.

    Shapes:
        - pos: (B, N, 3) in meters
        - output: (B, N, num_classes)
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 0,
        num_categories: int = 0,
        encoding: EncodingSettings | None = None,
        *,
        size: float = 0.04,
        neighbors: int = 32,
    ) -> None:
        super().__init__(
            num_classes, in_channels, num_categories, encoding, size=size, neighbors=neighbors
        )
        widths = [128 * 2**i for i in range(_LEVELS)]
        self.ups = nn.ModuleList(
            Dense(coarse + fine, fine, _SLOPE) for fine, coarse in pairwise(widths)
        )
        self.answer = nn.Sequential(Dense(128, 128, _SLOPE), nn.Linear(128, num_classes))

    def logits(self, pos: Tensor, features: Tensor, category: Tensor) -> Tensor:  # noqa: ARG002
        """The features of a cell are those of all points in it."""
        levels, found = self.descend(pos, features)
        x = found.pop()
        while found:
            up = self.ups[len(found) - 1]
            x = up(torch.cat((x[levels[len(found)].of_finer], found.pop()), dim=-1))
        out: Tensor = self.answer(x)[levels[0].of_finer].view(*pos.shape[:2], -1)
        return out
