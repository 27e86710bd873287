"""The encoders that Table 1 of the VecKM paper compares with: PointNet, KPConv and DGCNN.

Each follows its own paper, with the layers of :mod:`veckm.models` and the sizes of the VecKM
authors' experiment. All find their neighbors with a k-d tree where the space has three dimensions,
so none pays for N^2 distances that a user would not pay for either.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from scipy.spatial import cKDTree
from torch import Tensor, nn

from experiments.networks.dgcnn import EdgeConv
from experiments.networks.kpconv import kernel_sums, kernel_weights
from experiments.table1.paper import LocalEncoder
from veckm.data.sampling import directions, make_generator, uniform
from veckm.models.clouds import Clouds
from veckm.models.fused import mlp_maxpool
from veckm.models.layers import LinearBN, mlp

_SLOPE = 0.2  # of DGCNN's leaky ReLU


class PointNet(LocalEncoder):
    r"""PointNet on the K nearest neighbors of every point.

    .. math:: f_i = \max_{j \in N_K(i)} \mathrm{MLP}(x_j - x_i)

    `PointNet <https://arxiv.org/abs/1612.00593>`_ (Qi et al., CVPR 2017) without its transforms,
    as in Section 4.1 of the VecKM paper: (N, K, 3) to (N, K, C), then the maximum.

    Args:
        k: K, the point itself among them; a smaller cloud is taken whole.
        channels: sizes of the layers, C the last.
        chunk: points at a time when it does not train, for each holds K * C numbers.

    Shapes:
        - pos: (N, 3) in the unit ball
        - output: (M, C)
    """

    def __init__(
        self, k: int = 300, channels: tuple[int, ...] = (64, 128, 1024), chunk: int = 16
    ) -> None:
        super().__init__()
        self.k, self.chunk, self.dim = _at_least("k", k, 1), chunk, channels[-1]
        self.layers = mlp((3, *channels))

    def gather(self, pos: Tensor, at: Tensor) -> Tensor:  # (M, K, 3)
        """Where the neighbors are, seen from each point."""
        return torch.cat(list(patches(pos, at, self.k, len(at))))

    def features(self, gathered: Tensor) -> Tensor:  # (M, C)
        """The maximum over the neighbors of what the layers make of each."""
        return mlp_maxpool(self.layers, gathered)

    def forward(self, pos: Tensor, at: Tensor | None = None) -> Tensor:  # (M, C)
        """The feature vector of every point, or of the rows ``at``, a chunk at a time."""
        if self.training:  # the batch norm is to see all points at once
            return super().forward(pos, at)
        rows = torch.arange(len(pos), device=pos.device) if at is None else at
        return torch.cat([self.features(p) for p in patches(pos, rows, self.k, self.chunk)])


class KPConv(LocalEncoder):
    r"""One rigid kernel point convolution at every point, and a layer after it.

    .. math:: f_i = \sum_p W_p \frac1K \sum_{j \in N_K(i)}
              \max\Big(0, 1 - \frac{|z_{ij} - c_p|}{\sigma}\Big) (1, z_{ij}), \qquad
              z_{ij} = \frac{x_j - x_i}{r}

    `KPConv <https://arxiv.org/abs/1904.08889>`_ (Thomas et al., ICCV 2019): kernel points c_p
    spread over the ball of radius r, the first in the middle, each felt within sigma, the
    distance to the next one. The points carry no features, so they enter as 1 and their place.
    A rigid kernel has no parameters before the W, so all sums belong to ``gather``.

    Args:
        kernel_points: how many.
        k: K, neighbors at the most.
        radius: r, in the unit ball; 700 of 100,000 points of a surface lie within about 0.1.
        channels: of the convolution and of the layer after it, C the last.

    Shapes:
        - pos: (N, 3) in the unit ball
        - output: (M, C)
    """

    kernel: Tensor  # (P, 3) in the unit ball

    def __init__(
        self,
        kernel_points: int = 64,
        k: int = 700,
        radius: float = 0.1,
        channels: tuple[int, int] = (128, 1024),
    ) -> None:
        super().__init__()
        self.k, self.radius, self.dim = _at_least("k", k, 1), radius, channels[-1]
        self.register_buffer("kernel", spread_points(kernel_points))
        apart = torch.cdist(self.kernel, self.kernel).fill_diagonal_(torch.inf)
        self.sigma = float(apart.amin(1).mean())
        self.layers = mlp((4 * kernel_points, *channels))

    def gather(self, pos: Tensor, at: Tensor) -> Tensor:  # (M, P * 4)
        """The sums at the kernel points."""
        return torch.cat([self._sums(patch) for patch in patches(pos, at, self.k, 32)])

    def _sums(
        self,
        patch: Tensor,  # (m, K, 3)
    ) -> Tensor:  # (m, P * 4)
        z = patch / self.radius
        features = torch.cat((torch.ones_like(z[..., :1]), z), dim=-1)  # (m, K, 4)
        return kernel_sums(kernel_weights(z, self.kernel, self.sigma), features) / z.shape[1]

    def features(self, gathered: Tensor) -> Tensor:  # (M, C)
        """The weights W of the convolution and the fully connected layer."""
        out: Tensor = self.layers(gathered)
        return out


class DGCNN(LocalEncoder):
    r"""Edge convolutions on a graph that is found anew, among the features, before each.

    .. math:: f_i' = \max_{j \in N_K(f_i)} \mathrm{LReLU}(\mathrm{BN}(
              \Theta (f_j - f_i) + \Phi f_i))

    `DGCNN <https://arxiv.org/abs/1801.07829>`_ (Wang et al., TOG 2019): four of them, of 64, 64,
    128 and 256 channels, then one layer on all four results. The search among features is by
    brute force, so the cloud is thinned to ``points`` at a time, as the VecKM authors do; a call
    for more points is split over several disjoint graphs.

    Args:
        k: K, the point itself among them.
        points: of one graph.
        channels: of the edge convolutions.
        dim: C, of the layer after them.

    Shapes:
        - pos: (N, 3) in the unit ball
        - output: (M, C)
    """

    def __init__(
        self,
        k: int = 128,
        points: int = 10_000,
        channels: tuple[int, ...] = (64, 64, 128, 256),
        dim: int = 1024,
    ) -> None:
        super().__init__()
        self.k, self.points, self.dim = _at_least("k", k, 1), _at_least("points", points, 1), dim
        sizes = zip((3, *channels), channels, strict=False)
        self.edges = nn.ModuleList(EdgeConv(wide, (narrow,)) for wide, narrow in sizes)
        self.last = LinearBN(sum(channels), dim, _SLOPE)

    def gather(self, pos: Tensor, at: Tensor) -> Tensor:  # (max(M, P), 3)
        """The rows ``at``, then random others until the graph has ``points`` of them."""
        rest = torch.ones(len(pos), dtype=torch.bool, device=pos.device)
        rest[at] = False
        others = rest.nonzero().squeeze(1)
        others = others[_shuffle(len(others)).to(pos.device)]
        return torch.cat((pos[at], pos[others[: max(0, self.points - len(at))]]))

    def features(self, gathered: Tensor) -> Tensor:  # (P, C)
        """The features of all points of the graph."""
        x, found = gathered, []
        cloud = Clouds(gathered, (len(gathered),))
        for edge in self.edges:
            x = edge(x, cloud.knn(self.k, among=x))
            found.append(x)
        out: Tensor = self.last(torch.cat(found, dim=-1))
        return out

    def forward(self, pos: Tensor, at: Tensor | None = None) -> Tensor:  # (M, C)
        """The feature vector of every point, or of the rows ``at``, a graph at a time."""
        rows = torch.arange(len(pos), device=pos.device) if at is None else at
        order = _shuffle(len(rows)).to(pos.device)
        parts = order.split(self.points)
        out = [self.features(self.gather(pos, rows[part]))[: len(part)] for part in parts]
        return torch.cat(out)[order.argsort()]


def patches(
    pos: Tensor,  # (N, 3)
    at: Tensor,  # (M,) int64
    k: int,
    chunk: int,
) -> Iterator[Tensor]:  # (m, K, 3)
    """The offsets x_j - x_i of the K nearest neighbors of the rows ``at``, a chunk at a time."""
    k = min(k, len(pos))
    x = pos.detach().cpu().numpy()
    tree = cKDTree(x)
    for rows in at.split(max(1, chunk)):
        index = tree.query(x[rows.cpu().numpy()], k=k, workers=torch.get_num_threads())[1]
        near = torch.from_numpy(index.reshape(len(rows), k)).to(pos.device)
        yield pos[near] - pos[rows].unsqueeze(1)


def spread_points(count: int) -> Tensor:  # (count, 3)
    """Points spread evenly over the unit ball, the first at its center: Lloyd's iteration.

    Each moves to the middle of what is nearest to it. Always the same points for a count.
    """
    _at_least("kernel_points", count, 2)
    generator, n = make_generator(0), max(4000, 50 * count)
    ball = (directions(generator, n) * uniform(generator, n, 1) ** (1 / 3)).float()
    center = ball[:count].clone()
    for _ in range(60):
        center[0] = 0
        owner = torch.cdist(ball, center).argmin(1)
        total = torch.zeros_like(center).index_add_(0, owner, ball)
        center = total / torch.bincount(owner, minlength=count).clamp_min(1).unsqueeze(1)
    center[0] = 0
    return center


def _shuffle(n: int) -> Tensor:
    """A fixed random order, so that thinning a sorted cloud is no cut through it."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))


def _at_least(name: str, value: int, least: int) -> int:
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return value
