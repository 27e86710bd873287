"""Descriptors: against direct sums over all pairs, and what they must not depend on."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.special import sph_harm_y

import veckm
from veckm.data import shapes
from veckm.data.sampling import rotation
from veckm.descriptors import harmonics, sphere

RADIUS, SHELLS, DEGREE = 0.8, (1.0, 2.5), 4
AXES = [None, "one", "each"]


def cloud(count: int = 60, seed: int = 0) -> torch.Tensor:
    """A few points in a box, float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, generator=generator, dtype=torch.float64)


def axes(kind: str | None, count: int) -> torch.Tensor | None:
    """No axis, one for all or one per point."""
    if kind is None:
        return None
    found = cloud(count, seed=7) - 0.5
    return found[0] if kind == "one" else found


def turned(generator: torch.Generator) -> torch.Tensor:
    """A random rotation."""
    return rotation(generator).double()


def real_harmonic(deg: int, m: int, u: torch.Tensor) -> torch.Tensor:
    """Y_lm at one direction, written out."""
    polar, azimuth = math.acos(max(-1.0, min(1.0, float(u[2])))), math.atan2(u[1], u[0])
    y = complex(sph_harm_y(deg, abs(m), polar, azimuth)) * (-1) ** m
    value = y.real if m == 0 else math.sqrt(2) * (y.real if m > 0 else y.imag)
    return torch.tensor(value, dtype=torch.float64)


def frame(axis: torch.Tensor) -> torch.Tensor:
    """A rotation whose third row is the axis."""
    z = axis / axis.norm()
    x = torch.linalg.cross(torch.eye(3, dtype=z.dtype)[int(z.abs().argmin())], z)
    x = x / x.norm()
    return torch.stack([x, torch.linalg.cross(z, x), z])


def by_definition(pos: torch.Tensor, axis: torch.Tensor | None) -> torch.Tensor:
    """Direct sums over all pairs, explicit loops over points, shells, deg and m."""
    beta = 1.8 / RADIUS
    squared = (pos[:, None] - pos[None]).square().sum(-1)
    window = torch.exp(-(beta**2) * squared / 2)
    density = window.sum(1)
    rows = []
    for q in range(len(pos)):
        z = pos - pos[q]
        if axis is not None:
            z = z @ frame(axis if axis.dim() == 1 else axis[q]).t()
        w = window[q] / density
        w = w / w.sum()
        c: list[dict[tuple[int, int], torch.Tensor]] = []
        for rho in SHELLS:
            ball = sphere(*degrees(rho))
            G = [(w * torch.exp(1j * (z @ (rho * beta * u)))).sum() for u in ball.directions]
            here = {}
            for deg in range(ball.degree + 1):
                for m in range(-deg, deg + 1):
                    part = [g.imag if deg % 2 else g.real for g in G]
                    here[deg, m] = sum(
                        weight * real_harmonic(deg, m, u) * g
                        for weight, u, g in zip(ball.weights, ball.directions, part, strict=True)
                    )
            c.append(here)
        rows.append(any_rotation(c) if axis is None else about_an_axis(c))
    return torch.stack(rows)


def degrees(rho: float) -> tuple[int, int]:
    """Those that the module takes for a shell."""
    made = veckm.Descriptor(RADIUS, shells=[rho], degree=DEGREE)
    ball = made.spheres[0]
    return ball.degree, ball.exact


def any_rotation(c: list[dict[tuple[int, int], torch.Tensor]]) -> torch.Tensor:
    """sign(P) sqrt|P| for s <= s'."""
    out = []
    for s in range(len(c)):
        for other in range(s, len(c)):
            highest = min(max(deg for deg, _ in c[s]), max(deg for deg, _ in c[other]))
            for deg in range(highest + 1):
                P = sum(c[s][deg, m] * c[other][deg, m] for m in range(-deg, deg + 1))
                out.append(P / (P.abs() + 1e-8).sqrt())
    return torch.stack(out)


