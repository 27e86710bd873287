"""The lattice of the grid engine: where its nodes are and how fine it must be for an accuracy.

A Gaussian is the convolution of two narrower ones, and the trapezoidal rule on a lattice of nodes u
computes that convolution with spectral accuracy:

    exp(-beta^2 |x - y|^2 / 2)  ~  c  sum_u s(x, u) s(y, u),     s(x, u) = exp(-beta^2 |x - u|^2)

The nodes are those of two interleaved cubic grids of spacing a (body-centered in 3D). By Poisson's
formula the sum is the kernel times 1 + sum_m exp(-pi^2 |m|^2 / (2 beta^2)) exp(i pi m.(x + y)) over
the dual lattice, whose shortest vectors are sqrt(2) / a long: the exponent of a cubic grid with
0.71 of its nodes in 3D, 0.5 in 4D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from veckm.engines.blocks import Blocks, boxes
from veckm.engines.curve import compact

#: Shortest vectors of the dual lattice {m / a: sum of m even}: how many, and (a |m|)^2.
_DUAL = {1: (2, 4.0), 2: (4, 2.0), 3: (12, 2.0), 4: (24, 2.0)}
#: Share of eps given to the quadrature (root mean square over places). Half, because where the
#: encoding itself nearly cancels (a filled volume, large alpha) the relative error is larger.
_QUADRATURE_SHARE = 0.5
#: s is cut where it falls below eps / tail. Calibrated on points that fill space, lie on surfaces
#: and in clusters: small blocks and high accuracies gain less from nodes shared with neighbors.
_TAIL = {1: 1.0, 2: 1.0, 3: 0.7}
_TAIL_BEYOND_3D = 6.0
#: Blocks narrower than this share of the reach need a cut farther out, at most by this factor of s.
_WIDE, _FARTHEST = 0.8, 2.0
#: A coarser lattice would leave points without a node in reach.
_COARSEST = 0.05


class GridTooLarge(ValueError):
    """The lattice would have too many nodes for this cloud; `auto` then tries the next engine."""


TOO_LARGE = (
    "the grid would have more nodes than can be numbered: the radius is too small for the extent "
    "of the cloud. Use engine='auto', a larger radius, or drop far outliers"
)


@dataclass(frozen=True)
class Lattice:
    """Nodes (k + p / 2) a for integer vectors k and p = 0 or (1, ..., 1); s is cut at `reach`."""

    beta: float
    spacing: float  # a
    reach: float  # from a point to the farthest node it is sure to use
    density: float  # nodes per volume, 2 / a^D_in
    scale: float  # c

    @classmethod
    def for_accuracy(cls, beta: float, eps: float, in_dim: int) -> Lattice:
        """The coarsest lattice whose mean relative error is below eps."""
        eps = min(eps, _COARSEST)
        count, squared = _DUAL.get(in_dim, (2 * in_dim * (in_dim - 1), 2.0))
        # sqrt(count) exp(-pi^2 squared / (2 (beta a)^2)) = share * eps
        decay = math.log(math.sqrt(count) / (_QUADRATURE_SHARE * eps))
        spacing = math.pi * math.sqrt(squared / (2 * decay)) / beta
        tail = _TAIL.get(in_dim, _TAIL_BEYOND_3D) * (0.01 / eps) ** (1 / 4)
        reach = math.sqrt(math.log(max(tail / eps, 2.0))) / beta
        density = 2 / spacing**in_dim
        return cls(beta, spacing, reach, density, (2 * beta**2 / math.pi) ** (in_dim / 2) / density)

    def for_blocks(self, diagonal: float) -> Lattice:
        """The same lattice with a reach that suits blocks of this size: small ones need more."""
        farther = min(max(_WIDE * self.reach / max(diagonal, 1e-30), 1.0), _FARTHEST)
        return replace(self, reach=math.sqrt(self.reach**2 + math.log(farther) / self.beta**2))


@dataclass(frozen=True)
class Nodes:
    """For each block the lattice nodes within reach of its points."""

    block: Tensor  # (T,) int64, ascending
    local: Tensor  # (T, D_in) about the center of the block
    key: Tensor  # (T, 1 + D_in) int64: cloud and doubled lattice coordinates
    count: Tensor  # (K,) int64: nodes of each block


def candidates(blocks: Blocks, lattice: Lattice) -> float:
    """How many nodes the boxes of all blocks hold: known before any is written down."""
    sides = (blocks.high - blocks.low).double() + 2 * lattice.reach
    return float((2 * (sides / lattice.spacing + 1).prod(1)).sum())


def reached_nodes(blocks: Blocks, lattice: Lattice) -> Nodes:
    """The nodes within reach of each block's box and thinnest slab: surfaces are thin patches."""
    low, high = blocks.low.double(), blocks.high.double()
    if float(torch.maximum(low.abs(), high.abs()).amax()) > lattice.spacing * 2**50:
        raise GridTooLarge(TOO_LARGE)
    normal, under, over = _slab(blocks)
    under, over = under - lattice.reach, over + lattice.reach
    ones = low.new_ones(low.shape[1])  # a product with it sums short rows fast
    parts = []
    for p in (0.0, 0.5):
        first = torch.ceil((low - lattice.reach) / lattice.spacing - p).long()
        last = torch.floor((high + lattice.reach) / lattice.spacing - p).long()
        block, k = boxes(first, last)
        u = (k.double() + p) * lattice.spacing
        gap = torch.maximum(rows(low, block) - u, u - rows(high, block)).clamp_(min=0)
        u -= rows(blocks.center, block)
        keep = gap.square_() @ ones <= lattice.reach**2
        height = (u * rows(normal, block)) @ ones
        keep &= (height >= rows(under, block)) & (height <= rows(over, block))
        kept = keep.nonzero()[:, 0]
        block, u, k = rows(block, kept), rows(u, kept), 2 * rows(k, kept) + int(2 * p)
        key = torch.cat([rows(blocks.cloud, block)[:, None], k], dim=1)
        parts.append((block, u.to(blocks.local.dtype), key))
    block, local, key = (torch.cat(both) for both in zip(*parts, strict=True))
    rank = torch.argsort(block, stable=True)
    count = torch.bincount(block, minlength=len(blocks.count))
    return Nodes(rows(block, rank), rows(local, rank), rows(key, rank), count)


