"""Frequencies: the numbers themselves, and what alpha, beta and radius mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from clouds import surface
from scipy.stats import norm
from torch import Generator

from veckm import beta_from_radius, radius_from_beta, suggest_radius
from veckm.frequencies import authors_standard_normal, quantiles, scale_generator, standard_normal

# Appendix D of the paper, all rows: beta = 1, 2, ..., 30.
RADII = """
1.800 0.900 0.600 0.450 0.360 0.300 0.257 0.225 0.200 0.180
0.163 0.150 0.138 0.129 0.120 0.113 0.106 0.100 0.095 0.090
0.086 0.082 0.078 0.075 0.072 0.069 0.067 0.065 0.062 0.060
""".split()


@pytest.mark.parametrize(("beta", "radius"), list(enumerate(map(float, RADII), start=1)))
def test_radius_and_beta_follow_the_table_of_appendix_d(beta: int, radius: float) -> None:
    # One unit of the table's last digit: it has 0.163 for 0.16364 and 0.065 for 0.06429.
    assert radius_from_beta(beta) == pytest.approx(radius, abs=1e-3)
    assert beta_from_radius(radius) == pytest.approx(beta, rel=1e-3 / radius)
    assert beta_from_radius(radius_from_beta(beta)) == pytest.approx(beta, rel=1e-15)
    assert radius_from_beta(beta) * beta == pytest.approx(1.8, rel=1e-15)


@pytest.mark.parametrize("bad", [0.0, -1.0, torch.nan, torch.inf])
def test_a_radius_or_beta_that_is_not_positive_is_refused_by_name(bad: float) -> None:
    with pytest.raises(ValueError, match=f"radius must be positive and within .*, got {bad}"):
        beta_from_radius(bad)
    with pytest.raises(ValueError, match=f"beta must be positive and within .*, got {bad}"):
        radius_from_beta(bad)


@pytest.mark.parametrize(("count", "variance"), [(64, 0.892), (256, 0.963)])
def test_the_quantiles_of_the_paper_have_a_variance_below_one(count: int, variance: float) -> None:
    x = quantiles(count, "paper")
    assert float(x.square().mean()) == pytest.approx(variance, abs=5e-4)
    np.testing.assert_allclose(x, norm.ppf(np.linspace(0, 1, count + 2)[1:-1]), atol=1e-14)


@pytest.mark.parametrize("count", [2, 3, 7, 64, 256, 4096])
def test_the_unbiased_quantiles_have_mean_zero_and_variance_one_exactly(count: int) -> None:
    x = quantiles(count)
    assert float(x.square().mean()) == pytest.approx(1, abs=1e-14)
    assert float(x.mean()) == pytest.approx(0, abs=1e-14)
    assert bool((x.diff() > 0).all())
    shares = norm.ppf((np.arange(count) + 0.5) / count)
    np.testing.assert_allclose(x / x[-1], shares / shares[-1], atol=1e-14)


def test_numbers_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match=r"cannot draw 0 frequencies: .* at least 1"):
        quantiles(0)
    with pytest.raises(ValueError, match="unknown draw 'normal': use 'unbiased' or 'paper'"):
        quantiles(8, "normal")  # type: ignore[arg-type]


@pytest.mark.parametrize("draw", ["unbiased", "paper"])
def test_each_row_is_a_shuffle_of_the_quantiles(draw: str, generator: Generator) -> None:
    x = standard_normal(4, 100, generator=generator, draw=draw)  # type: ignore[arg-type]
    assert x.dtype == torch.float64
    for row in x:
        assert torch.equal(row.sort().values, quantiles(100, draw))  # type: ignore[arg-type]
    assert len({tuple(row.tolist()) for row in x}) == 4


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    first, again, other = (
        standard_normal(3, 64, generator=Generator().manual_seed(s)) for s in (5, 5, 6)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_numbers_of_a_seed_are_these_on_every_machine() -> None:
    a, b, c, d = 0.170522006679272, 0.529825006148233, 0.961651218017327, 1.662959603533378
    golden = torch.tensor(
        [[a, -d, d, -a, -b, b, -c, c], [d, b, -c, a, c, -b, -d, -a], [c, b, -b, -d, -a, -c, a, d]],
        dtype=torch.float64,
    )
    drawn = standard_normal(3, 8, generator=Generator().manual_seed(0))
    torch.testing.assert_close(drawn, golden, rtol=0, atol=1e-14)
    e, f = 0.841621233572914, 0.253347103135800
    golden = torch.tensor([[e, f, -e, -f], [f, -e, e, -f]], dtype=torch.float64)
    drawn = standard_normal(2, 4, generator=Generator().manual_seed(7), draw="paper")
    torch.testing.assert_close(drawn, golden, rtol=0, atol=1e-14)


def test_every_matrix_of_every_scale_has_a_generator_of_its_own() -> None:
    seeds = [
        scale_generator(seed, scale, matrix).initial_seed()  # type: ignore[arg-type]
        for seed in (-1, 0, 1, 2**40)
        for scale in range(4)
        for matrix in "AB"
    ]
    assert len(set(seeds)) == len(seeds)
    assert scale_generator(7, 0, "A").initial_seed() == 7


def test_the_numbers_of_the_authors_are_these() -> None:
    g, h = 0.967421566101701, 0.430727299295457
    golden = torch.tensor(
        [[0, -g, -h, h, g], [0, -h, g, -g, h], [0, g, -h, h, -g]], dtype=torch.float64
    )
    torch.testing.assert_close(authors_standard_normal(3, 5), golden, rtol=0, atol=1e-14)


@pytest.mark.parametrize("seed", [0, 11])
def test_the_draw_of_the_authors_is_a_shuffle_by_numpys_legacy_generator(seed: int) -> None:
    got = authors_standard_normal(3, 256, seed=seed).numpy()
    for axis in range(3):
        order = np.arange(256)
        np.random.RandomState(seed + axis).shuffle(order)
        expected = [norm.ppf((k + 1) / 257) for k in order]
        np.testing.assert_allclose(got[axis], expected, rtol=0, atol=1e-13)


def test_no_draw_touches_a_global_generator(generator: Generator) -> None:
    before, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()
    standard_normal(3, 64, generator=generator)
    authors_standard_normal(3, 64)
    suggest_radius(surface(100, 3, generator))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], legacy)


@pytest.mark.parametrize("neighbors", [1, 8, 64])
def test_half_of_the_points_see_that_many_others_within_the_suggested_radius(
    neighbors: int, generator: Generator
) -> None:
    pos = surface(501, 3, generator)
    distance = torch.cdist(pos, pos).sort(dim=1).values[:, neighbors]  # the first is the point
    assert suggest_radius(pos, neighbors=neighbors) == pytest.approx(float(distance.median()))


def test_the_suggested_radius_scales_with_the_units_and_ignores_where_the_cloud_is(
    generator: Generator,
) -> None:
    pos = surface(400, 3, generator)
    radius = suggest_radius(pos)
    assert suggest_radius(1000 * pos) == pytest.approx(1000 * radius)
    assert suggest_radius(pos + 5e6) == pytest.approx(radius, rel=1e-6)
    assert suggest_radius(pos.float()) == pytest.approx(radius, rel=1e-5)


def test_the_suggested_radius_does_not_depend_on_the_order(generator: Generator) -> None:
    pos = surface(1500, 3, generator)
    assert suggest_radius(pos[torch.randperm(1500, generator=generator)]) == suggest_radius(pos)
    large = surface(20_000, 3, generator)  # of which only a sample is looked at
    radius = suggest_radius(large)
    order = torch.randperm(20_000, generator=generator)
    assert suggest_radius(large[order]) == pytest.approx(radius, rel=0.02)


def test_a_cloud_smaller_than_the_number_of_neighbors_still_gets_a_radius() -> None:
    pair = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    assert suggest_radius(pair) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("pos", "match"),
    [
        (torch.zeros(1, 3), r"shape \(1, 3\): pass one cloud of at least two points"),
        (torch.zeros(2, 5, 3), r"shape \(2, 5, 3\): pass one cloud"),
        (torch.full((4, 3), torch.nan), "NaN or infinite coordinates; drop them"),
        (
            torch.zeros(100, 3),
            "coincide with 64 others; remove duplicate points or give",
        ),
    ],
)
def test_a_cloud_without_a_density_gets_an_error_that_says_why(
    pos: torch.Tensor, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        suggest_radius(pos)
