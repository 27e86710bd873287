"""The input of every engine: points and queries of one or more clouds, and the window.

Checked and centered before it comes here (`veckm.inputs`). What is derived from the positions and
not from the window, such as the order along a space-filling curve, is kept with the points, so that
several scales share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

import torch
from torch import Tensor

from veckm.engines.curve import Curve
from veckm.engines.windows import Window


@dataclass(frozen=True, eq=False)
class Points:
    """Points of one or more clouds, each cloud about its own origin."""

    pos: Tensor  # (N, D_in), or (B, N, D_in) for clouds of one size
    batch: Tensor | None = None  # (N,) int64 ascending, with (N, D_in)
    curves: list[Curve] = field(default_factory=list)  # filled on demand

    @property
    def lead(self) -> tuple[int, ...]:
        """The shape of the caller's tensor without D_in."""
        return tuple(self.pos.shape[:-1])

    @property
    def in_dim(self) -> int:
        return self.pos.shape[-1]

    @property
    def flat(self) -> Tensor:
        """(N, D_in): all clouds one after the other. Not kept: made without grad it has none."""
        return self.pos.reshape(-1, self.in_dim)

    def __len__(self) -> int:
        return math.prod(self.pos.shape[:-1])

    @cached_property
    def cloud(self) -> Tensor:
        """(N,) int64 ascending: the cloud of each point."""
        if self.batch is not None:
            return self.batch
        if self.pos.dim() == 2:
            return torch.zeros(len(self), dtype=torch.int64, device=self.pos.device)
        index = torch.arange(self.pos.shape[0], device=self.pos.device)
        return index.repeat_interleave(self.pos.shape[1])

    @cached_property
    def counts(self) -> list[int]:
        """Points of each cloud."""
        if self.batch is not None:
            return torch.bincount(self.batch).tolist() if len(self) else []
        return [len(self)] if self.pos.dim() == 2 else [self.pos.shape[1]] * self.pos.shape[0]

    def curve(self, cell: float) -> Curve:
        """The points along a Morton curve with cells of side `cell` or finer."""
        for known in self.curves:
            if known.cell <= cell:
                return known
        self.curves.append(Curve.through(self.flat.detach(), self.cloud, cell))
        return self.curves[-1]


@dataclass(frozen=True, eq=False)
class Geometry:
    """What defines the operator K[q, j] = w(x_j - q): points, queries, window, accuracy."""

    points: Points
    queries: Points  # `points` itself unless given
    window: Window
    eps: float
    B: Tensor | None = None  # (D_in, p) frequencies of Theorem 2, for the random engine
    progress: bool | None = None
    low: torch.dtype | None = None  # factors of products that eps allows to be rounded; None: none

    @property
    def same(self) -> bool:
        """Whether the queries are the points: engines then plan and sort once."""
        return self.queries is self.points

    @property
    def in_dim(self) -> int:
        return self.points.in_dim

    @property
    def dtype(self) -> torch.dtype:
        return self.points.pos.dtype

    @property
    def device(self) -> torch.device:
        return self.points.pos.device

    @cached_property
    def pairs(self) -> float:
        """Points times queries, cloud by cloud."""
        counts = zip(self.points.counts, self.queries.counts, strict=False)
        return float(sum(n * m for n, m in counts))

    def clouds(self) -> Iterator[tuple[slice, slice]]:
        """The rows of the points and of the queries of every cloud; either may be none."""
        i = j = 0
        for n, m in zip_longest(self.points.counts, self.queries.counts, fillvalue=0):
            yield slice(i, i + n), slice(j, j + m)
            i, j = i + n, j + m

    @property
    def size(self) -> int:
        """Points and queries together."""
        return len(self.points) + len(self.queries)

    def label(self, what: str) -> str | None:
        """The name of a progress bar; none where the caller wants none."""
        return None if self.progress is False else what

    @cached_property
    def swapped(self) -> Geometry:
        """Points and queries exchanged: the geometry of the transposed operator."""
        if self.same:
            return self
        return replace(self, points=self.queries, queries=self.points)
