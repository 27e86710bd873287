"""Nearest neighbors against their definition, on every path."""

import pytest
import torch
from cloud_twins import ball_twin, knn_twin, over_batch
from torch import Generator, Tensor

from veckm.models import search
from veckm.models.clouds import Clouds, gather
from veckm.models.search import nearest


def cloud(generator: Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, 3, generator=generator, dtype=torch.float64)


# 40 points are searched by distances, 200 by a tree.
@pytest.mark.parametrize("n", [40, 200])
def test_the_nearest_are_those_of_the_definition(n: int, generator: Generator) -> None:
    points, queries = cloud(generator, 2, n), cloud(generator, 2, 15)
    expected = over_batch(knn_twin, points, queries, k=7)
    assert torch.equal(nearest(points, queries, 7), expected)


@pytest.mark.parametrize("n", [40, 200])
@pytest.mark.parametrize("radius", [0.05, 0.3])
def test_a_ball_is_the_definition(n: int, radius: float, generator: Generator) -> None:
    points, queries = cloud(generator, n), cloud(generator, 15)
    expected = ball_twin(points, queries, radius, k=7)
    assert torch.equal(Clouds.of(points).ball(radius, 7, Clouds.of(queries)), expected)


def test_a_ball_may_be_asked_for_more_points_than_there_are(generator: Generator) -> None:
    points = cloud(generator, 5)
    clouds = Clouds.of(points)
    assert torch.equal(clouds.ball(9.0, 8, clouds), ball_twin(points, points, 9.0, 8))


def test_distances_in_chunks_are_those_of_one_piece(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, queries = cloud(generator, 2, 40), cloud(generator, 2, 15)
    whole = nearest(points, queries, 3)
    monkeypatch.setattr(search, "_WORKER_PAIRS", 160)
    assert torch.equal(nearest(points, queries, 3), whole)


def test_neighbors_among_many_features_are_the_definition(generator: Generator) -> None:
    x = torch.rand(2, 200, 32, generator=generator, dtype=torch.float64)
    assert torch.equal(nearest(x, x, 5), over_batch(knn_twin, x, x, k=5))


def test_a_single_neighbor_keeps_its_dimension(generator: Generator) -> None:
    points = cloud(generator, 2, 200)
    own = torch.arange(200).expand(2, 200)
    assert torch.equal(nearest(points, points, 1)[..., 0], own)


def test_gather_takes_rows(generator: Generator) -> None:
    values = torch.rand(5, 2, generator=generator)
    index = torch.randint(5, (4, 6), generator=generator)
    assert torch.equal(gather(values, index), values[index])


def test_searches_that_make_no_sense_are_refused(generator: Generator) -> None:
    clouds = Clouds.of(cloud(generator, 2, 10))
    with pytest.raises(TypeError, match="k must be a whole number"):
        clouds.knn(2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="k must be at least 1"):
        clouds.knn(0)
    with pytest.raises(ValueError, match="radius must be positive"):
        clouds.ball(0.0, 3, clouds)
