"""Clouds with known normals: the six sets as the protocol defines them."""

from __future__ import annotations

import pytest
import torch

from veckm.data.corrupt import diagonal
from veckm.data.meshes import Mesh
from veckm.data.primitives import Torus, prism
from veckm.data.protocol import NOISE, SETS, LabeledCloud, make_cloud
from veckm.data.sampling import Surface


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
