"""The six sets: the same clouds, with noise and density as strong as asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from veckm.data import shapes
from veckm.data.meshes import Mesh
from veckm.data.primitives import Torus, prism
from veckm.data.protocol import (
    NOISE,
    SETS,
    LabeledCloud,
    add_noise,
    gradient_density,
    make_cloud,
    stripe_density,
)
from veckm.data.sampling import Surface, diagonal


def cube() -> Mesh:
    """The unit cube with its corner at the origin, outward."""
    corner = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [f for a, b, c, d in quads for f in ((a, b, c), (a, c, d))]
    return Mesh(corner, torch.tensor(faces))


every_set = pytest.mark.parametrize("name", SETS)


@every_set
def test_a_cloud_has_the_points_and_evaluates_the_subset_asked_for(name: str) -> None:
    cloud = make_cloud(cube(), name, seed=1, n=4000, evaluated=500, name="cube")
    assert (cloud.name, cloud.set, cloud.curvature) == ("cube", name, None)
    assert cloud.pos.shape == cloud.normal.shape == (4000, 3)
    assert cloud.pos.dtype == cloud.normal.dtype == torch.float32
    assert cloud.subset.dtype == torch.int64
    assert len(cloud.subset.unique()) == 500
    assert 0 <= int(cloud.subset.min()) <= int(cloud.subset.max()) < 4000


def test_the_sets_without_density_share_their_points_and_differ_by_the_noise() -> None:
    clouds = {name: make_cloud(cube(), name, seed=2, n=20_000) for name in SETS}
    clean = clouds["none"]
    for name in ("low", "med", "high"):
        assert torch.equal(clouds[name].normal, clean.normal)
        assert torch.equal(clouds[name].subset, clean.subset)
        noise = (clouds[name].pos - clean.pos).std()
        assert float(noise) == pytest.approx(NOISE[name] * diagonal(clean.pos), rel=0.02)
    assert [NOISE[name] for name in SETS] == [0.0, 0.0012, 0.006, 0.012, 0.0, 0.0]


@pytest.mark.parametrize("name", ["stripe", "gradient"])
def test_uneven_sets_lie_on_the_shape_and_are_uneven(name: str) -> None:
    even, uneven = (make_cloud(cube(), key, 3, 60_000) for key in ("none", name))
    on_face = ((uneven.pos.abs() < 1e-6) | ((uneven.pos - 1).abs() < 1e-6)).any(-1)
    assert bool(on_face.all())

    def spread(cloud: LabeledCloud) -> float:
        """Deviation of the counts of 144 squares on each of six faces, as a share of their mean."""
        face = (cloud.normal @ torch.tensor([1.0, 2.0, 3.0])).round().long() + 3
        flat = cloud.pos[cloud.normal == 0].view(-1, 2)  # along the face
        square = (flat * 12).long().clamp(0, 11)
        cell = (face * 12 + square[:, 0]) * 12 + square[:, 1]
        counts = torch.bincount(cell, minlength=7 * 144).view(7, 144)[[0, 1, 2, 4, 5, 6]].double()
        return float(counts.std() / counts.mean())

    assert spread(even) < 0.14  # 70 in a square, give or take a root of 70
    assert spread(uneven) > 0.4


@every_set
def test_a_surface_gives_its_curvature_too(name: str) -> None:
    cloud = make_cloud(Torus(0.4), name, seed=4, n=2000, evaluated=100)
    assert cloud.curvature is not None
    assert cloud.curvature.shape == (2000, 2)
    torch.testing.assert_close(cloud.curvature[:, 0], torch.full((2000,), 2.5))


@pytest.mark.parametrize("source", [cube(), prism(4)], ids=["mesh", "solid"])
def test_the_same_seed_gives_the_same_cloud(source: Surface) -> None:
    first, again, other = (make_cloud(source, "stripe", seed, n=500) for seed in (1, 1, 2))
    assert torch.equal(first.pos, again.pos)
    assert torch.equal(first.subset, again.subset)
    assert not torch.equal(first.pos, other.pos)


def test_an_unknown_set_is_a_clear_error() -> None:
    with pytest.raises(ValueError, match=r"set must be one of none, low, med, .* got 'noise'"):
        make_cloud(cube(), "noise")


def test_noise_has_the_size_asked_for_in_every_direction() -> None:
    pos = shapes.box(50_000).pos * 10
    moved = add_noise(pos, 0.006, seed=1) - pos
    # The standard error of a standard deviation is 1 / sqrt(2 n) of it.
    for axis in range(3):
        assert float(moved[:, axis].std()) == pytest.approx(0.006 * diagonal(pos), rel=0.015)
    assert float(moved.mean(0).norm()) < 0.002 * diagonal(pos)
    assert diagonal(pos) == pytest.approx(20 * (0.7**2 + 0.55**2 + 0.4**2) ** 0.5, rel=1e-3)


def test_a_seed_moves_every_point_the_same_way_at_every_size() -> None:
    pos = shapes.box(1000).pos.double()
    small, large = (add_noise(pos, share, seed=5) - pos for share in (0.001, 0.01))
    torch.testing.assert_close(10 * small, large)
    assert not torch.equal(add_noise(pos, 0.01, seed=6), pos + large)
    assert torch.equal(add_noise(pos, 0.0), pos)


def test_the_gradient_falls_evenly_from_one_to_the_least() -> None:
    pos = shapes.sphere(2000).pos.double()
    density = gradient_density(pos, seed=2, least=0.2)(pos)
    assert float(density.max()) == pytest.approx(1)
    assert float(density.min()) == pytest.approx(0.2)
    # It is linear in the position: a plane fits it exactly.
    design = torch.cat((pos, torch.ones(len(pos), 1).double()), dim=1)
    fit = torch.linalg.lstsq(design, density.unsqueeze(1)).solution
    torch.testing.assert_close((design @ fit).squeeze(1), density)


def test_beyond_the_ends_the_gradient_stays_within_its_bounds() -> None:
    pos = shapes.sphere(100).pos.double()
    far = gradient_density(pos, seed=2, least=0.2)(100 * pos)
    assert 0.2 <= float(far.min()) <= float(far.max()) <= 1


def test_stripes_are_dense_and_sparse_in_turn() -> None:
    pos = shapes.sphere(4000).pos.double()
    density = stripe_density(pos, seed=3, least=0.1, bands=4)
    u = directions_of(density)
    t = torch.linspace(-0.999, 0.999, 4000, dtype=torch.float64)
    along = density(t.unsqueeze(-1) * u)
    assert sorted(along.unique().tolist()) == [0.1, 1.0]
    # Four periods across the ball have eight borders, one more or less by the phase.
    assert int((along.diff() != 0).sum()) in (7, 8)
    assert float((along == 1).double().mean()) == pytest.approx(0.5, abs=0.08)


def directions_of(density: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The direction across the stripes: the one with the most borders along it."""
    candidates = shapes.sphere(2000, seed=8).pos.double()
    t = torch.linspace(-0.999, 0.999, 200, dtype=torch.float64)
    values = density((t[None, :, None] * candidates[:, None, :]).reshape(-1, 3)).view(2000, 200)
    return candidates[(values.diff(dim=1) != 0).sum(1).argmax()]


@pytest.mark.parametrize("make", [gradient_density, stripe_density])
def test_the_seed_decides_the_direction(make: Callable[..., Callable[..., torch.Tensor]]) -> None:
    pos = shapes.sphere(500).pos.double()
    first, again, other = (make(pos, seed=seed)(pos) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda pos: add_noise(pos, -0.1), r"from 0 up, got -0\.1"),
        (lambda pos: add_noise(pos, float("nan")), "from 0 up, got nan"),
        (lambda pos: gradient_density(pos, least=0.0), r"above 0 and at most 1, got 0\.0"),
        (lambda pos: stripe_density(pos, least=1.5), r"above 0 and at most 1, got 1\.5"),
        (lambda pos: stripe_density(pos, bands=0), "bands must be at least 1, got 0"),
    ],
)
def test_a_wrong_option_says_what_was_got(
    call: Callable[[torch.Tensor], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call(torch.rand(10, 3, generator=torch.Generator().manual_seed(0)))
