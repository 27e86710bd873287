"""The search against brute force: nothing within the radius of a block's box is missed."""

from __future__ import annotations

import pytest
import torch
from clouds import CLOUDS
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from veckm.engines.blocks import Blocks, octree
from veckm.engines.curve import Curve
from veckm.engines.neighbors import Search


def blocks_of(pos: Tensor, cloud: Tensor, most: int = 12, cell: float = 0.05) -> Blocks:
    def price(sides: Tensor, count: Tensor) -> Tensor:
        return 1.0 + (count > most).double() * count

    return octree(Curve.through(pos, cloud, cell), cell, price)


def assert_finds_all(points: Blocks, targets: Blocks, radius: float) -> None:
    """Exactly the points whose distance from the box is at most the radius, block by block."""
    x = points.center[points.of_row] + points.local.double()
    cloud = points.cloud[points.of_row]
    found = Search(points, targets, radius).near(0, len(targets.count))
    assert len(found) == len(targets.count)
    for k, rows in enumerate(found):
        nearest = x.clamp(targets.low[k].double(), targets.high[k].double())
        gap = (x - nearest).norm(dim=1)
        mine = cloud == targets.cloud[k]
        sure = set((mine & (gap <= radius)).nonzero().flatten().tolist())
        may = set((mine & (gap <= radius * (1 + 1e-5) + 1e-12)).nonzero().flatten().tolist())
        got = rows.tolist()
        assert len(got) == len(set(got))
        assert sure <= set(got) <= may


@pytest.mark.parametrize("radius", [1e-3, 0.1, 0.4, 5.0])
@pytest.mark.parametrize("in_dim", [1, 2, 3, 4])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_points_near_a_block_are_those_of_brute_force(
    cloud: str, in_dim: int, radius: float, generator: Generator
) -> None:
    pos = CLOUDS[cloud](200, in_dim, generator)
    of = torch.tensor([0, 2, 3]).repeat_interleave(torch.tensor([120, 1, 79]))
    blocks = blocks_of(pos, of)
    assert_finds_all(blocks, blocks, radius)


@pytest.mark.parametrize("in_dim", [1, 2, 3, 4])
def test_queries_elsewhere_and_far_away_find_what_is_there(
    in_dim: int, generator: Generator
) -> None:
    pos, queries = (
        CLOUDS["surface"](150, in_dim, generator),
        CLOUDS["volume"](60, in_dim, generator),
    )
    queries[::10] += 2.5
    queries[5], queries[15], queries[25] = 1e9, -1e9, 1e14
    of, asked = torch.zeros(150).long(), torch.tensor([0, 1]).repeat_interleave(30)
    assert_finds_all(blocks_of(pos, of), blocks_of(queries, asked), 0.4)


@given(
    radius=st.floats(1e-6, 1e6),
    rows=st.lists(st.tuples(*[st.floats(-1e6, 1e6)] * 2), min_size=1, max_size=15),
)
def test_any_small_cloud_is_searched_right(radius: float, rows: list[tuple[float, ...]]) -> None:
    pos = torch.tensor(rows, dtype=torch.float64)
    blocks = blocks_of(pos, torch.zeros(len(pos)).long(), most=2, cell=radius / 4)
    assert_finds_all(blocks, blocks, radius)


def test_some_blocks_at_a_time_are_the_same_as_all(generator: Generator) -> None:
    pos = CLOUDS["surface"](200, 3, generator)
    blocks = blocks_of(pos, torch.zeros(200).long())
    search = Search(blocks, blocks, 0.3)
    every = search.near(0, len(blocks.count))
    for k, rows in enumerate(every):
        assert torch.equal(search.near(k, k + 1)[0], rows)


def test_an_outlier_at_the_end_of_the_world_does_not_overflow_the_cells() -> None:
    pos = torch.tensor([[0.0, 0, 0], [1e-3, 0, 0], [1e15, -1e15, 1e15]], dtype=torch.float64)
    blocks = blocks_of(pos, torch.zeros(3).long(), most=1, cell=1e-4)
    assert_finds_all(blocks, blocks, 1e-2)
