"""Blocks: nearby points together, so that sparse sums become small dense matrix products.

Points are sorted along a Morton curve (`curve`). Which cells become blocks is decided by price: a
cell is taken whole when that is cheaper than its children together, so that dense places get
small blocks, sparse regions large ones, and there is no cell size to choose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from veckm.engines.curve import Curve, compact, interleave
from veckm.parallel import one_thread

Members = list[tuple[int, slice]]  # blocks, each with its sorted rows
Group = tuple[slice, Members]  # a run of sorted rows and the blocks in it
Price = Callable[[Tensor, Tensor], Tensor]  # sides (K, D_in), count (K,) -> seconds (K,)

#: Rows that are worked on at once: with D = 256 they and their encodings stay in the L2 cache.
_ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class Blocks:
    """A partition of points into blocks. Points are in sorted order unless noted."""

    order: Tensor  # (N,) int64: sorted row -> the caller's row
    local: Tensor  # (N, D_in) coordinates about the center of the point's block
    center: Tensor  # (K, D_in) float64
    low: Tensor  # (K, D_in) the tight box of each block, about the cloud's origin
    high: Tensor  # (K, D_in)
    count: Tensor  # (K,) int64
    cloud: Tensor  # (K,) int64
    seconds: float  # what the chosen blocks are expected to cost

    @cached_property
    def of_row(self) -> Tensor:
        """(N,) int64: the block of each sorted row."""
        index = torch.arange(len(self.count), device=self.count.device)
        return torch.repeat_interleave(index, self.count)

    @cached_property
    def groups(self) -> list[Group]:
        """Runs of whole blocks of one cloud, of about `_ROWS_AT_ONCE` rows."""
        out: list[Group] = []
        first, i, cloud = 0, 0, self.cloud.tolist()
        for k, n in enumerate(self.count.tolist()):
            if not out or i + n - first > _ROWS_AT_ONCE or cloud[k] != cloud[k - 1]:
                first = i
                out.append((slice(i, i), []))
            members = out[-1][1]
            members.append((k, slice(i, i + n)))
            i += n
            out[-1] = slice(first, i), members
        return out

    @cached_property
    def groups_of_clouds(self) -> dict[int, list[Group]]:
        """The groups of each cloud that has points."""
        out: dict[int, list[Group]] = {}
        cloud = self.cloud.tolist()
        for group in self.groups:
            out.setdefault(cloud[group[1][0][0]], []).append(group)
        return out

    @property
    def mean_diagonal(self) -> float:
        """Of the boxes of the blocks, each as often as it has points."""
        diagonal = torch.linalg.vector_norm((self.high - self.low).double(), dim=1)
        return float((diagonal * self.count).sum() / self.count.sum().clamp_min(1))

    @property
    def largest_group(self) -> int:
        return max((rows.stop - rows.start for rows, _ in self.groups), default=0)


@one_thread()
def octree(curve: Curve, cell: float, price: Price) -> Blocks:
    """The cheapest blocks among the cells of an octree over each cloud, of side `cell` or more."""
    key, levels = curve.coarsened(cell)
    x = curve.pos
    start, count, low, high, seconds = _partition(key, x, levels, price)
    center = (low.double() + high.double()) / 2
    local = x - torch.repeat_interleave(center, count, dim=0).to(x.dtype)
    # Exactly the center that was subtracted, so that phases can be made whole again.
    center = center.to(x.dtype).double()
    return Blocks(curve.order, local, center, low, high, count, curve.cloud[start], seconds)


@one_thread()
def anchored(
    x: Tensor,  # (N, D_in) float64
    cell: float,  # side of the smallest cell
    levels: int,
    price: Price,
) -> Blocks:
    """The cheapest blocks within each cell of a fixed grid of side 2^levels `cell` about zero.

    They depend on the points of that cell only: a part of a cloud has the blocks of the whole.
    """
    in_dim = x.shape[1]
    index = torch.floor(x / cell).long()
    root = compact(index >> levels, gap=2)  # empty space between is left out
    bits = max(1, int(root.max()).bit_length())
    if (bits + levels) * in_dim > 62:
        raise OverflowError(f"a grid of side {cell * 2**levels:g} has too many cells")
    key = interleave((root << levels) | (index & ((1 << levels) - 1)), bits + levels)
    key, order = torch.sort(key)
    x = x[order]
    _, count, low, high, seconds = _partition(key, x, levels, price)
    center = (low + high) / 2
    local = (x - torch.repeat_interleave(center, count, dim=0)).float()
    return Blocks(order, local, center, low, high, count, torch.zeros_like(count), seconds)


@dataclass(frozen=True)
class _Level:
    """All occupied cells of one size."""

    count: Tensor  # (K,) points in the cell
    low: Tensor  # (K, D_in) tight box
    high: Tensor  # (K, D_in)
    children: Tensor | None  # (K,) how many cells of the finer level; None at the finest
    whole: Tensor  # (K,) bool: cheaper as one block than as its children
    best: Tensor  # (K,) seconds


def _levels(key: Tensor, x: Tensor, levels: int, price: Price) -> Iterator[_Level]:
    """The levels of the tree from the finest up, each with the best price of its cells."""
    cells, count = torch.unique_consecutive(key, return_counts=True)
    low, high = _reduce(x, count, "min"), _reduce(x, count, "max")
    best = price(high - low, count)
    yield _Level(count, low, high, None, torch.ones_like(count, dtype=torch.bool), best)
    for _ in range(levels):
        cells, children = torch.unique_consecutive(cells >> x.shape[1], return_counts=True)
        count = _reduce(count.double(), children, "sum").long()
        low, high = _reduce(low, children, "min"), _reduce(high, children, "max")
        own, split = price(high - low, count), _reduce(best, children, "sum")
        best = torch.minimum(own, split)
        yield _Level(count, low, high, children, own <= split, best)


def _partition(
    key: Tensor, x: Tensor, levels: int, price: Price
) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """The cheapest blocks of sorted points: start, count, low, high in order, and the seconds."""
    tree, chosen = list(_levels(key, x, levels, price)), []
    alive = torch.ones_like(tree[-1].whole)
    for level in reversed(tree):
        start = torch.cumsum(level.count, 0) - level.count
        pick = alive & level.whole
        chosen.append((start[pick], level.count[pick], level.low[pick], level.high[pick]))
        if level.children is not None:
            alive = torch.repeat_interleave(alive & ~level.whole, level.children)
    start, count, low, high = (torch.cat(parts) for parts in zip(*chosen, strict=True))
    rank = torch.argsort(start)
    seconds = float(tree[-1].best.sum())
    return start[rank], count[rank], low[rank], high[rank], seconds


def _reduce(values: Tensor, lengths: Tensor, how: str) -> Tensor:
    return torch.segment_reduce(values, how, lengths=lengths, axis=0, unsafe=True)


def boxes(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Every integer vector in each of K boxes, (K, D), ends included: box (T,), vector (T, D)."""
    size = (high - low + 1).clamp_(min=0)  # (K, D)
    total = size.prod(1)  # (K,)
    box = torch.repeat_interleave(torch.arange(len(low), device=low.device), total)
    rest = torch.arange(len(box), device=low.device) - (
        torch.cumsum(total, 0) - total
    ).index_select(0, box)
    vector = torch.empty(len(box), low.shape[1], dtype=torch.int64, device=low.device)
    for axis in range(low.shape[1] - 1, -1, -1):
        n = size[:, axis].index_select(0, box)
        vector[:, axis] = rest % n
        rest = torch.div(rest, n, rounding_mode="floor")
    return box, vector.add_(low.index_select(0, box))


def grown_volume(sides: Tensor, radius: float) -> Tensor:  # (K, D) -> (K,) float64
    """Volume of boxes grown by a ball: sum_k e_k(sides) omega_(D-k) r^(D-k), Steiner's formula.

    e_k are the elementary symmetric polynomials, omega_j is the volume of the unit ball in R^j.
    """
    in_dim = sides.shape[1]
    symmetric = torch.zeros(in_dim + 1, len(sides), dtype=torch.float64, device=sides.device)
    symmetric[0] = 1
    for side in sides.double().unbind(1):
        symmetric[1:] += symmetric[:-1] * side
    for k, e in enumerate(symmetric):
        j = in_dim - k
        e *= math.pi ** (j / 2) / math.gamma(j / 2 + 1) * radius**j
    return symmetric.sum(0)


def within(own: slice, rows: slice) -> slice:
    """The rows of a block inside those of its group."""
    return slice(own.start - rows.start, own.stop - rows.start)