def rows(table: Tensor, index: Tensor) -> Tensor:
    """table[index], several times as fast for short rows."""
    return table.index_select(0, index)


def _slab(blocks: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """The direction in which each block is thinnest, and its extent along it."""
    x = blocks.local.double()
    mean = torch.segment_reduce(x, "mean", lengths=blocks.count, axis=0)
    off = x - rows(mean, blocks.of_row)
    outer = (off[:, :, None] * off[:, None, :]).flatten(1)
    spread = torch.segment_reduce(outer, "sum", lengths=blocks.count, axis=0)
    normal = torch.linalg.eigh(spread.view(-1, x.shape[1], x.shape[1]))[1][:, :, 0]
    height = (x * rows(normal, blocks.of_row)) @ x.new_ones(x.shape[1])
    under = torch.segment_reduce(height, "min", lengths=blocks.count, axis=0)
    over = torch.segment_reduce(height, "max", lengths=blocks.count, axis=0)
    return normal, under, over


def number(keys: Tensor) -> tuple[Tensor, int]:
    """(T,) int64: the row of each node in a compact table, and the number of distinct nodes."""
    if not len(keys):
        return keys.new_zeros(0), 0
    low = keys.amin(0)
    extent = (keys.amax(0) - low + 1).tolist()
    volume = math.prod(extent)
    if volume >= 2**62:  # far outliers: count the layers that have nodes only
        keys = compact(keys, gap=1)
        low, extent = keys.amin(0), (keys.amax(0) + 1).tolist()
        volume = math.prod(extent)
    if volume >= 2**62:
        raise GridTooLarge(TOO_LARGE)
    flat = torch.zeros_like(keys[:, 0])
    for axis, n in enumerate(extent):
        flat = flat * n + (keys[:, axis] - low[axis])
    if volume <= 8 * len(flat) + (1 << 20):  # a table of all nodes is faster than sorting them
        seen = torch.zeros(volume, dtype=torch.int32, device=keys.device)
        seen[flat] = 1
        rank = torch.cumsum(seen, 0) - 1
        return rows(rank, flat), int(rank[-1]) + 1
    distinct, index = torch.unique(flat, return_inverse=True)
    return index, len(distinct)
