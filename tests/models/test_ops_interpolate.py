"""interpolate against its definition, gradients included."""

import pytest
import torch
from ops_twins import interpolate_twin, over_batch
from torch import Generator, Tensor

from veckm.models import ops


def rand(generator: Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("k", [1, 3, 4])
def test_the_values_are_those_of_the_definition(n: int, k: int, generator: Generator) -> None:
    values, points, queries = (rand(generator, 2, m, c) for m, c in ((n, 5), (n, 3), (9, 3)))
    got = ops.interpolate(values, points, queries, k)
    torch.testing.assert_close(got, over_batch(interpolate_twin, values, points, queries, k=k))


def test_the_gradients_are_those_of_the_definition(generator: Generator) -> None:
    given = [rand(generator, 2, m, c).requires_grad_() for m, c in ((30, 5), (30, 3), (9, 3))]
    weight = rand(generator, 2, 9, 5)
    ours = torch.autograd.grad((ops.interpolate(*given) * weight).sum(), given)
    twin = torch.autograd.grad((over_batch(interpolate_twin, *given) * weight).sum(), given)
    for got, expected in zip(ours, twin, strict=True):
        torch.testing.assert_close(got, expected)


def test_a_query_on_a_point_takes_its_values(generator: Generator) -> None:
    values, points = rand(generator, 1, 30, 5), rand(generator, 1, 30, 3)
    torch.testing.assert_close(
        ops.interpolate(values, points, points), values, rtol=1e-4, atol=1e-4
    )


def test_a_cloud_of_two_points_gives_both(generator: Generator) -> None:
    values, points, queries = (rand(generator, 1, m, 3) for m in (2, 2, 9))
    got = ops.interpolate(values, points, queries)
    torch.testing.assert_close(got, over_batch(interpolate_twin, values, points, queries, k=2))


def test_values_of_other_points_are_refused(generator: Generator) -> None:
    with pytest.raises(ValueError, match="not one row for every point"):
        ops.interpolate(*(rand(generator, 1, m, 3) for m in (4, 5, 6)))
