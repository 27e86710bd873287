"""Solids: points on their surface, its normals and curvatures, uniform by area."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from veckm.data import Shape, shapes
from veckm.data.primitives import Frustum, Hull, Superellipsoid, Torus, Wavy, prism
from veckm.data.random_solids import random_shape, random_surface
from veckm.data.sampling import directions, rotation, uniform
from veckm.data.solids import Solid
from veckm.data.statue import make_statue


def wavy(seed: int = 0, waves: int = 10, axes: tuple[float, ...] = (1.0, 1.0, 1.0)) -> Wavy:
    g = torch.Generator().manual_seed(seed)
    size = torch.linspace(2, 8, waves, dtype=torch.float64)
    kappa = size.unsqueeze(-1) * directions(g, waves)
    return Wavy(kappa, 6 * uniform(g, waves), 0.25 / size, torch.tensor(axes).double())


def tilt(solid: Solid, seed: int = 1) -> Solid:
    """Rotated, sheared, mirrored and moved."""
    g = torch.Generator().manual_seed(seed)
    matrix = rotation(g) @ torch.diag(torch.tensor([0.6, -1.4, 1.0]).double()) @ rotation(g)
    return solid.transformed(matrix, torch.tensor([3.0, -1.0, 2.0]).double())


def shift(solid: Solid, x: float, y: float, z: float) -> Solid:
    return solid.transformed(torch.eye(3, dtype=torch.float64), torch.tensor([x, y, z]).double())


SMOOTH: dict[str, Solid] = {
    "ball": Superellipsoid(),
    "pillow": Superellipsoid(2.0, 5.0),
    "dice": Superellipsoid(6.0, 3.5),
    "spinning_top": Superellipsoid(2.5, 1.5),
    "wavy": wavy(),
    "wavy_ellipsoid": wavy(axes=(0.5, 1.0, 2.0)),
    "torus": Torus(0.4),
    "cylinder": Frustum(1.0),
    "bucket": Frustum(0.4),
    "cone": Frustum(0.0),
    "box": prism(4),
    "pyramid": prism(3, 0.0),
    "stone": Hull(directions(torch.Generator().manual_seed(2), 15)),
}
COMBINED: dict[str, Solid] = {
    "ball_or_torus": Superellipsoid() | Torus(0.3),
    "box_minus_ball": prism(4) - shift(Superellipsoid(), 0.5, 0.2, 0.8),
    "cone_and_wavy": Frustum(0.0) & wavy(3),
    "bracket": (prism(4) | shift(Frustum(1.0).stretched((0.3, 0.3, 2.0)), 0.1, 0.0, 0.0)) - Torus(),
}
TILTED = {f"tilted_{name}": tilt(solid) for name, solid in (SMOOTH | COMBINED).items()}
SOLIDS = SMOOTH | COMBINED | TILTED
every = pytest.mark.parametrize("solid", SOLIDS.values(), ids=SOLIDS.keys())


def visible(solid: Solid, m: int = 400) -> tuple[Tensor, Tensor, Tensor]:
    """Points, normals and curvatures of candidates that are on the surface."""
    pos, area = solid.draw(m, torch.Generator().manual_seed(5))
    pos = pos[area > 0]
    assert len(pos) > m / 10
    return pos, *solid.differentiate(pos)


def slope(solid: Solid, x: Tensor) -> Tensor:
    """The gradient of the level, by autograd."""
    x = x.detach().requires_grad_()
    (result,) = torch.autograd.grad(solid.level(x).sum(), x)
    return result


def unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=-1)


def most(values: Tensor) -> float:
    """All but the two percent that may lie within a step of an edge."""
    return float(values.double().quantile(0.98))


@every
def test_points_are_on_the_surface_and_normals_point_out_of_it(solid: Solid) -> None:
    pos, normal, _ = visible(solid)
    assert float(solid.level(pos).abs().max()) < 1e-9
    assert float((solid.level(pos + 1e-4 * normal) > 0).double().mean()) > 0.99
    assert float((solid.level(pos - 1e-4 * normal) < 0).double().mean()) > 0.99


@every
def test_normals_are_the_gradient_of_the_level(solid: Solid) -> None:
    pos, normal, _ = visible(solid)
    torch.testing.assert_close(normal.norm(dim=-1), torch.ones(len(pos)).double())
    off = (unit(slope(solid, pos + 1e-9 * normal)) - normal).norm(dim=-1)
    assert most(off) < 1e-5


@every
def test_curvatures_are_how_the_normal_turns(solid: Solid) -> None:
    pos, normal, got = visible(solid)
    # The map dn on the tangent plane by central differences of the gradient of the level.
    s = unit(torch.linalg.cross(directions(torch.Generator().manual_seed(6), len(pos)), normal))
    t = torch.linalg.cross(normal, s)
    base, step = pos + 1e-9 * normal, 1e-5
    turn = [
        (unit(slope(solid, base + step * v)) - unit(slope(solid, base - step * v))) / (2 * step)
        for v in (s, t)
    ]
    matrix = torch.stack([torch.stack([(v * d).sum(-1) for d in turn], -1) for v in (s, t)], -2)
    expected = torch.linalg.eigvalsh((matrix + matrix.mT) / 2).flip(-1)
    assert bool((got[:, 0] >= got[:, 1]).all())
    assert most((got - expected).abs().amax(-1) / (1 + expected.abs().amax(-1))) < 1e-4


@pytest.mark.parametrize("make", [shapes.sphere, shapes.torus, shapes.box, shapes.cylinder])
def test_simple_shapes_have_the_curvatures_of_the_same_solids(make: Callable[..., Shape]) -> None:
    twins: dict[str, Solid] = {
        "sphere": Superellipsoid(),
        "torus": Torus(0.3 / 0.7).stretched((0.7, 0.7, 0.7)),
        "box": prism(4).stretched((0.5, 0.5, 0.5)),
        "cylinder": Frustum(1.0).stretched((0.5, 0.5, 0.8)),
    }
    shape, twin = make(4000), twins[make.__name__].sample(4000)
    assert shape.curvature is not None
    assert twin.curvature is not None
    for k in range(2):
        a, b = (np.sort(c[:, k].numpy()) for c in (shape.curvature, twin.curvature))
        share = np.linspace(0.05, 0.95, 9)
        np.testing.assert_allclose(np.quantile(a, share), np.quantile(b, share), atol=0.1)


def test_a_ball_of_radius_r_bends_by_one_over_r_and_a_hollow_by_minus_that() -> None:
    ball = Superellipsoid().stretched((0.5, 0.5, 0.5))
    curvature = ball.sample(100).curvature
    torch.testing.assert_close(curvature, torch.full((100, 2), 2.0))
    hollow = (prism(4).stretched((2.0, 2.0, 2.0)) - ball).sample(20_000)
    assert hollow.curvature is not None
    inner = hollow.pos.norm(dim=-1) < 0.51
    assert int(inner.sum()) > 100
    torch.testing.assert_close(
        hollow.curvature[inner], torch.full((int(inner.sum()), 2), -2.0), rtol=1e-4, atol=1e-4
    )


def assert_even(counts: Tensor, expected: Tensor) -> None:
    """Chi-square: its mean is the number of bins and its standard deviation sqrt(2 bins)."""
    counts, expected = counts.double(), expected.double() * counts.sum() / expected.sum()
    assert float(expected.min()) > 20
    chi2 = float(((counts - expected).square() / expected).sum())
    assert chi2 < len(counts) + 5 * (2 * len(counts)) ** 0.5


def octants(x: Tensor) -> Tensor:
    """One of 32 bins of the direction of x: 4 of height by 8 of longitude."""
    u = unit(x)
    height = ((u[:, 2] + 1) * 2).long().clamp(0, 3)
    return height * 8 + ((torch.atan2(u[:, 1], u[:, 0]) / torch.pi + 1) * 4).long().clamp(0, 7)


@pytest.mark.parametrize(
    "solid",
    [
        Superellipsoid().stretched((1.0, 0.6, 0.3)),
        Superellipsoid(6.0, 3.5),
        wavy(),
        Frustum(0.4).stretched((1.0, 0.4, 0.7)),
        prism(5, 0.3),
        prism(4) | shift(Superellipsoid(), 0.3, 0.4, 0.2),
    ],
    ids=["ellipsoid", "dice", "wavy", "bucket", "prism", "combined"],
)
def test_points_are_even_by_area_over_the_sphere_of_directions(solid: Solid) -> None:
    # Area from rays: all of these are seen whole from the origin, so dA = r^2 / (n . u) d omega.
    u = directions(torch.Generator().manual_seed(7), 60_000)
    low, high = torch.zeros(len(u), 1).double() + 0.05, torch.full((len(u), 1), 5.0).double()
    for _ in range(32):
        middle = (low + high) / 2
        inside = solid.level(middle * u).unsqueeze(-1) < 0
        low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
    x = low * u
    area = low.squeeze(-1).square() / (unit(slope(solid, x)) * u).sum(-1)
    expected = torch.zeros(32, dtype=torch.float64).index_add_(0, octants(u), area)
    counts = torch.bincount(octants(solid.sample(12_000).pos), minlength=32)
    assert_even(counts, expected)


def test_combined_boxes_have_their_faces_by_area() -> None:
    # Two cubes of side 2 that share a corner cube of side 1, turned so that faces are on axes.
    g = torch.Generator().manual_seed(0)
    cube = Hull(2 * torch.cartesian_prod(*[torch.tensor([-0.5, 0.5]).double()] * 3))
    both = [cube | shift(cube, 1, 1, 1), cube - shift(cube, 1, 1, 1), cube & shift(cube, 1, 1, 1)]
    areas = [[4.0, 3.0], [4.0, 3.0, 1.0], [1.0, 1.0]]
    planes = [[-1, 1], [-1, 1, 0], [0, 1]]
    for solid, area, plane in zip(both, areas, planes, strict=True):
        shape = solid.sample(12_000, g)
        across = shape.pos[shape.normal[:, 0].abs() > 0.5][:, 0]
        counts = torch.stack([((across - x).abs() < 1e-5).sum() for x in plane])
        assert_even(counts, torch.tensor(area))


def test_the_wall_of_a_hollow_faces_the_hole() -> None:
    shape = (prism(4) - Frustum(1.0).stretched((0.3, 0.3, 2.0))).sample(5000)
    wall = shape.pos[:, :2].norm(dim=-1) < 0.3001
    assert int(wall.sum()) > 100
    wall &= shape.normal[:, 2].abs() < 0.5
    assert float((shape.pos * shape.normal)[wall][:, :2].sum(-1).max()) < -0.29


RANDOM = range(16)


@pytest.mark.parametrize("seed", RANDOM)
def test_random_shapes_agree_with_their_own_points(seed: int) -> None:
    n = 5000
    shape = random_shape(n, seed)
    assert shape.curvature is not None
    assert shape.pos.shape == shape.normal.shape == (n, 3)
    assert shape.curvature.shape == (n, 2)
    for part in (shape.pos, shape.normal, shape.curvature):
        assert part.dtype == torch.float32
        assert bool(part.isfinite().all())
    assert 0.8 < float(shape.pos.norm(dim=-1).max()) < 1.05
    # The plane through a point and its neighbors has about the normal, except near edges.
    pos = shape.pos.double().numpy()
    near = torch.from_numpy(pos[cKDTree(pos).query(pos[:500], k=10)[1]])  # (500, 10, 3)
    near = near - near.mean(1, keepdim=True)
    plane = torch.linalg.eigh(near.mT @ near).eigenvectors[:, :, 0]
    angle = (plane * shape.normal[:500]).sum(-1).abs().clamp_max(1).acos().rad2deg()
    assert float(angle.median()) < 8


def test_random_shapes_are_of_many_kinds() -> None:
    flat, hollow, kinds = 0, 0, set()
    for seed in RANDOM:
        surface = random_surface(seed)
        curvature = surface.sample(1000).curvature
        assert curvature is not None
        flat += float((curvature.abs().amax(-1) < 1e-4).double().mean()) > 0.5
        hollow += float((curvature[:, 1] < -0.5).double().mean()) > 0.1
        kinds.add(type(getattr(surface, "solid", surface)).__name__)
    assert 2 <= flat <= 13
    assert 2 <= hollow <= 13
    assert {"Combined", "Wavy"} < kinds


def test_a_surface_can_be_sampled_again_and_again() -> None:
    surface = random_surface(3)
    first, again, other = (surface.sample(500, seed) for seed in (1, 1, 2))
    assert torch.equal(first.pos, again.pos)
    assert not torch.equal(first.pos, other.pos)
    level = surface.level(other.pos.double())
    assert float(level.abs().max()) < 1e-4


def test_the_same_seed_gives_the_same_shape_and_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (random_shape(300, seed) for seed in (1, 1, 2))
    assert torch.equal(first.pos, again.pos)
    assert not torch.equal(first.pos, other.pos)
    generator = torch.Generator().manual_seed(1)
    assert torch.equal(random_shape(300, generator).pos, first.pos)
    assert not torch.equal(random_shape(300, generator).pos, first.pos)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Superellipsoid(1.0), r"above 1 and at most 50, got 1\.0"),
        (lambda: Torus(1.1), r"above 0 and at most 1, got 1\.1"),
        (lambda: Frustum(-0.5), r"from 0 to 1, got -0\.5"),
        (lambda: prism(2), "3 sides or more"),
        (lambda: prism(4).stretched((1.0, 0.0, 1.0)), r"every factor must be positive .* got 0\.0"),
        (lambda: Hull(torch.zeros(5, 3).double()).sample(5), "not in a plane"),
        (lambda: (prism(4) & shift(prism(4), 9, 0, 0)).sample(5), "cut each other away"),
        (lambda: random_shape(0), "n must be at least 1, got 0"),
    ],
)
def test_a_wrong_option_says_what_was_got(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("number", range(6))
def test_formulas_of_derivatives_equal_autograd(number: int) -> None:
    solid = random_surface(number) if number else make_statue(0)
    x = solid.sample(300, 1).pos.double()
    gradient, hessian = Solid.derivatives(solid, x)
    torch.testing.assert_close(solid.derivatives(x), (gradient, hessian))
    torch.testing.assert_close(solid.gradient(x), gradient)
