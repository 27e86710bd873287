"""Farthest points and the cells of a grid against their definitions."""

from collections.abc import Callable

import pytest
import torch
from cloud_twins import farthest_twin, over_batch, squared
from experiments.networks.kpconv import cells
from torch import Generator, Tensor

from veckm.models import sampling
from veckm.models.clouds import Clouds
from veckm.models.sampling import farthest_points


def cloud(generator: Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, 3, generator=generator, dtype=torch.float64)


def chunked(pos: Tensor, count: int) -> Tensor:
    """As clouds of many points are sampled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "_LARGE", 0)
        return farthest_points(pos, count)


def reach(pos: Tensor, picks: Tensor) -> float:
    """How far the point is that is farthest from all picks."""
    return max(float(squared(pos[picks], x).min()) for x in pos) ** 0.5


@pytest.mark.parametrize("count", [1, 2, 17, 50])
def test_the_picks_are_those_of_the_definition(count: int, generator: Generator) -> None:
    pos = cloud(generator, 3, 50)
    picks = farthest_points(pos, count)
    if count == 50:  # all of them, in any order
        assert torch.equal(picks.sort(1).values, torch.arange(50).expand(3, 50))
    else:
        assert torch.equal(picks, over_batch(farthest_twin, pos, count=count))


def test_the_picks_do_not_depend_on_the_order_of_the_points(generator: Generator) -> None:
    pos = cloud(generator, 1, 60)
    order = torch.randperm(60, generator=generator)
    picks, moved = farthest_points(pos, 12), farthest_points(pos[:, order], 12)
    assert torch.equal(order[moved[0]], picks[0])


@pytest.mark.parametrize("pick", [farthest_points, chunked])
def test_no_row_is_picked_twice_even_where_points_coincide(
    pick: Callable[[Tensor, int], Tensor],
) -> None:
    pos = torch.zeros(2, 700, 3)
    picks = pick(pos, 300)
    assert picks.shape == (2, 300)
    assert all(len(row.unique()) == 300 for row in picks)


@pytest.mark.parametrize("count", [1, 3, 200, 1001, 1499])
def test_chunks_give_the_number_asked_for_each_once(count: int, generator: Generator) -> None:
    pos = cloud(generator, 2, 1500)
    picks = chunked(pos, count)
    assert picks.shape == (2, count)
    assert all(len(row.unique()) == count for row in picks)
    assert int(picks.min()) >= 0
    assert int(picks.max()) < 1500


def test_chunks_cover_the_cloud_almost_as_well(generator: Generator) -> None:
    pos = torch.nn.functional.normalize(cloud(generator, 1, 3000) - 0.5, dim=-1)
    exact = reach(pos[0], farthest_points(pos, 300)[0])
    near = reach(pos[0], chunked(pos, 300)[0])
    random = reach(pos[0], torch.randperm(3000, generator=generator)[:300])
    assert exact <= near < 0.7 * random


def test_one_chunk_is_exact(generator: Generator) -> None:
    pos = cloud(generator, 2, 400)
    exact = farthest_points(pos, 100)
    assert torch.equal(exact.sort(1).values, chunked(pos, 100).sort(1).values)


def test_the_points_of_a_grid_are_the_means_of_its_cells(generator: Generator) -> None:
    pos = 2 * cloud(generator, 80) - 1
    batch = torch.arange(2).repeat_interleave(40)
    into, found = cells(Clouds.of(pos, batch), 0.5)
    members: dict[tuple[int, ...], list[int]] = {}
    for i, x in enumerate(pos):
        key = (int(batch[i]), *(int(v) for v in torch.floor(x / 0.5)))
        members.setdefault(key, []).append(i)
    assert len(found.pos) == len(members)
    for row, key in enumerate(sorted(members)):
        rows = members[key]
        torch.testing.assert_close(found.pos[row], pos[rows].mean(0))
        assert int(found.batch[row]) == key[0]
        assert {int(into[i]) for i in rows} == {row}


def test_cells_that_cannot_be_numbered_are_refused() -> None:
    with pytest.raises(ValueError, match="use a larger size"):
        cells(Clouds.of(torch.tensor([[0.0, 0, 0], [1e9, 1e9, 1e9]])), 1e-3)
