"""The grid for devices where every small product is a launch: padded cells, a few large products.

Cells are cubes of whole lattice spacings, with the same stencil of nodes everywhere. Cells with
like numbers of points form a group, padded to one size: one `bmm` and one indexed add for each. The
number of operations does not grow with that of cells, and the host waits only while it plans.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from veckm.engines.cost import cost_model
from veckm.engines.geometry import Geometry, Points
from veckm.engines.lattice import TOO_LARGE, GridTooLarge, Lattice
from veckm.engines.operator import Factored, Proposal

#: Sides of cells that are tried, in lattice spacings, and the points that groups are padded to.
_SIDES = (1, 2, 4)
_PADDED = (8, 32, 128)
#: Numbers held at once by a product: entries of S with their differences, and rows of nodes.
_ENTRIES, _NODES = 1 << 24, 1 << 27


def propose(geometry: Geometry, lattice: Lattice, columns: int) -> Proposal:
    """The cost from the number of points alone: reading positions would synchronize the device."""
    rates = cost_model(geometry.device, geometry.dtype)
    entries = geometry.size * _volume(lattice, 1, geometry.in_dim) * lattice.density
    seconds = rates.call + entries * (2 * columns * rates.flop + rates.distance)
    seconds += geometry.size * columns / 2 * (rates.phasor + rates.write)
    return Proposal(seconds, lambda: BatchedGrid.of(geometry, lattice, columns))


def _volume(lattice: Lattice, side: int, in_dim: int) -> float:
    """Of the cube that holds the nodes of a cell."""
    return float((side * lattice.spacing + 2 * lattice.reach) ** in_dim)


class BatchedGrid(Factored["CellSide"]):
    """K by padded cells."""

    def __init__(self, geometry: Geometry, source: CellSide, target: CellSide, rows: int) -> None:
        super().__init__(geometry, source, target)
        self.rows = rows

    @classmethod
    def of(cls, geometry: Geometry, lattice: Lattice, columns: int) -> BatchedGrid:
        """Sort points into cells and number the nodes that they reach."""
        sets = [geometry.points, geometry.queries][: 2 - geometry.same]
        low, extent = _corner(sets, lattice)
        sides = [CellSide(points, lattice, low, extent, columns) for points in sets]
        keys = [side.node_keys(extent) for side in sides]
        flat = torch.cat([key.flatten() for key in keys])
        distinct, index = torch.unique(flat, return_inverse=True)  # waits
        parts = index.split([key.numel() for key in keys])
        for side, key, part in zip(sides, keys, parts, strict=True):
            side.groups = list(side.padded(part.view_as(key)))
        return cls(geometry, sides[0], sides[-1], len(distinct))

    def spread(self, values: Tensor) -> Tensor:
        return self.source.spread(values, self.rows)


def _corner(sets: list[Points], lattice: Lattice) -> tuple[Tensor, list[int]]:
    """The corner (D_in,) of the box of all points in spacings; clouds, then spacings per axis."""
    ends = [torch.aminmax(points.flat.detach(), dim=0) for points in sets]
    low = torch.stack([end.min for end in ends]).amin(0).double() / lattice.spacing
    high = torch.stack([end.max for end in ends]).amax(0).double() / lattice.spacing
    low = torch.floor(low)
    clouds = torch.stack([points.cloud[-1] for points in sets]).amax()[None] + 1
    sizes = torch.cat([clouds.double(), torch.floor(high) - low + 1])
    extent = [int(n) for n in sizes.tolist()]  # waits
    if math.prod(2 * e + 64 for e in extent) >= 2**62:
        raise GridTooLarge(TOO_LARGE)
    return low, extent


def _flat(index: Tensor, extent: list[int], side: int) -> Tensor:  # (N, 1 + D_in) -> (N,)
    """One number for every cell of a side."""
    key = index[:, 0]
    for axis, n in enumerate(extent[1:]):
        key = key * (n // side + 1) + index[:, 1 + axis] // side
    return key


def _cheapest(occupied: list[int], points: Points, lattice: Lattice, columns: int) -> int:
    """Which of the sides of cells costs least, given how many cells are then occupied."""
    rates = cost_model(points.pos.device, points.pos.dtype)
    entry = 4 * columns * rates.flop + 2 * rates.distance
    row = 4 * columns * points.pos.element_size() * rates.row_byte
    prices = [
        _volume(lattice, side, points.in_dim) * ((len(points) + 4 * cells) * entry + cells * row)
        for side, cells in zip(_SIDES, occupied, strict=True)
    ]
    return prices.index(min(prices))


class _Group(NamedTuple):
    """Runs of points of one cell each, padded to one length."""

    row: Tensor  # (K, P) int64: the caller's row, N where there is no point
    local: Tensor  # (K, P, D_in)
    node: Tensor  # (K, T) int64: rows of the table


class CellSide:
    """Points (the sources or the queries) sorted by the cells that they lie in, and their nodes."""

    groups: list[_Group]  # set once the nodes are numbered

    def __init__(
        self, points: Points, lattice: Lattice, low: Tensor, extent: list[int], columns: int
    ) -> None:
        """Take the cells that are cheapest: small ones have few nodes, large ones share them."""
        self.lattice, self.points = lattice, len(points)
        spaced = points.flat.detach().double() / lattice.spacing - low
        fine = torch.cat([points.cloud[:, None], torch.floor(spaced).long()], dim=1)
        keys = [_flat(fine, extent, side) for side in _SIDES]
        sorted_ = [torch.sort(key) for key in keys]
        firsts = [torch.cat([k.new_ones(1), (k[1:] != k[:-1]).long()]) for k, _ in sorted_]
        occupied = torch.stack([first.sum() for first in firsts]).tolist()  # waits
        best = _cheapest(occupied, points, lattice, columns)
        side, self.order = _SIDES[best], sorted_[best].indices  # (N,) sorted row -> caller's row
        of_row = torch.cumsum(firsts[best], 0) - 1
        count = of_row.new_zeros(occupied[best]).index_add_(0, of_row, torch.ones_like(of_row))
        self.count = count  # (K,) points of each cell
        place = fine[self.order[torch.cumsum(count, 0) - count]]
        place[:, 1:] -= place[:, 1:] % side
        self.place = place  # (K, 1 + D_in) cloud, and the cell's corner in spacings
        local = spaced[self.order] - (place[:, 1:].double() + side / 2)[of_row]
        self.local = (local * lattice.spacing).to(points.pos.dtype)  # (N, D_in) about the center
        self.stencil = _stencil(lattice, side, points.in_dim).to(place.device)  # (T, D_in)
        self.nodes = (self.stencil - side).to(self.local.dtype) * (lattice.spacing / 2)

    def node_keys(self, extent: list[int]) -> Tensor:  # (K, T) int64
        """Numbers of the nodes of every cell, the same for the same node."""
        margin = 2 * math.ceil(self.lattice.reach / self.lattice.spacing) + 2
        key = self.place[:, :1].expand(-1, len(self.stencil))
        for axis, n in enumerate(extent[1:]):
            where = 2 * self.place[:, 1 + axis, None] + self.stencil[:, axis] + margin
            key = key * (2 * n + 2 * _SIDES[-1] + 2 * margin) + where
        return key

    def spread(self, values: Tensor, rows: int) -> Tensor:  # (n, C) -> (rows, C)
        """c S^T v."""
        table = values.new_zeros(rows, values.shape[1])
        for group in self._slabs(values.shape[1]):
            part = self._window(group).mT.to(values.dtype) @ self._values(group, values)
            table.index_add_(0, group.node.flatten(), part.flatten(0, 1))
        return table.mul_(self.lattice.scale)

    def gather(self, table: Tensor) -> Tensor:  # (rows, C) -> (n, C)
        """S Q."""
        out = table.new_empty(self.points + 1, table.shape[1])  # one row for the padding
        for group in self._slabs(table.shape[1]):
            sums = self._window(group).to(table.dtype) @ self._table(group, table)
            out.index_copy_(0, group.row.flatten(), sums.flatten(0, 1))
        return out[:-1]

    def position_grad(self, values: Tensor, table: Tensor) -> Tensor:  # (n, C), (rows, C)
        """d/dx of <v, S Q>: with T = S * (v Q^T) it is 2 beta^2 (T u - x sum_u T)."""
        out = self.nodes.new_empty(self.points + 1, self.nodes.shape[1])
        for group in self._slabs(table.shape[1]):
            product = self._values(group, values) @ self._table(group, table).mT
            T = product.to(self.nodes.dtype) * self._window(group)
            grad = T @ self.nodes - group.local * T.sum(-1, keepdim=True)
            grad = grad.flatten(0, 1) * (2 * self.lattice.beta**2)
            out.index_copy_(0, group.row.flatten(), grad)
        return out[:-1]

    def _window(self, group: _Group) -> Tensor:  # (K, P, T)
        """S by differences: a product of coordinates would not survive TF32."""
        z = group.local[:, :, None] - self.nodes  # (K, P, T, D_in)
        S = torch.exp(z.square_().sum(-1).mul_(-(self.lattice.beta**2)))
        return S.mul_((group.row < self.points)[..., None])

    def _values(self, group: _Group, values: Tensor) -> Tensor:  # (K, P, C)
        at = group.row.clamp(max=self.points - 1)  # padding has weight zero
        return values.index_select(0, at.flatten()).view(*at.shape, -1)

    def _table(self, group: _Group, table: Tensor) -> Tensor:  # (K, T, C)
        return table.index_select(0, group.node.flatten()).view(*group.node.shape, -1)

    def _slabs(self, columns: int) -> Iterator[_Group]:
        """The groups, in parts whose products fit in memory."""
        for group in self.groups:
            (runs, padded), nodes = group.row.shape, len(self.nodes)
            most = min(_ENTRIES // (padded * nodes), _NODES // (max(padded, nodes) * columns))
            for i in range(0, runs, max(1, most)):
                yield _Group(*(tensor[i : i + max(1, most)] for tensor in group))

    def padded(self, node: Tensor) -> Iterator[_Group]:
        """Full runs of the largest length, then what is left of every cell, by its size."""
        largest, count = _PADDED[-1], self.count
        start = torch.cumsum(count, 0) - count
        full, rest = count // largest, count % largest
        sizes = torch.tensor([0, *_PADDED], device=count.device)
        kind = torch.searchsorted(sizes, rest)  # 0: nothing is left
        found = torch.stack([full.sum(), *((kind == k).sum() for k in range(len(sizes)))]).tolist()
        cell = torch.repeat_interleave(full, output_size=found[0])
        step = torch.arange(found[0], device=count.device) - (torch.cumsum(full, 0) - full)[cell]
        runs = [(cell, start[cell] + step * largest, torch.full_like(cell, largest), largest)]
        by_kind = torch.argsort(kind).split(found[1:])
        for padded, cell in zip(_PADDED, by_kind[1:], strict=True):
            runs.append((cell, (start + full * largest)[cell], rest[cell], padded))
        for cell, first, size, padded in runs:
            if len(cell):
                step = torch.arange(padded, device=count.device)
                at = (first[:, None] + step).clamp(max=len(self.order) - 1)
                row = torch.where(step < size[:, None], self.order[at], len(self.order))
                yield _Group(row, self.local[at], node[cell])


def _stencil(lattice: Lattice, side: int, in_dim: int) -> Tensor:  # (T, D_in) int64
    """The nodes in reach of a cell, from its corner, in half spacings."""
    a, reach = lattice.spacing / 2, lattice.reach
    most = math.ceil(reach / a)
    nodes = []
    for parity in (0, 1):
        axis = [k for k in range(-most, 2 * side + most + 1) if k % 2 == parity]
        gap = {k: max(-k, k - 2 * side, 0) ** 2 for k in axis}
        boxes = itertools.product(axis, repeat=in_dim)
        nodes += [ks for ks in boxes if sum(gap[k] for k in ks) * a**2 <= reach**2]
    return torch.tensor(nodes)
