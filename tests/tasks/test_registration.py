"""Registration of two clouds, and all places of a part in a scene."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import veckm
from veckm.data import shapes
from veckm.data.sampling import make_generator, rotation
from veckm.tasks.registration import find, matching, register
from veckm.tasks.registration.consensus import consensus, kabsch
from veckm.tasks.registration.matching import mutual_matches
from veckm.tasks.registration.sampling import downsample, voxel_size
from veckm.tasks.registration.surface import Surface, refine


def motion(seed: int = 0, far: float = 5.0) -> torch.Tensor:  # (4, 4)
    generator = make_generator(seed)
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = rotation(generator)
    T[:3, 3] = far * torch.randn(3, generator=generator, dtype=torch.float64)
    return T


def moved(pos: torch.Tensor, T: torch.Tensor) -> torch.Tensor:
    return pos.double() @ T[:3, :3].t() + T[:3, 3]


def views(count: int = 6000, cut: float = 0.35) -> tuple[torch.Tensor, torch.Tensor]:
    """Two samplings of a statue, each without one side."""
    a, b = (shapes.statue(count, seed).pos.double() for seed in (1, 2))
    return a[a[:, 0] < cut], b[b[:, 0] > -cut]


def error(found: torch.Tensor, T: torch.Tensor) -> tuple[float, float]:
    """Degrees, and distance at the origin."""
    cos = ((found[:3, :3].t() @ T[:3, :3]).trace() - 1) / 2
    return float(cos.clamp(-1, 1).acos().rad2deg()), float((found[:3, 3] - T[:3, 3]).norm())


@pytest.fixture(scope="module")
def pair() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    source, target = views()
    T = motion()
    return moved(source, torch.linalg.inv(T)), target, T


def test_two_views_come_into_one_frame(
    pair: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    source, target, T = pair
    found = register(source, target)
    degrees, distance = error(found.transform, T)
    assert found.aligned
    assert degrees < 1
    assert distance < 0.1
    assert 0.3 < found.overlap <= 1
    on = found.apply(found.matches[:, 0])[found.inliers]
    apart = (on - found.matches[:, 1][found.inliers]).norm(dim=1)
    assert len(on) > 50
    assert apart.max() < 2 * found.voxel
    assert set(found.seconds) == {"sample", "describe", "match", "solve", "refine"}


@pytest.mark.parametrize("units", [1e-3, 1000.0])
def test_units_large_coordinates_and_gravity(
    pair: tuple[torch.Tensor, torch.Tensor, torch.Tensor], units: float
) -> None:
    _, target, _ = pair
    source, _ = views()
    shift = units * torch.tensor([5e5, 5.2e6, 100.0], dtype=torch.float64)
    c, s = 0.8, 0.6
    turn = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)
    there = units * target + shift
    up = torch.tensor([0.0, 0.0, 1.0])
    found = register(units * (source @ turn), there, up=up)
    assert found.aligned
    expected = units * source + shift
    assert (found.apply(units * (source @ turn)) - expected).abs().max() < 0.1 * units
    assert found.transform[2, 2] == pytest.approx(1, abs=1e-9)


def test_without_the_learnt_projection_it_aligns_too(
    pair: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    source, target, T = pair
    first, second = (register(source, target, learnt=learnt) for learnt in (True, False))
    assert not torch.equal(first.matches[:50], second.matches[:50])
    for found in (first, second):
        assert found.aligned
        assert error(found.transform, T)[0] < 1


def test_the_projection_is_small_and_fits_the_descriptors() -> None:
    path = Path(matching.__file__).parents[2] / "weights" / "descriptors.safetensors"
    assert path.stat().st_size < 1e6
    some = Surface.of(shapes.torus(2000).pos.double().numpy(), 0.1)
    assert matching.features(some).shape[1] == matching.projection().shape[0]


def test_a_point_far_away_does_not_matter_to_the_voxels() -> None:
    x = shapes.torus(5000).pos.double().numpy()
    far = np.concatenate([x, [[1e12, 1e12, 1e12]]])
    assert len(downsample(far, 0.1)) == len(downsample(x, 0.1)) + 1


def test_other_units_are_suspected_where_sizes_differ() -> None:
    statue, box = shapes.statue(3000).pos, shapes.box(3000).pos
    assert "same units" in register(statue * 4, box).note
    assert "same units" not in register(statue, box).note


def test_different_shapes_are_not_aligned() -> None:
    statue, torus = shapes.statue(4000).pos, shapes.box(4000).pos
    found = register(statue, torus)
    assert not found.aligned
    assert found.note


@pytest.mark.parametrize("shape", ["sphere", "plane", "line", "cylinder"])
def test_shapes_that_fit_in_many_ways_are_named(shape: str) -> None:
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(3000, 3, generator=generator)
    pos = {
        "sphere": lambda: shapes.sphere(3000).pos,
        "plane": lambda: u * torch.tensor([1.0, 1.0, 0.0]),
        "line": lambda: u * torch.tensor([1.0, 0.0, 0.0]),
        "cylinder": lambda: torch.stack(
            [(6.3 * u[:, 0]).cos(), (6.3 * u[:, 0]).sin(), 9 * u[:, 1]], 1
        ),
    }[shape]()
    found = register(pos, pos + 1)
    assert not found.aligned
    assert "fits" in found.note


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (torch.zeros(0, 3), "source has 0 points"),
        (torch.rand(3, 3), "source has 3 points"),
        (torch.full((50, 3), torch.nan), "source has NaN"),
        (torch.ones(50, 3), "all points of source are at one position"),
        (torch.rand(50, 2), "source must have shape"),
        (1000 * torch.rand(500, 3), "same units"),
    ],
)
def test_bad_input_is_named(source: torch.Tensor, message: str) -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(500, 3, generator=generator)
    with pytest.raises(ValueError, match=message):
        register(source, target)
    with pytest.raises(ValueError, match="up must be a direction"):
        register(target, target, up=torch.zeros(3))


def test_the_consensus_survives_nine_wrong_matches_in_ten(generator: torch.Generator) -> None:
    p = torch.rand(800, 3, generator=generator, dtype=torch.float64)
    T = motion()
    q = moved(p, T) + 0.002 * torch.randn(800, 3, generator=generator, dtype=torch.float64)
    wrong = torch.rand(800, generator=generator) < 0.9
    q[wrong] = moved(torch.rand(int(wrong.sum()), 3, generator=generator), T)
    found = consensus(p, q, 0.01, 3)
    assert (found.inliers[0] & ~wrong).sum() > 0.9 * (~wrong).sum()
    degrees, _ = error(torch.cat([found.rotation[0], found.translation[0][:, None]], 1), T)
    assert degrees < 1


def test_kabsch_is_exact_and_about_gravity_keeps_z(generator: torch.Generator) -> None:
    p = torch.rand(20, 3, generator=generator, dtype=torch.float64)
    T = motion(3)
    R, t = kabsch(p, moved(p, T), torch.ones(20, dtype=torch.float64))
    torch.testing.assert_close(torch.cat([R, t[:, None]], 1), T[:3])
    R, _ = kabsch(p, moved(p, T), torch.ones(20, dtype=torch.float64), up=True)
    torch.testing.assert_close(R[2], torch.tensor([0.0, 0, 1], dtype=torch.float64))
    assert torch.linalg.det(R).item() == pytest.approx(1)


def test_mutual_matches_are_those_of_all_pairs(generator: torch.Generator) -> None:
    a, b = (torch.rand(n, 5, generator=generator) for n in (300, 200))
    a, b = (torch.nn.functional.normalize(x) for x in (a, b))
    similarity = a @ b.t()
    expected = {
        (i, int(similarity[i].argmax()))
        for i in range(300)
        if int(similarity[:, similarity[i].argmax()].argmax()) == i
    }
    assert {tuple(row) for row in mutual_matches(a, b).tolist()} == expected


def test_refinement_closes_a_small_gap() -> None:
    x = shapes.statue(4000, 1).pos.double().numpy()
    y = shapes.statue(4000, 2).pos.double().numpy()
    small = np.eye(4)
    small[:3, 3] = 0.03
    p, q = Surface.of(x, 0.05), Surface.of(y, 0.05)
    assert np.abs(refine(p, q, small, reach=3.0) - np.eye(4)).max() < 0.005


def test_voxels_have_the_means_of_their_points() -> None:
    x = shapes.torus(5000).pos.double().numpy()
    voxel = voxel_size([x], 500)
    found = downsample(x, voxel)
    assert 300 < len(found) <= 500
    cells = {}
    for row in x:
        cells.setdefault(tuple(np.floor((row - x.min(0)) / voxel).astype(int)), []).append(row)
    means = np.array([np.mean(rows, 0) for _, rows in sorted(cells.items())])
    np.testing.assert_allclose(found, means, atol=1e-12)


def test_all_instances_of_a_part_are_found() -> None:
    part = shapes.statue(3000, 1).pos.double()
    poses = [motion(k, far=0.0) for k in range(2)]
    for k, T in enumerate(poses):
        T[0, 3] = 4.0 * k
    floor = torch.rand(4000, 3, generator=make_generator(5), dtype=torch.float64)
    floor = floor * torch.tensor([10.0, 4.0, 0.0], dtype=torch.float64) - 2
    copies = [moved(shapes.statue(3000, 2 + k).pos, T) for k, T in enumerate(poses)]
    found = find(part, torch.cat([floor, *copies]))
    assert len(found) == 2
    for T in poses:
        assert min(error(each.transform, T)[0] for each in found) < 3
    assert find(part, floor) == []


@pytest.mark.data
@pytest.mark.parametrize("name", ["fgr_noise2_shape3_3", "3dmatch_7scenes_4_5"])
def test_real_pairs_are_aligned(shared_data: object, name: str) -> None:
    data = np.load(f"{shared_data}/registration/{name}.npz")
    source, target = (torch.from_numpy(data[key]) for key in ("source", "target"))
    away = motion(1, far=0.0)
    found = veckm.register(moved(source, away), target)
    expected = torch.from_numpy(data["T"]).double() @ torch.linalg.inv(away)
    assert found.aligned
    assert error(found.transform, expected)[0] < 5
