"""Clouds of different sizes against the same operation on each cloud alone."""

from __future__ import annotations

import pytest
import torch
from cloud_twins import ball_in_order_twin, ball_twin, farthest_twin, interpolate_twin, knn_twin
from torch import Generator, Tensor

from veckm.models.clouds import Clouds, per_cloud
from veckm.models.layers import LinearBN, apply_valid

SIZES = pytest.mark.parametrize("sizes", [(30, 30), (12, 200, 31)])


def clouds(sizes: tuple[int, ...], generator: Generator) -> Clouds:
    return Clouds(torch.rand(sum(sizes), 3, generator=generator, dtype=torch.float64), sizes)


def alone(c: Clouds, x: Tensor) -> list[Tensor]:
    return list(x.split(c.sizes))


@SIZES
def test_neighbors_are_rows_of_the_same_cloud(sizes: tuple[int, ...], generator: Generator) -> None:
    c, q = clouds(sizes, generator), clouds(tuple(n // 2 for n in sizes), generator)
    pairs = list(zip(alone(c, c.pos), alone(q, q.pos), c.starts, strict=True))
    expected = torch.cat([knn_twin(p, x, 5) + start for p, x, start in pairs])
    assert torch.equal(c.knn(5, q), expected)
    expected = torch.cat([ball_twin(p, x, 0.3, 7) + start for p, x, start in pairs])
    assert torch.equal(c.ball(0.3, 7, q), expected)
    itself = zip(alone(c, c.pos), c.starts, strict=True)
    assert torch.equal(c.knn(4), torch.cat([knn_twin(p, p, 4) + start for p, start in itself]))


@SIZES
@pytest.mark.parametrize("radius", [0.01, 0.3, 2.0])
def test_a_ball_may_take_its_points_in_order(
    sizes: tuple[int, ...], radius: float, generator: Generator
) -> None:
    c, q = clouds(sizes, generator), clouds(tuple(n // 2 for n in sizes), generator)
    pairs = zip(alone(c, c.pos), alone(q, q.pos), c.starts, strict=True)
    expected = [ball_in_order_twin(p, x, radius, 14) + start for p, x, start in pairs]
    assert torch.equal(c.ball(radius, 14, q, in_order=True), torch.cat(expected))


def test_a_group_is_the_offsets_and_features_of_the_neighbors(generator: Generator) -> None:
    c, q = clouds((9, 9), generator), clouds((2, 3), generator)
    x = torch.rand(18, 4, generator=generator, dtype=torch.float64)
    near = torch.randint(18, (5, 3), generator=generator)
    found = c.group(x, q, near)
    assert found.shape == (5, 3, 7)
    for i in range(5):
        for j, row in enumerate(near[i].tolist()):
            assert torch.equal(found[i, j], torch.cat((c.pos[row] - q.pos[i], x[row])))


def test_a_small_cloud_repeats_its_nearest_neighbor(generator: Generator) -> None:
    c = clouds((3, 10), generator)
    near, valid = c.knn(5), c.valid(5)
    assert near.shape == (13, 5)
    assert valid is not None
    assert valid.sum(1).tolist() == [3] * 3 + [5] * 10
    assert torch.equal(near[:3, 3:], near[:3, :1].expand(3, 2))
    assert c.valid(3) is None
    assert clouds((3, 2), generator).knn(9).shape == (5, 3)  # none has more


@SIZES
def test_samples_are_farthest_points_of_each_cloud(
    sizes: tuple[int, ...], generator: Generator
) -> None:
    c = clouds(sizes, generator)
    rows, few = c.sample(lambda n: n // 3)
    expected = [farthest_twin(p, len(p) // 3) for p in alone(c, c.pos)]
    picks = zip(expected, c.starts, strict=True)
    assert torch.equal(rows, torch.cat([pick + start for pick, start in picks]))
    assert few.sizes == tuple(n // 3 for n in sizes)
    assert torch.equal(few.pos, c.pos[rows])


@SIZES
def test_what_concerns_a_cloud_is_that_of_the_cloud_alone(
    sizes: tuple[int, ...], generator: Generator
) -> None:
    c, q = clouds(sizes, generator), clouds(tuple(n + 1 for n in sizes), generator)
    x = torch.rand(len(c.pos), 4, generator=generator, dtype=torch.float64)
    parts = alone(c, x)
    torch.testing.assert_close(c.max(x), torch.stack([p.amax(0) for p in parts]))
    torch.testing.assert_close(c.mean(x), torch.stack([p.mean(0) for p in parts]))
    g = torch.rand(len(sizes), 4, generator=generator, dtype=torch.float64)
    T = torch.rand(len(sizes), 4, 4, generator=generator, dtype=torch.float64)
    added = [p + row for p, row in zip(parts, g, strict=True)]
    torch.testing.assert_close(c.add(x, g), torch.cat(added))
    moved = [p @ m for p, m in zip(parts, T, strict=True)]
    torch.testing.assert_close(c.transform(x, T), torch.cat(moved))
    each = zip(parts, alone(c, c.pos), alone(q, q.pos), strict=True)
    carried = torch.cat([interpolate_twin(*one) for one in each])
    torch.testing.assert_close(c.interpolate(x, q), carried)
    spread = per_cloud(lambda x: x.std(1), (c, x))
    torch.testing.assert_close(spread, torch.stack([p.std(0) for p in parts]))


def test_parts_are_whole_clouds_with_few_points(generator: Generator) -> None:
    c = clouds((5, 7, 20, 3, 3), generator)
    found = list(c.parts(12))
    assert [part.sizes for part, *_ in found] == [(5, 7), (20,), (3, 3)]
    assert torch.equal(torch.cat([part.pos for part, *_ in found]), c.pos)
    assert [rows for _, rows, _ in found] == [slice(0, 12), slice(12, 32), slice(32, 38)]
    assert [numbers for *_, numbers in found] == [slice(0, 2), slice(2, 3), slice(3, 5)]


def test_repetitions_do_not_count_in_a_batch_norm(generator: Generator) -> None:
    layer = LinearBN(3, 4).double()
    x = torch.rand(6, 5, 3, generator=generator, dtype=torch.float64)
    valid = torch.rand(6, 5, generator=generator) < 0.6
    out = apply_valid(layer, x, valid, fill=-1.0)
    torch.testing.assert_close(out[valid], layer(x[valid]))
    assert bool((out[~valid] == -1).all())


def test_input_that_is_no_clouds_is_refused() -> None:
    with pytest.raises(ValueError, match="cloud 1 of batch has no points"):
        Clouds.of(torch.zeros(4, 3), torch.tensor([0, 0, 2, 2]))
    with pytest.raises(ValueError, match="batch is not sorted"):
        Clouds.of(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ValueError, match="with at least one point"):
        Clouds.of(torch.zeros(2, 0, 3))
    with pytest.raises(ValueError, match="is a batch already"):
        Clouds.of(torch.zeros(2, 3, 3), torch.tensor([0, 1]))
