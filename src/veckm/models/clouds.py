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
from veckm.models import ops


@dataclass(frozen=True, eq=False)
class Clouds:
    """Points of one or more clouds.

    Attributes:
        pos: (N, 3), cloud after cloud.
        sizes: points of each cloud, at least one.
    """

    pos: Tensor
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, pos: Tensor, batch: Tensor | None = None, *, validate: bool = True) -> Clouds:
        """The clouds of ``pos`` (B, N, 3), or (N, 3) with ``batch`` (N,) ascending, or (N, 3)."""
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
        return torch.tensor(
            [0, *accumulate(self.sizes[:-1])], dtype=torch.int64, device=self.pos.device
        )

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

    def sample(self, count: Callable[[int], int]) -> tuple[Tensor, Clouds]:  # (M,), clouds of M
        """Rows of farthest points, ``count(n)`` of a cloud of n points, and the clouds of these."""
        sizes = tuple(map(count, self.sizes))
        if self.uniform:
            picks = ops.farthest_points(self.dense(self.pos), sizes[0], validate=False)
            rows = (picks + self.starts[:, None]).flatten()
        else:
            picked = zip(self.pos.split(self.sizes), sizes, strict=True)
            found = [ops.farthest_points(pos[None], n, validate=False)[0] for pos, n in picked]
            rows = torch.cat([f + s for f, s in zip(found, self.starts, strict=True)])
        return rows, Clouds(ops.gather(self.pos, rows), sizes)

    def knn(
        self, k: int, queries: Clouds | None = None, among: Tensor | None = None
    ) -> Tensor:  # (M, K)
        """Rows of the ``k`` points nearest to every query, the nearest first.

        A cloud with fewer points repeats its nearest one; where none has ``k``, K is the most that
        any has. See :meth:`valid`.

        Args:
            k: neighbors.
            queries: clouds whose points ask; these clouds themselves if None.
            among: (N, D) features to measure distances in instead of the positions.
        """
        x = self.pos if among is None else among.to(torch.promote_types(among.dtype, torch.float32))
        asked = (self, x) if queries is None else (queries, queries.pos)

        def search(points: Tensor, queries: Tensor) -> Tensor:
            return ops.knn(points, queries, min(k, points.shape[1]), validate=False)

        return self._rows(search, x, *asked)

    def ball(self, radius: float, k: int, queries: Clouds) -> Tensor:  # (M, k)
        """Rows of up to ``k`` points in a ball around every query, as ``ops.ball_query``."""

        def search(points: Tensor, queries: Tensor) -> Tensor:
            return ops.ball_query(points, queries, radius, k, validate=False)

        return self._rows(search, self.pos, queries, queries.pos)

    def group(self, x: Tensor, centers: Clouds, near: Tensor) -> Tensor:  # (M, K, 3 + C)
        """(x_j - x_i, f_j) of every neighbor j in ``near`` (M, K) of every center i."""
        offset = ops.gather(self.pos, near) - centers.pos[:, None]
        return torch.cat((offset, ops.gather(x, near)), dim=-1)

    def valid(self, k: int, queries: Clouds | None = None) -> Tensor | None:  # (M, K) bool
        """Which of K neighbors are no repetitions, for every query; None where all are valid."""
        if min(self.sizes) >= k:
            return None
        size = torch.tensor(self.sizes, device=self.pos.device)[(queries or self).batch]
        return torch.arange(k, device=size.device) < size[:, None]

    def interpolate(self, x: Tensor, queries: Clouds) -> Tensor:  # (N, C) -> (M, C)
        """Features of these points at the queries: :func:`veckm.models.ops.interpolate`."""

        def carry(x: Tensor, points: Tensor, queries: Tensor) -> Tensor:
            return ops.interpolate(x, points, queries, validate=False).flatten(0, 1)

        return per_cloud(carry, (self, x), (self, self.pos), (queries, queries.pos))

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

    def _rows(
        self,
        search: Callable[[Tensor, Tensor], Tensor],
        x: Tensor,  # (N, D)
        queries: Clouds,
        q: Tensor,  # (M, D)
    ) -> Tensor:  # (M, K)
        """What a search finds in each cloud, as rows of all clouds."""
        if self.uniform and queries.uniform:
            near = search(self.dense(x), queries.dense(q))  # (B, M / B, K)
            return (near + self.starts[:, None, None]).flatten(0, 1)
        pairs = zip(x.split(self.sizes), q.split(queries.sizes), self.starts, strict=True)
        found = [search(a[None], b[None])[0] + start for a, b, start in pairs]
        most = max(part.shape[1] for part in found)
        repeats = [part[:, :1].expand(-1, most - part.shape[1]) for part in found]
        return torch.cat([torch.cat(both, 1) for both in zip(found, repeats, strict=True)])


def per_cloud(fn: Callable[..., Tensor], *values: tuple[Clouds, Tensor]) -> Tensor:
    """``fn`` on dense batches (B, N, ...): all clouds at once, or each as a batch of one.

    The results are joined along their first dimension.
    """
    if all(clouds.uniform for clouds, _ in values):
        return fn(*(clouds.dense(x) for clouds, x in values))
    split = (x.split(clouds.sizes) for clouds, x in values)
    return torch.cat([fn(*(part[None] for part in parts)) for parts in zip(*split, strict=True)])