def about_an_axis(c: list[dict[tuple[int, int], torch.Tensor]]) -> torch.Tensor:
    """c_{deg,0}, then the moduli of the pairs."""
    out = []
    for here in c:
        out += [here[deg, m] for deg, m in here if m == 0]
        pairs = [here[deg, m].square() + here[deg, -m].square() for deg, m in here if m > 0]
        out += [(pair + 1e-8).sqrt() - 1e-4 for pair in pairs]
    return torch.stack(out)


def described(pos: torch.Tensor, axis: torch.Tensor | None = None, **more: object) -> torch.Tensor:
    options = {"radius": RADIUS, "shells": SHELLS, "degree": DEGREE, "eps": 1e-8, **more}
    return veckm.describe(pos, axis=axis, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", AXES)
def test_values_and_gradients_are_those_of_direct_sums(kind: str | None) -> None:
    pos = cloud(6).requires_grad_()
    axis = axes(kind, 6)
    # The twin turns the cloud, the module the coefficients: equal up to the quadrature.
    fast, slow = described(pos, axis), by_definition(pos, axis)
    tolerance = 1e-9 if axis is None else 1e-2
    torch.testing.assert_close(fast, slow, atol=tolerance, rtol=1e-6)
    weight = torch.sin(torch.arange(fast.numel(), dtype=fast.dtype)).view_as(fast)
    (first,) = torch.autograd.grad((fast * weight).sum(), pos)
    (second,) = torch.autograd.grad((slow * weight).sum(), pos)
    error = (first - second).norm() / second.norm()
    assert error < (1e-6 if axis is None else 5e-2)


@pytest.mark.parametrize("kind", AXES)
def test_nothing_changes_when_the_cloud_turns_and_moves(
    kind: str | None, generator: torch.Generator
) -> None:
    pos, R = cloud(), turned(generator)
    axis = axes(kind, 60)
    after = described(pos @ R.t() + 3, None if axis is None else axis @ R.t())
    torch.testing.assert_close(described(pos, axis), after, atol=1e-2, rtol=0)


def test_turning_about_gravity_changes_nothing_and_tilting_does() -> None:
    pos, up = cloud(), torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    c, s = math.cos(0.7), math.sin(0.7)
    about = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)
    tilt = torch.tensor([[1, 0, 0], [0, c, -s], [0, s, c]], dtype=torch.float64)
    before = described(pos, up)
    torch.testing.assert_close(before, described(pos @ about.t(), up), atol=1e-2, rtol=0)
    assert (before - described(pos @ tilt.t(), up)).abs().max() > 0.1


def test_the_order_of_the_points_does_not_matter(generator: torch.Generator) -> None:
    pos = cloud()
    order = torch.randperm(60, generator=generator)
    torch.testing.assert_close(described(pos)[order], described(pos[order]), atol=1e-9, rtol=0)


def test_it_scales_with_the_radius() -> None:
    pos = cloud()
    scaled = described(1000 * pos, radius=1000 * RADIUS)
    torch.testing.assert_close(described(pos), scaled, atol=1e-9, rtol=0)


def test_resampling_changes_little_with_density_weights_and_more_without() -> None:
    even = shapes.torus(8000, 1).pos
    queries = shapes.torus(50, 2).pos
    some = shapes.torus(30_000, 3).pos
    generator = torch.Generator().manual_seed(0)
    keep = torch.rand(len(some), generator=generator) < (some[:, 0] - some[:, 0].min()) / 3 + 0.05
    uneven = some[keep]  # 20 times as dense on one side

    def change(density: bool) -> float:
        a, b = (
            veckm.describe(x, radius=0.5, queries=queries, density=density) for x in (even, uneven)
        )
        return float((a - b).norm() / a.norm())

    weighed, plain = change(True), change(False)
    assert weighed < 0.12
    assert weighed < 0.8 * plain


