"""Procedural clouds: on their surface, with its normals, even by area, the same for a seed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from veckm.data import Shape, shapes
from veckm.data.lidar import ELEVATION, HEIGHT, RANGE
from veckm.data.statue import make_statue

Maker = Callable[..., Shape]

SURFACES: list[Maker] = [shapes.sphere, shapes.torus, shapes.box, shapes.cylinder, shapes.statue]
EVERY: list[Maker] = [*SURFACES, shapes.scan, shapes.lidar, shapes.house]

every = pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)


def length(x: Tensor) -> Tensor:
    result: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return result


def assert_even(counts: Tensor, expected: Tensor) -> None:
    """Chi-square: its mean is the number of bins and its standard deviation sqrt(2 bins)."""
    counts, expected = counts.double(), expected.double() * counts.sum() / expected.sum()
    assert float(expected.min()) > 20
    chi2 = float(((counts - expected).square() / expected).sum())
    assert chi2 < len(counts) + 5 * (2 * len(counts)) ** 0.5


def histogram(values: Tensor, bins: int, low: float, high: float) -> Tensor:
    return torch.histc(values.double(), bins, low, high)


@every
@pytest.mark.parametrize("n", [1, 2, 1000])
def test_there_are_n_float32_points_in_about_the_unit_ball(make: Maker, n: int) -> None:
    shape = make(n)
    assert shape.pos.shape == (n, 3)
    assert shape.pos.dtype == torch.float32
    assert float(length(shape.pos).max()) < 1.4


@every
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(make: Maker) -> None:
    first, again, other = make(500, seed=3), make(500, seed=3), make(500, seed=4)
    assert torch.equal(first.pos, again.pos)
    assert torch.equal(first.normal, again.normal)
    assert not torch.equal(first.pos, other.pos)


@every
def test_a_generator_is_taken_in_place_of_a_seed_and_moves_on(make: Maker) -> None:
    generator = torch.Generator().manual_seed(3)
    first, second = make(500, seed=generator), make(500, seed=generator)
    assert torch.equal(first.pos, make(500, seed=3).pos)
    assert not torch.equal(first.pos, second.pos)


@every
def test_the_global_generator_is_left_alone(make: Maker) -> None:
    before = torch.get_rng_state()
    make(100)
    assert torch.equal(torch.get_rng_state(), before)


@every
@pytest.mark.parametrize("n", [0, -5])
def test_no_points_or_fewer_is_a_clear_error(make: Maker, n: int) -> None:
    with pytest.raises(ValueError, match=f"n must be at least 1, got {n}"):
        make(n)


@every
def test_a_fraction_of_a_point_is_a_clear_error(make: Maker) -> None:
    with pytest.raises(TypeError, match=r"n must be a whole number, got 1\.5"):
        make(1.5)


@every
def test_normals_have_length_one(make: Maker) -> None:
    normal = make(2000).normal
    assert normal.dtype == torch.float32
    torch.testing.assert_close(length(normal), torch.ones(2000))


def sphere_level(x: Tensor) -> Tensor:
    return length(x) - 1


def torus_level(x: Tensor) -> Tensor:
    return ((length(x[:, :2]) - 0.7).square() + x[:, 2].square()).sqrt() - 0.3


def box_level(x: Tensor) -> Tensor:
    return (x.abs() / x.new_tensor([0.7, 0.55, 0.4])).amax(-1) - 1


def cylinder_level(x: Tensor) -> Tensor:
    return torch.maximum(length(x[:, :2]) / 0.5, x[:, 2].abs() / 0.8) - 1


def statue_level(x: Tensor) -> Tensor:
    """|x| / r(x / |x|) - 1, by the formula of the docstring written out once more."""
    form, u = make_statue(0), torch.nn.functional.normalize(x, dim=-1)
    waves = sum(
        a * torch.sin((u * k).sum(-1) + phase)
        for a, k, phase in zip(form.amplitude, form.kappa, form.phase, strict=True)
    )
    ellipsoid = (u.square() * form.axes).sum(-1).rsqrt()
    return length(x) / (ellipsoid * torch.exp(form.log_scale + waves)) - 1


LEVELS = [sphere_level, torus_level, box_level, cylinder_level, statue_level]
level_sets = pytest.mark.parametrize(
    ("make", "level"),
    list(zip(SURFACES, LEVELS, strict=True)),
    ids=[make.__name__ for make in SURFACES],
)


@level_sets
def test_points_satisfy_the_equation_of_the_surface(
    make: Maker, level: Callable[[Tensor], Tensor]
) -> None:
    assert float(level(make(5000).pos.double()).abs().max()) < 1e-6


@level_sets
def test_normals_are_the_outward_gradient_of_the_equation(
    make: Maker, level: Callable[[Tensor], Tensor]
) -> None:
    shape, h = make(5000), 1e-5
    pos, steps = shape.pos.double(), h * torch.eye(3, dtype=torch.float64)
    slope = torch.stack([level(pos + step) - level(pos - step) for step in steps], -1) / (2 * h)
    slope = torch.nn.functional.normalize(slope, dim=-1)
    error = length(slope - shape.normal)
    # Next to a sharp edge the two sides of the difference are on different faces.
    assert float((error < 1e-4).double().mean()) > 0.999


def test_the_sphere_is_even_in_height_and_longitude() -> None:
    x, y, z = shapes.sphere(50_000).pos.unbind(-1)
    assert_even(histogram(z, 20, -1, 1), torch.ones(20))
    assert_even(histogram(torch.atan2(y, x), 20, -torch.pi, torch.pi), torch.ones(20))


def test_the_torus_is_even_by_area_around_its_tube() -> None:
    x, y, z = shapes.torus(50_000).pos.unbind(-1)
    phi = torch.atan2(z, (x.square() + y.square()).sqrt() - 0.7)
    middle = (torch.arange(24) + 0.5) * (2 * torch.pi / 24) - torch.pi
    smooth = torch.sinc(torch.tensor(1 / 24))  # the mean of cos over a bin, over cos at its middle
    area = 0.7 + 0.3 * smooth * middle.cos()
    assert_even(histogram(phi, 24, -torch.pi, torch.pi), area)


def test_the_box_has_points_on_every_face_by_its_area_and_evenly_on_each() -> None:
    shape = shapes.box(60_000)
    face = shape.normal @ torch.tensor([1.0, 2.0, 3.0])
    counts = torch.stack([(face == k).sum() for k in (-3, -2, -1, 1, 2, 3)])
    assert_even(
        counts, torch.tensor([0.7 * 0.55, 0.7 * 0.4, 0.55 * 0.4]).repeat(2)[[0, 1, 2, 5, 4, 3]]
    )
    top = shape.pos[face == 3]
    assert_even(histogram(top[:, 0], 10, -0.7, 0.7), torch.ones(10))
    assert_even(histogram(top[:, 1], 10, -0.55, 0.55), torch.ones(10))


def test_the_cylinder_is_even_by_area_on_its_side_and_caps() -> None:
    shape = shapes.cylinder(60_000)
    up = shape.normal[:, 2]
    counts = torch.stack([(up == -1).sum(), (up == 0).sum(), (up == 1).sum()])
    assert_even(counts, torch.tensor([0.5 * 0.5, 4 * 0.5 * 0.8, 0.5 * 0.5]))
    assert_even(histogram(shape.pos[up == 0][:, 2], 10, -0.8, 0.8), torch.ones(10))
    radius = length(shape.pos[up == 1][:, :2])
    assert_even(histogram(radius.square(), 10, 0, 0.25), torch.ones(10))


@pytest.mark.parametrize("form", [0, 1])
def test_the_statue_is_even_by_area_over_the_sphere_of_directions(form: int) -> None:
    lattice = torch.nn.functional.normalize(shapes.sphere(400_000, seed=9).pos.double(), dim=-1)
    solid = make_statue(form)
    area = (-2 * solid.level(lattice)).exp() * solid.gradient(lattice).norm(dim=-1)
    expected = torch.zeros(64, dtype=torch.float64).index_add_(0, octants(lattice), area)
    counts = torch.bincount(octants(shapes.statue(40_000, form=form).pos), minlength=64)
    assert_even(counts, expected)


def octants(x: Tensor) -> Tensor:
    """One of 64 bins of the direction of x: 8 of height by 8 of longitude."""
    u = torch.nn.functional.normalize(x, dim=-1)
    height = ((u[:, 2] + 1) * 4).long().clamp(0, 7)
    turn = ((torch.atan2(u[:, 1], u[:, 0]) / torch.pi + 1) * 4).long().clamp(0, 7)
    return height * 8 + turn


def test_other_forms_are_other_statues_within_the_unit_ball() -> None:
    first, second = shapes.statue(5000, form=1), shapes.statue(5000, form=2)
    assert not torch.equal(first.pos, second.pos)
    for shape in (first, second):
        assert 0.9 < float(length(shape.pos).max()) < 1.001


def test_a_scan_is_the_statue_with_noise_along_the_beam_and_parts_unseen() -> None:
    clean, noisy = shapes.scan(20_000, noise=0.0).pos, shapes.scan(20_000, noise=0.002).pos
    assert float(statue_level(clean.double()).abs().max()) < 1e-6
    assert float(length(noisy - clean).std()) < 0.002
    assert 0.001 < float(length(noisy - clean).mean()) < 0.002
    down, whole = torch.tensor([0.0, 0.0, -1.0]), shapes.statue(20_000)
    seen = (shapes.scan(20_000).normal @ down > 0.7).double().mean()
    there = (whole.normal @ down > 0.7).double().mean()
    assert float(seen) < 0.3 * float(there)


def test_lidar_points_without_noise_lie_on_the_ground_in_rings() -> None:
    shape = shapes.lidar(20_000, noise=0.0, meters=True)
    ground = shape.normal[:, 2] == 1
    floor = shape.pos[ground & (shape.pos[:, 2] < 0.1)].double()
    assert float(floor[:, 2].abs().max()) < 1e-5
    angle = torch.linspace(*ELEVATION, 64, dtype=torch.float64).deg2rad()
    rings = HEIGHT / (-angle[angle < -0.01]).tan()
    off = (length(floor[:, :2]).unsqueeze(-1) - rings).abs() / rings
    assert float(off.amin(dim=-1).max()) < 1e-4


def test_lidar_points_get_fewer_with_distance() -> None:
    shape = shapes.lidar(50_000, meters=True)
    distance = length(shape.pos[shape.normal[:, 2] == 1][:, :2])
    edges = torch.tensor([5.0, 10.0, 15.0, 20.0, 30.0, 40.0])
    density = torch.histogram(distance, edges).hist / (edges[1:].square() - edges[:-1].square())
    assert bool((density[1:] < density[:-1]).all())


def test_lidar_sees_no_point_from_behind() -> None:
    shape = shapes.lidar(20_000, noise=0.0, meters=True)
    ray = shape.pos - torch.tensor([0.0, 0.0, HEIGHT])
    assert float((ray * shape.normal).sum(-1).max()) < 0
    assert float(length(ray).max()) < RANGE


def test_a_scanned_house_is_dense_near_the_stations_and_has_noise_along_the_beam() -> None:
    clean, noisy = (shapes.house(9000, noise=s, meters=True).pos for s in (0.0, 0.02))
    off = length(noisy - clean)
    assert 0.014 < float(off.mean()) < 0.018  # of a Gaussian: 0.02 times the root of 2 / pi
    first, last = shapes.house(3000, views=1, noise=0.0, meters=True), clean[-3000:]
    assert torch.equal(shapes.house(9000, noise=0.0, meters=True).pos[-3000:], last)
    eye = torch.tensor([-6.0, -9.5, HEIGHT])
    assert float(((first.pos - eye) * first.normal).sum(-1).max()) < 0
    ground = first.pos[(first.normal[:, 2] == 1) & (first.pos[:, 2].abs() < 1e-4)]
    distance = length(ground - eye)
    assert int((distance < 8).sum()) > 3 * int((distance > 12).sum())


def test_beams_with_a_bias_are_rings_above_and_below_the_ground() -> None:
    shape = shapes.lidar(20_000, noise=0.0, bias=0.05, beams=16, meters=True)
    ground = shape.pos[(shape.normal[:, 2] == 1) & (shape.pos[:, 2] < 0.25)].double()
    ring = (ground[:, 2] - HEIGHT).atan2(length(ground[:, :2])).rad2deg().round(decimals=2)
    heights = [ground[ring == r, 2] for r in ring.unique()]
    heights = [h for h in heights if len(h) > 100]
    assert len(heights) >= 5
    assert max(float(h.std() / h.mean().abs().clamp_min(1e-4)) for h in heights) < 1.0
    assert float(torch.stack([h.mean() for h in heights]).std()) > 1e-3


def test_mixed_returns_lie_between_surfaces_and_have_no_normal() -> None:
    shape = shapes.lidar(20_000, noise=0.0, mixed=0.05)
    none = (shape.normal == 0).all(1)
    assert 0.01 < float(none.double().mean()) < 0.05


def test_a_room_is_seen_from_inside() -> None:
    shape = shapes.lidar(20_000, noise=0.0, room=True, meters=True, scene=3)
    ray = shape.pos - torch.tensor([0.0, 0.0, HEIGHT])
    assert float((ray * shape.normal).sum(-1).max()) < 0
    assert float(shape.pos[:, :2].abs().max()) < 10
    assert float((shape.normal[:, 2] < 0.5).double().mean()) > 0.2


def test_airborne_lines_are_dense_along_and_on_roofs_and_ground() -> None:
    shape = shapes.airborne(20_000, noise=0.0)
    assert len(shape.pos) == 20_000
    up = shape.normal[:, 2] > 0.99
    assert float(up.double().mean()) > 0.9
    height = shape.pos[up, 2]
    assert float((height.abs() < 1e-3).double().mean()) > 0.3
    assert float((height > 3).double().mean()) > 0.1


def test_lidar_in_meters_is_the_same_scan_times_the_range() -> None:
    small, large = shapes.lidar(1000), shapes.lidar(1000, meters=True)
    torch.testing.assert_close(small.pos * RANGE, large.pos)


def test_many_lidar_points_come_from_several_revolutions_down_the_street() -> None:
    shape = shapes.lidar(400_000, meters=True, noise=0.0)
    assert len(shape.pos) == 400_000
    ground = shape.pos[shape.normal[:, 2] == 1]
    nearest = length(ground[:, :2]).min()
    assert float(nearest) < HEIGHT / torch.tensor(-ELEVATION[0]).deg2rad().tan() - 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shapes.torus(5, minor=0.8), "a ring needs major >= minor"),
        (lambda: shapes.torus(5, minor=0.0), r"minor must be positive .* got 0\.0"),
        (
            lambda: shapes.box(5, half=(1.0, -1.0, 1.0)),
            "half length must be positive",
        ),
        (lambda: shapes.cylinder(5, radius=0.0), "radius must be positive"),
        (lambda: shapes.scan(5, views=0), "views must be at least 1, got 0"),
        (lambda: shapes.house(5, views=5), "views must be at most 4, got 5"),
        (lambda: shapes.lidar(5, beams=0), "beams must be at least 1, got 0"),
    ],
)
def test_a_wrong_option_says_what_was_got(call: Callable[[], Shape], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
