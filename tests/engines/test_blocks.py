"""Blocks: a partition of the points, tight, and never across clouds."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from clouds import CLOUDS
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from veckm.engines.blocks import Blocks, boxes, grown_volume, octree
from veckm.engines.curve import Curve, compact

bounds = st.lists(st.tuples(st.integers(-3, 3), st.integers(-1, 4)), min_size=1, max_size=3)


def by_count(most: int) -> object:
    """A price that makes blocks of at most so many points, where cells allow it."""

    def price(sides: Tensor, count: Tensor) -> Tensor:
        return 1.0 + (count > most).double() * count

    return price


def by_size(side: float) -> object:
    """A price that makes blocks of about this size."""

    def price(sides: Tensor, count: Tensor) -> Tensor:
        return 1.0 + 10.0 * (sides.double() / side).pow(4).sum(1)

    return price


PRICES = {"count": by_count(10), "size": by_size(0.3), "one": by_count(10**9)}


def made(
    cloud: str, in_dim: int, price: str, generator: Generator, clouds: int = 3
) -> tuple[Tensor, Tensor, Blocks]:
    pos = CLOUDS[cloud](400, in_dim, generator)
    of = torch.randint(clouds, (400,), generator=generator).sort().values * 2  # odd ones are empty
    return pos, of, octree(Curve.through(pos, of, 0.05), 0.05, PRICES[price])  # type: ignore[arg-type]


@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("in_dim", [1, 2, 3, 4])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_point_is_in_exactly_one_tight_block_of_its_own_cloud(
    cloud: str, in_dim: int, price: str, generator: Generator
) -> None:
    pos, of, blocks = made(cloud, in_dim, price, generator)
    assert torch.equal(blocks.order.sort().values, torch.arange(400))
    assert int(blocks.count.min()) > 0
    assert int(blocks.count.sum()) == 400
    parts = blocks.order.split(blocks.count.tolist())
    for k, rows in enumerate(parts):
        assert set(of[rows].tolist()) == {int(blocks.cloud[k])}
        assert torch.equal(blocks.low[k], pos[rows].amin(0))
        assert torch.equal(blocks.high[k], pos[rows].amax(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_center_and_local_coordinates_give_the_point_back(
    dtype: torch.dtype, generator: Generator
) -> None:
    pos = CLOUDS["surface"](300, 3, generator).to(dtype) * 1000
    zeros = torch.zeros(300, dtype=torch.int64)
    blocks = octree(Curve.through(pos, zeros, 10.0), 10.0, PRICES["count"])  # type: ignore[arg-type]
    whole = blocks.center[blocks.of_row] + blocks.local.double()
    assert blocks.center.dtype == torch.float64
    assert blocks.local.dtype == dtype
    # The one rounding is that of the subtraction, half a step of the local coordinate.
    step = torch.finfo(dtype).eps * blocks.local.abs().max().double()
    assert float((whole - pos[blocks.order].double()).abs().max()) <= step
    middle = (blocks.low.double() + blocks.high.double()) / 2
    torch.testing.assert_close(blocks.center, middle, rtol=torch.finfo(dtype).eps, atol=1e-12)


def test_rows_and_groups_agree(generator: Generator) -> None:
    _, _, blocks = made("clusters", 3, "count", generator)
    seen = []
    for rows, members in blocks.groups:
        assert rows.start == members[0][1].start
        assert rows.stop == members[-1][1].stop
        seen += members
    assert [k for k, _ in seen] == list(range(len(blocks.count)))
    start = (torch.cumsum(blocks.count, 0) - blocks.count).tolist()
    for k, rows in seen:
        assert rows == slice(start[k], start[k] + int(blocks.count[k]))
        assert set(blocks.of_row[rows].tolist()) == {k}
    assert blocks.largest_group == max(rows.stop - rows.start for rows, _ in blocks.groups)


def test_the_blocks_chosen_are_the_cheapest_of_the_tree(generator: Generator) -> None:
    *_, blocks = made("surface", 3, "size", generator)
    price = PRICES["size"]
    paid = price(blocks.high - blocks.low, blocks.count)  # type: ignore[operator]
    assert blocks.seconds == pytest.approx(float(paid.sum()))
    assert 3 < len(blocks.count) < 400  # neither a block for each cloud nor for each point


def test_a_crowd_in_one_place_stays_one_block_however_much_it_costs() -> None:
    pos = torch.zeros(50, 3)
    curve = Curve.through(pos, torch.zeros(50).long(), 0.1)
    blocks = octree(curve, 0.1, PRICES["count"])  # type: ignore[arg-type]
    assert blocks.count.tolist() == [50]


def test_a_cloud_far_larger_than_its_cells_still_has_keys_that_fit(generator: Generator) -> None:
    pos = CLOUDS["volume"](100, 4, generator)
    pos[0] = 1e12
    curve = Curve.through(pos, torch.zeros(100).long(), 1e-9)
    blocks = octree(curve, 1e-9, PRICES["count"])  # type: ignore[arg-type]
    assert torch.equal(blocks.order.sort().values, torch.arange(100))
    assert blocks.count.sum() == 100


@given(
    st.lists(st.tuples(*[st.integers(-(2**60), 2**60)] * 2), min_size=1, max_size=12),
    st.integers(1, 100),
)
def test_compact_keeps_the_order_and_all_small_steps_and_cuts_the_large_ones(
    rows: list[tuple[int, int]], gap: int
) -> None:
    dense = compact(torch.tensor(rows), gap)
    for before, after in zip(zip(*rows, strict=True), dense.unbind(1), strict=True):
        steps = sorted(set(zip(before, after.tolist(), strict=True)))
        assert steps[0][1] == 0
        for (x, a), (y, b) in itertools.pairwise(steps):
            assert b - a == min(y - x, gap)


@given(st.lists(bounds, min_size=1, max_size=4).filter(lambda b: len({len(x) for x in b}) == 1))
def test_boxes_lists_every_integer_vector_of_every_box(raw: list[list[tuple[int, int]]]) -> None:
    low = torch.tensor([[first for first, _ in box] for box in raw])
    high = torch.tensor([[first + size - 1 for first, size in box] for box in raw])
    box, vectors = boxes(low, high)
    expected = [
        (k, *vector)
        for k, sides in enumerate(raw)
        for vector in itertools.product(*(range(first, first + size) for first, size in sides))
    ]
    got = [(k, *v) for k, v in zip(box.tolist(), vectors.tolist(), strict=True)]
    assert sorted(got) == sorted(expected)
    assert box.tolist() == sorted(box.tolist())


@pytest.mark.parametrize("in_dim", [1, 2, 3, 4])
def test_the_volume_of_a_grown_box_is_that_of_monte_carlo(
    in_dim: int, generator: Generator
) -> None:
    sides = torch.rand(3, in_dim, generator=generator) + 0.1
    sides[2, 0] = 0.0  # a flat one
    radius, draws = 0.4, 200_000
    for side, volume in zip(sides, grown_volume(sides, radius), strict=True):
        around = side + 2 * radius
        x = torch.rand(draws, in_dim, generator=generator) * around - radius
        gap = (x - x.clamp(torch.zeros(in_dim), side)).norm(dim=1)
        share = float((gap <= radius).double().mean())
        spread = math.sqrt(share * (1 - share) / draws) * float(around.prod())
        assert float(volume) == pytest.approx(share * float(around.prod()), abs=5 * spread + 1e-6)


def test_the_volume_of_a_grown_point_is_that_of_the_ball() -> None:
    for in_dim, ball in enumerate([2.0, math.pi, 4 / 3 * math.pi, math.pi**2 / 2], start=1):
        volume = float(grown_volume(torch.zeros(1, in_dim), 3.0))
        assert volume == pytest.approx(ball * 3.0**in_dim)
