"""knn and ball_query against their definitions, on every path."""

import pytest
import torch
from ops_twins import ball_twin, knn_twin, over_batch
from torch import Generator, Tensor

from veckm.models import ops
from veckm.models.ops import search


def cloud(generator: Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, 3, generator=generator, dtype=torch.float64)


# 40 points are searched by distances, 200 by a tree.
@pytest.mark.parametrize("n", [40, 200])
def test_knn_is_the_definition(n: int, generator: Generator) -> None:
    points, queries = cloud(generator, 2, n), cloud(generator, 2, 15)
    expected = over_batch(knn_twin, points, queries, k=7)
    assert torch.equal(ops.knn(points, queries, 7), expected)


@pytest.mark.parametrize("n", [40, 200])
@pytest.mark.parametrize("radius", [0.05, 0.3])
def test_ball_query_is_the_definition(n: int, radius: float, generator: Generator) -> None:
    points, queries = cloud(generator, 2, n), cloud(generator, 2, 15)
    expected = over_batch(ball_twin, points, queries, radius=radius, k=7)
    assert torch.equal(ops.ball_query(points, queries, radius, 7), expected)


def test_a_ball_query_may_ask_for_more_than_there_are(generator: Generator) -> None:
    points = cloud(generator, 1, 5)
    expected = over_batch(ball_twin, points, points, radius=9.0, k=8)
    assert torch.equal(ops.ball_query(points, points, 9.0, 8), expected)


def test_distances_in_chunks_are_those_of_one_piece(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, queries = cloud(generator, 2, 40), cloud(generator, 2, 15)
    whole = ops.knn(points, queries, 3)
    monkeypatch.setattr(search, "_PAIRS", 160)
    assert torch.equal(ops.knn(points, queries, 3), whole)


def test_neighbors_among_many_features_are_the_definition(generator: Generator) -> None:
    x = torch.rand(2, 200, 32, generator=generator, dtype=torch.float64)
    assert torch.equal(ops.knn(x, x, 5), over_batch(knn_twin, x, x, k=5))


def test_a_single_neighbor_keeps_its_dimension(generator: Generator) -> None:
    points = cloud(generator, 2, 200)
    own = torch.arange(200).expand(2, 200)
    assert torch.equal(ops.knn(points, points, 1)[..., 0], own)


def test_gather_takes_rows_cloud_by_cloud(generator: Generator) -> None:
    values = torch.rand(3, 5, 2, generator=generator)
    index = torch.randint(5, (3, 4, 6), generator=generator)
    expected = torch.stack([v[i] for v, i in zip(values, index, strict=True)])
    assert torch.equal(ops.gather(values, index), expected)
    assert torch.equal(ops.gather(values[0], index[0]), expected[0])


def test_what_cannot_be_found_is_said(generator: Generator) -> None:
    points = cloud(generator, 2, 10)
    with pytest.raises(ValueError, match="k = 11 neighbors were requested of a cloud of 10"):
        ops.knn(points, points, 11)
    with pytest.raises(ValueError, match="points and queries must be"):
        ops.knn(points, points[:1], 3)
    with pytest.raises(ValueError, match="must be dense batches"):
        ops.ball_query(points[0], points[0], 0.1, 3)
    with pytest.raises(TypeError, match="k must be a whole number"):
        ops.knn(points, points, 2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="radius must be positive"):
        ops.ball_query(points, points, 0.0, 3)
    with pytest.raises(ValueError, match="NaN"):
        ops.knn(points * torch.nan, points, 3)
    with pytest.raises(ValueError, match="gather expects values"):
        ops.gather(points, torch.zeros(3, 4, dtype=torch.int64))
