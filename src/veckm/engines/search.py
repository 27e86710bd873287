"""Which points lie within a radius of a block: ranges of cells in a sorted list, no trees.

The points are sorted by cell, row by row. All cells of a box that differ only along the last axis
are then one contiguous range of points, found by two binary searches; a block asks for a few.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from veckm.engines.blocks import Blocks, boxes

#: Ranges a block may ask for, on average.
_RANGES = 64


class Search:
    """Fixed-radius search for the points near whole blocks."""

    def __init__(self, points: Blocks, targets: Blocks, radius: float) -> None:
        self.radius = radius
        self.targets = targets
        self.points = points.center[points.of_row] + points.local.double()  # (N, D_in)
        cloud = points.cloud[points.of_row]  # (N,)
        self.low = self.points.amin(0)
        extent = self.points.amax(0) - self.low
        # A cell as large as a typical block: smaller ones would mean many ranges for each.
        typical = float((targets.high - targets.low).double().amax(1).median())
        self.cell = self._fitting(max(radius, typical), extent, int(cloud.max()) + 1)
        self.cells = (extent / self.cell).long() + 1  # (D_in,) per axis
        index = ((self.points - self.low) / self.cell).long()
        self.key, self.order = torch.sort(self._flat(cloud, index))

    def _fitting(self, cell: float, extent: Tensor, clouds: int) -> float:
        """The cell, made larger until cell numbers fit in 62 bits and no block asks for much."""
        sides = (self.targets.high - self.targets.low).double()[:, :-1] + 2 * self.radius
        cell = max(cell, float(extent.max()) * 2**-52, 1e-300)
        while math.log2(clouds) + float(torch.log2(extent / cell + 1).sum()) > 61 or float(
            (sides / cell + 2).prod(1).sum()
        ) > _RANGES * len(sides):
            cell *= 2
        return cell

    def near(self, first: int, last: int) -> list[Tensor]:
        """For each of the blocks first..last-1, the rows of `points` within reach of its box."""
        low = self.targets.low[first:last].double() - self.radius
        high = self.targets.high[first:last].double() + self.radius
        # Clamped before they become integers: a far query must not overflow, it finds nothing.
        most = self.cells.double()
        start = torch.minimum(((low - self.low) / self.cell).floor().clamp(min=0), most).long()
        stop = torch.minimum(((high - self.low) / self.cell).floor().clamp(min=-1), most - 1).long()
        box, lead = boxes(start[:, :-1], stop[:, :-1])  # all axes but the last
        filled = (stop >= start).all(1)[box]
        box, lead = box[filled], lead[filled]
        cloud = self.targets.cloud[first:last][box]
        begin = self._flat(cloud, torch.cat([lead, start[box, -1:]], 1))
        end = self._flat(cloud, torch.cat([lead, stop[box, -1:]], 1))
        i = torch.searchsorted(self.key, begin)
        n = torch.searchsorted(self.key, end, right=True) - i
        block = torch.repeat_interleave(box, n)
        run = torch.arange(len(block), device=n.device) - torch.repeat_interleave(
            torch.cumsum(n, 0) - n - i, n
        )
        row = self.order[run]
        x = self.points[row]
        gap = torch.maximum(low[block] + self.radius - x, x - (high[block] - self.radius))
        keep = gap.clamp_(min=0).square().sum(1) <= self.radius**2 * (1 + 1e-6)
        block, row = block[keep], row[keep]
        return list(row.split(torch.bincount(block, minlength=last - first).tolist()))

    def _flat(self, cloud: Tensor, index: Tensor) -> Tensor:
        flat = cloud
        for axis, n in enumerate(self.cells.tolist()):
            flat = flat * n + index[:, axis]
        return flat
