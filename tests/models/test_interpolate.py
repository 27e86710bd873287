"""Interpolation against its definition, gradients included."""

import pytest
import torch
from cloud_twins import interpolate_twin
from torch import Generator, Tensor

from veckm.models.clouds import Clouds


def rand(generator: Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def interpolate(values: Tensor, points: Tensor, queries: Tensor, k: int = 3) -> Tensor:
    return Clouds.of(points).interpolate(values, Clouds.of(queries), k)


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("k", [1, 3, 4])
def test_the_values_are_those_of_the_definition(n: int, k: int, generator: Generator) -> None:
    values, points, queries = (rand(generator, m, c) for m, c in ((n, 5), (n, 3), (9, 3)))
    got = interpolate(values, points, queries, k)
    torch.testing.assert_close(got, interpolate_twin(values, points, queries, k))


def test_the_gradients_are_those_of_the_definition(generator: Generator) -> None:
    given = [rand(generator, m, c).requires_grad_() for m, c in ((30, 5), (30, 3), (9, 3))]
    weight = rand(generator, 9, 5)
    ours = torch.autograd.grad((interpolate(*given) * weight).sum(), given)
    twin = torch.autograd.grad((interpolate_twin(*given) * weight).sum(), given)
    for got, expected in zip(ours, twin, strict=True):
        torch.testing.assert_close(got, expected)


def test_a_query_on_a_point_takes_its_values(generator: Generator) -> None:
    values, points = rand(generator, 30, 5), rand(generator, 30, 3)
    torch.testing.assert_close(interpolate(values, points, points), values, rtol=1e-4, atol=1e-4)


def test_a_cloud_of_two_points_gives_both_also_beside_larger_ones(generator: Generator) -> None:
    values, points, queries = (rand(generator, m, 3) for m in (2, 2, 9))
    expected = interpolate_twin(values, points, queries, k=2)
    torch.testing.assert_close(interpolate(values, points, queries), expected)
    more, others = rand(generator, 7, 3), rand(generator, 7, 3)
    points_of_both = Clouds(torch.cat((points, others)), (2, 7))
    both = points_of_both.interpolate(torch.cat((values, more)), Clouds(queries, (4, 5)))
    torch.testing.assert_close(both[:4], expected[:4])
    torch.testing.assert_close(both[4:], interpolate_twin(more, others, queries[4:]))