def test_an_axis_tells_a_bump_from_a_dent_and_without_one_they_are_the_same() -> None:
    grid = torch.linspace(-1, 1, 41, dtype=torch.float64)
    x, y = (each.flatten() for each in torch.meshgrid(grid, grid, indexing="ij"))
    height = 0.4 * torch.exp(-4 * (x**2 + y**2))
    bump, dent = torch.stack([x, y, height], 1), torch.stack([x, y, -height], 1)
    up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    top = len(x) // 2

    def at_top(pos: torch.Tensor, axis: torch.Tensor | None) -> torch.Tensor:
        return described(pos, axis, radius=0.5, queries=pos[top : top + 1])

    assert (at_top(bump, up) - at_top(dent, up)).abs().max() > 0.2
    torch.testing.assert_close(at_top(bump, None), at_top(dent, None), atol=1e-2, rtol=0)


@pytest.mark.parametrize("degree", [0, 3, 8])
def test_the_quadrature_is_exact(degree: int) -> None:
    ball = sphere(degree, 2 * degree)
    same = torch.tensor([(l1 + l2) % 2 == 0 for l1 in ball.order[0] for l2 in ball.order[0]])
    inner = (ball.harmonics * ball.weights[:, None]).t() @ ball.harmonics
    # Products of an odd and an even degree vanish over opposites, which are left out.
    count = (degree + 1) ** 2
    expected = torch.eye(count, dtype=torch.float64)
    assert ((inner - expected) * same.view(count, count)).abs().max() < 1e-12
    assert ball.weights.sum().item() == pytest.approx(4 * math.pi)


def test_coefficients_turn_with_the_axis_as_the_function_does(generator: torch.Generator) -> None:
    ball = sphere(5, 10)
    c = torch.rand(36, generator=generator, dtype=torch.float64)
    for axis in (*torch.eye(3).double(), *-torch.eye(3).double(), *(cloud(5) - 0.5)):
        axis = axis / axis.norm()
        turned_c = ball.to_pole(c[:, None], axis[None])[:, 0]
        pole = torch.tensor([[0.0, 0.0, 1.0]]).numpy()
        there = torch.from_numpy(harmonics(axis[None].numpy(), 5)) @ c
        assert (torch.from_numpy(harmonics(pole, 5)) @ turned_c - there).abs() < 1e-9
        assert turned_c.norm() == pytest.approx(c.norm())


def test_several_radii_stand_side_by_side_and_clouds_of_a_batch_alone() -> None:
    pos = cloud(40).float()
    both = veckm.describe(pos, radius=(0.4, 0.8))
    alone = [veckm.describe(pos, radius=r) for r in (0.4, 0.8)]
    torch.testing.assert_close(both, torch.cat(alone, -1))
    batch = torch.arange(40) // 20
    together = veckm.describe(pos, radius=0.8, batch=batch)
    torch.testing.assert_close(
        together[20:], veckm.describe(pos[20:], radius=0.8), atol=2e-3, rtol=0
    )
    padded = veckm.describe(pos.view(2, 20, 3), radius=0.8)
    torch.testing.assert_close(padded.flatten(0, 1), together, atol=2e-3, rtol=0)


def test_a_radius_comes_from_the_density() -> None:
    pos = shapes.torus(800).pos
    radius = veckm.suggest_radius(pos, neighbors=256)
    torch.testing.assert_close(veckm.describe(pos), veckm.describe(pos, radius=radius))
    assert veckm.Descriptor()(pos).shape == veckm.describe(pos).shape


def test_nothing_in_reach_is_zero() -> None:
    far = torch.full((1, 3), 100.0, dtype=torch.float64)
    assert described(cloud(), queries=far).abs().max() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": -1.0}, "radius must be positive"),
        ({"shells": ()}, "shells is empty"),
        ({"degree": -1}, "degree must be at least 0"),
        ({"axis": torch.ones(2)}, "axis must be a float tensor"),
        ({"axis": torch.zeros(3)}, "length zero"),
        ({"weights": -torch.ones(60)}, "negative"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        veckm.describe(cloud(), **{"radius": 1.0, **options})  # type: ignore[arg-type]
