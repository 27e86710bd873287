"""Points along a Morton curve, on which every octree cell is one contiguous run.

The curve depends on the positions alone: several windows and engines share it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from veckm.parallel import one_thread

#: Cells across a cloud whose points are put in order.
_CURVE_CELLS = 1024


@dataclass(frozen=True)
class Curve:
    """Points sorted along the curve, cloud by cloud."""

    key: Tensor  # (N,) int64 ascending: cloud, then the interleaved coordinates of the cell
    order: Tensor  # (N,) int64: sorted row -> the caller's row
    pos: Tensor  # (N, D_in) sorted
    cloud: Tensor  # (N,) int64 sorted
    cell: float  # side of the finest cells
    levels: int  # doublings of the cell that reach across a cloud

    @classmethod
    @one_thread()
    def through(cls, pos: Tensor, cloud: Tensor, cell: float) -> Curve:
        """Sort points by cells of side `cell`, which may be merged where there are too many."""
        key, levels = _morton(pos, cloud, cell)
        key, order = torch.sort(key)
        return cls(key, order, pos[order], cloud[order], cell, levels)

    def coarsened(self, cell: float) -> tuple[Tensor, int]:
        """Keys and levels for cells doubled from the finest, of side at most `cell`."""
        skip = min(max(0, math.floor(math.log2(cell / self.cell) + 1e-9)), self.levels - 1)
        return self.key >> (skip * self.pos.shape[1]), self.levels - skip

    def occupancy(self, side: float) -> tuple[float, float]:
        """Mean points that share a point's cell, and the exponent of its growth with the side."""
        in_dim, n = self.pos.shape[1], max(1, len(self.key))
        level = min(max(0.0, math.log2(max(side / self.cell, 1.0))), self.levels - 1.0)
        shared = []
        for shift in (math.floor(level), math.floor(level) + 1):
            count = torch.unique_consecutive(self.key >> (shift * in_dim), return_counts=True)[1]
            shared.append(float(count.double().square().sum()) / n)
        growth = math.log2(max(shared[1], 1.0) / max(shared[0], 1.0))
        return shared[0] * 2 ** (growth * (level - math.floor(level))), growth


def curve_order(pos: Tensor) -> Tensor:  # (N, D_in) -> (N,) int64
    """Rows along a Morton curve: neighbors in space are neighbors in memory."""
    pos = pos.detach()
    extent = float((pos.amax(0) - pos.amin(0)).max()) or 1.0
    one = torch.zeros(len(pos), dtype=torch.int64, device=pos.device)
    return torch.argsort(_morton(pos, one, extent / _CURVE_CELLS)[0], stable=True)


def _morton(pos: Tensor, cloud: Tensor, cell: float) -> tuple[Tensor, int]:
    """(N,) int64 keys (cloud, interleaved cell coordinates), and the number of levels."""
    in_dim = pos.shape[1]
    low = pos.amin(0)
    extent = float((pos.amax(0) - low).max())
    spare = 62 - int(cloud[-1] + 1).bit_length()
    levels = max(1, math.ceil(math.log2(max(extent / cell, 1.0) + 1)))
    index = ((pos - low) / cell).clamp_(max=2.0**62).long()
    if levels > spare // in_dim:  # far outliers: leave out the empty space between
        index = compact(index, gap=64)
        levels = max(1, int(index.max()).bit_length())
    if levels > spare // in_dim:  # cells only group points: coarser ones are as right
        index >>= levels - spare // in_dim
        levels = spare // in_dim
    return (cloud << (levels * in_dim)) | interleave(index, levels), levels


def interleave(index: Tensor, levels: int) -> Tensor:  # (N, D_in) -> (N,)
    """The bits of all coordinates in turn: cells along a Morton curve."""
    in_dim = index.shape[1]
    byte = torch.arange(256, device=index.device)
    spread = sum(((byte >> b) & 1) << (b * in_dim) for b in range(8))
    assert isinstance(spread, Tensor)
    key = torch.zeros_like(index[:, 0])
    for shift in range(0, levels, 8):
        part = spread[(index >> shift) & 255]  # (N, D_in)
        for axis in range(in_dim):
            key = key | (part[:, axis] << (shift * in_dim + axis))
    return key


def compact(index: Tensor, gap: int) -> Tensor:  # (n, D) int64 -> (n, D), from 0
    """The same order along each axis, but no step between neighbors larger than `gap`."""
    columns = []
    for axis in index.unbind(1):
        value, inverse = torch.unique(axis, return_inverse=True)
        step = torch.diff(value, prepend=value[:1]).clamp_(max=gap)
        columns.append(torch.cumsum(step, 0)[inverse])
    return torch.stack(columns, 1)
