"""The clouds of a batch as rows: all points one after the other, whatever the cloud.

Networks hold features as (N, C), with N the points of all clouds together. Layers that treat points
alike see rows, so that the statistics of batch norms are over all points. What concerns a cloud
(neighbors, samples, maxima) goes through :class:`Clouds`. Where all clouds have the same size,
this is one batched operation, else one per cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from veckm import inputs
from veckm.models.sampling import farthest_points
from veckm.models.search import first_within, nearest
from veckm.parallel import one_thread

#: Added to squared distances, so that a query on a point takes that point's values.
_EPS = 1e-8


@dataclass(frozen=True, eq=False)
class Clouds:
    """Points of one or more clouds; ``Clouds.of(pos)`` checks them.

    Neighbors and samples are rows, numbers of points among all N, for :func:`gather`. They have no
    gradient; gather the coordinates and subtract where one is wanted.

    Attributes:
        pos: (N, 3), cloud after cloud.
        sizes: points of each cloud, at least one.
    """

    pos: Tensor
    sizes: tuple[int, ...]

    @classmethod
    @one_thread()
    def of(cls, pos: Tensor, batch: Tensor | None = None, *, validate: bool = True) -> Clouds:
        """The clouds of ``pos`` (B, N, 3), or (N, 3) with ``batch`` (N,) ascending, or (N, 3).

        ``validate=False`` skips the check for finite values; shapes are always checked.
        """
        inputs.check_points(pos, "pos", values=validate)
        if pos.shape[-1] != 3 or not pos.numel():
            raise ValueError(
                "pos must be clouds of shape (B, N, 3), or (N, 3), with at least one point, got "
                f"{tuple(pos.shape)}"
            )
        points = inputs.as_points(pos, batch, "pos", validate)
        if 0 in points.counts:
            raise ValueError(
                f"cloud {points.counts.index(0)} of batch has no points; number the clouds from 0 "
                "without gaps"
            )
        return cls(points.flat, tuple(points.counts))

    @cached_property
    def uniform(self) -> bool:
        """Whether all clouds have the same size."""
        return len(set(self.sizes)) == 1

    @cached_property
    def starts(self) -> Tensor:  # (B,) int64
        """The row where each cloud starts."""
        return torch.tensor([0, *accumulate(self.sizes[:-1])], device=self.pos.device)

    @cached_property
    def batch(self) -> Tensor:  # (N,) int64
        """The cloud of every point."""
        sizes = torch.tensor(self.sizes, device=self.pos.device)
        return torch.arange(len(sizes), device=self.pos.device).repeat_interleave(sizes)

    def dense(self, x: Tensor) -> Tensor:  # (N, ...) -> (B, N / B, ...)
        """Rows of clouds of the same size as a dense batch."""
        return x.view(len(self.sizes), self.sizes[0], *x.shape[1:])

    def max(self, x: Tensor) -> Tensor:  # (N, C) -> (B, C)
        """The maximum over the points of each cloud."""
        return per_cloud(lambda x: x.amax(1), (self, x))

    def mean(self, x: Tensor) -> Tensor:  # (N, C) -> (B, C)
        """The mean over the points of each cloud."""
        return per_cloud(lambda x: x.mean(1), (self, x))

    def repeat(self, x: Tensor) -> Tensor:  # (B, C) -> (N, C)
        """The row of its cloud for every point."""
        return x.index_select(0, self.batch)

    def add(self, x: Tensor, of_cloud: Tensor) -> Tensor:  # (N, C), (B, C) -> (N, C)
        """x plus the row of its cloud, for every point."""
        if self.uniform:  # broadcast instead of copied to the points
            return (self.dense(x) + of_cloud[:, None]).flatten(0, 1)
        return x + self.repeat(of_cloud)

    def transform(self, x: Tensor, matrix: Tensor) -> Tensor:  # (N, C), (B, C, C) -> (N, C)
        """x times the matrix of its cloud, for every point."""
        if self.uniform:
            return (self.dense(x) @ matrix).flatten(0, 1)
        return torch.cat([part @ m for part, m in zip(x.split(self.sizes), matrix, strict=True)])

    @one_thread()
    def sample(self, count: Callable[[int], int]) -> tuple[Tensor, Clouds]:  # (M,), clouds of M
        """Rows of farthest points, ``count(n)`` of a cloud of n points, and the clouds of these.

        Each is as far as possible from those before it, the first from the mean. Clouds of more
        than 8192 points are sampled chunk by chunk, in linear time.
        """
        sizes = tuple(map(count, self.sizes))
        if self.uniform:
            rows = farthest_points(self.dense(self.pos), sizes[0]) + self.starts[:, None]
        else:
            each = zip(self.pos.split(self.sizes), sizes, self.starts, strict=True)
            rows = torch.cat([farthest_points(x[None], n)[0] + start for x, n, start in each])
        return rows.flatten(), Clouds(gather(self.pos, rows.flatten()), sizes)

    @one_thread()
    def knn(
        self, k: int, queries: Clouds | None = None, among: Tensor | None = None
    ) -> Tensor:  # (M, K)
        """Rows of the ``k`` points nearest to every query, the nearest first.

        A cloud with fewer points repeats its nearest one; where none has ``k``, K is the most that
        any has. See :meth:`valid`. Which of two equally far points comes first is not defined.

        Args:
            k: neighbors.
            queries: clouds whose points ask; these clouds themselves if None.
            among: (N, D) features to measure distances in instead of the positions.
        """
        inputs.check_count(k, "k")
        x = self.pos if among is None else among.to(torch.promote_types(among.dtype, torch.float32))
        queries, q = (self, x) if queries is None else (queries, queries.pos)
        if self.uniform and queries.uniform:
            near = nearest(self.dense(x), queries.dense(q), min(k, self.sizes[0]))
            return (near + self.starts[:, None, None]).flatten(0, 1)
        pairs = zip(x.split(self.sizes), q.split(queries.sizes), self.starts, strict=True)
        found = [nearest(a[None], b[None], min(k, len(a)))[0] + start for a, b, start in pairs]
        most = max(part.shape[1] for part in found)
        return torch.cat([_widen(part, most) for part in found])

    @one_thread()
    def ball(
        self, radius: float, k: int, queries: Clouds, *, in_order: bool = False
    ) -> Tensor:  # (M, k)
        """Rows of up to ``k`` points within ``radius`` of every query, the nearest first.

        Where the ball holds fewer, the nearest point is repeated, as in PointNet++, even if it is
        outside the ball. Where it holds more, the nearest are taken: PointNet++ takes those that
        come first in memory, and so depends on the order of the points; ``in_order=True`` does so.
        """
        inputs.check_positive(radius, "radius")
        if in_order:
            x, q = self.pos.split(self.sizes), queries.pos.split(queries.sizes)
            each = zip(x, q, self.starts, strict=True)
            rows = (first_within(a[None], b[None], radius, k)[0] + start for a, b, start in each)
            return torch.cat([_widen(part, k) for part in rows])
        near, pos = self.knn(k, queries), self.pos.detach()
        squared = pos.new_empty(near.shape)
        for j, column in enumerate(near.unbind(1)):  # so that no (M, k, 3) is held
            squared[:, j] = (gather(pos, column) - queries.pos.detach()).square().sum(-1)
        return _widen(torch.where(squared <= radius**2, near, near[:, :1]), k)

    def group(self, x: Tensor, centers: Clouds, near: Tensor) -> Tensor:  # (M, K, 3 + C)
        """(x_j - x_i, f_j) of every neighbor j in ``near`` (M, K) of every center i."""
        offset = gather(self.pos, near) - centers.pos[:, None]
        return torch.cat((offset, gather(x, near)), dim=-1)

    def valid(self, k: int, queries: Clouds | None = None) -> Tensor | None:  # (M, K) bool
        """Which of K neighbors are no repetitions, for every query; None where all are valid."""
        if min(self.sizes) >= k:
            return None
        size = torch.tensor(self.sizes, device=self.pos.device)[(queries or self).batch]
        return torch.arange(k, device=size.device) < size[:, None]

    def interpolate(self, x: Tensor, queries: Clouds, k: int = 3) -> Tensor:  # (N, C) -> (M, C)
        r"""Features at the queries from the ``k`` nearest points, by inverse squared distance.

        .. math:: f(q) = \frac{\sum_j w_j f_j}{\sum_j w_j}, \qquad w_j = \frac{1}{|q - x_j|^2}

        Section 3.4 of `PointNet++ <https://arxiv.org/abs/1706.02413>`_. Clouds of fewer than ``k``
        points give them all. Gradients reach features, points and queries.
        """
        near = self.knn(k, queries).unbind(1)
        if len(near) == 1:
            return gather(x, near[0])
        # One neighbor after the other, so that no (M, k, C) is held.
        apart = [(gather(self.pos, i) - queries.pos).square().sum(-1, keepdim=True) for i in near]
        weight = torch.stack([1 / (squared + _EPS) for squared in apart])
        if (valid := self.valid(len(near), queries)) is not None:
            weight = weight * valid.t()[..., None]
        weight = weight / weight.sum(0)
        out = gather(x, near[0]) * weight[0]
        for i, w in zip(near[1:], weight[1:], strict=True):
            out = out + gather(x, i) * w
        return out

    def parts(self, most: int) -> Iterator[tuple[Clouds, slice, slice]]:
        """Runs of whole clouds with at most so many points, with their rows and their numbers."""
        first = row = 0
        while first < len(self.sizes):
            last, stop = first + 1, row + self.sizes[first]
            while last < len(self.sizes) and stop + self.sizes[last] - row <= most:
                stop += self.sizes[last]
                last += 1
            rows = slice(row, stop)
            yield Clouds(self.pos[rows], self.sizes[first:last]), rows, slice(first, last)
            first, row = last, stop


def per_cloud(fn: Callable[..., Tensor], *values: tuple[Clouds, Tensor]) -> Tensor:
    """``fn`` on dense batches (B, N, ...): all clouds at once, or each as a batch of one.

    The results are joined along their first dimension.
    """
    if all(clouds.uniform for clouds, _ in values):
        return fn(*(clouds.dense(x) for clouds, x in values))
    split = (x.split(clouds.sizes) for clouds, x in values)
    return torch.cat([fn(*(part[None] for part in parts)) for parts in zip(*split, strict=True)])


def gather(values: Tensor, index: Tensor) -> Tensor:  # (N, C), (...) int64 -> (..., C)
    """The rows of ``values`` that ``index`` names."""
    # By index_select, whose gradient is a sum; that of values[index] sorts first.
    return values.index_select(0, index.flatten()).view(*index.shape, values.shape[1])


def _widen(near: Tensor, k: int) -> Tensor:  # (M, K) -> (M, k)
    """The first neighbor repeated after the others."""
    return torch.cat((near, near[:, :1].expand(-1, k - near.shape[1])), dim=1)
