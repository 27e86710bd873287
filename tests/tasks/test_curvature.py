"""Curvature against the formulas of spheres, tori and cylinders, in any units, under noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from experiments.jets import jet
from torch import Generator, Tensor

from veckm.data import Shape, shapes
from veckm.data.statue import make_statue
from veckm.tasks.normals import curvature
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.pyramid import Subsets
from veckm.tasks.normals.stats import stats_of


def principal_curvatures(pos: Tensor, normal: Tensor) -> Tensor:  # (N, 3), (N, 3) -> (N, 2)
    """Of a whole cloud, given its normals, in one over a length."""
    if not len(pos):
        return pos.new_zeros(0, 2)
    stats, rows = stats_of(pos), np.arange(len(pos))
    subsets = Subsets(stats.scaled(pos.double().numpy()), rows)
    return (curvature.part_curvatures(subsets, normal, rows) / stats.spacing).to(pos)


def normals(shape: Shape) -> Tensor:
    assert shape.normal is not None
    return shape.normal


def torus_curvature(pos: Tensor) -> Tensor:
    """1 / r across the tube, cos / (R + r cos) around the axis; R = 0.7, r = 0.3."""
    cos = (pos[:, :2].norm(dim=-1) - 0.7) / 0.3
    return torch.stack((torch.full_like(cos, 1 / 0.3), cos / (0.7 + 0.3 * cos)), -1)


def error(found: Tensor, expected: Tensor | float) -> float:
    """The largest error but for one in a hundred."""
    return float((found - expected).abs().amax(-1).quantile(0.99))


def test_a_sphere_has_one_over_its_radius() -> None:
    shape = shapes.sphere(5000)
    found = principal_curvatures(4 * shape.pos, normals(shape))
    assert found.shape == (5000, 2)
    assert error(found, 0.25) < 0.005


def test_a_torus_has_the_curvatures_of_its_formula() -> None:
    shape = shapes.torus(10_000)
    found = principal_curvatures(shape.pos, normals(shape))
    assert error(found, torus_curvature(shape.pos)) < 0.1


def test_a_cylinder_is_curved_one_way_and_its_caps_not_at_all() -> None:
    shape = shapes.cylinder(10_000)
    found = principal_curvatures(shape.pos, normals(shape))
    x, y, z = shape.pos.unbind(-1)
    side = (normals(shape)[:, 2] == 0) & (z.abs() < 0.7)
    cap = (normals(shape)[:, 2] != 0) & (torch.hypot(x, y) < 0.4)
    assert error(found[side], torch.tensor([2.0, 0.0])) < 0.05
    assert error(found[cap], 0.0) < 1e-3


def test_a_hollow_is_negative_and_the_other_normal_changes_all_signs() -> None:
    shape = shapes.torus(3000)
    out = principal_curvatures(shape.pos, normals(shape))
    into = principal_curvatures(shape.pos, -normals(shape))
    torch.testing.assert_close(into, -out.flip(-1))
    assert bool((out[:, 0] >= out[:, 1]).all())
    assert float(out[:, 0].min()) > 2


def test_the_signs_of_the_other_normals_do_not_matter(generator: Generator) -> None:
    shape = shapes.torus(3000)
    sign = torch.rand(3000, 1, generator=generator).sub(0.5).sign()
    sign[:100] = 1
    mixed = principal_curvatures(shape.pos, sign * normals(shape))
    torch.testing.assert_close(mixed[:100], principal_curvatures(shape.pos, normals(shape))[:100])


@pytest.mark.parametrize("scale", [1e-3, 1e6])
def test_curvature_is_one_over_a_length(scale: float) -> None:
    shape = shapes.statue(3000)
    pos = shape.pos.double()
    small = principal_curvatures(scale * pos, normals(shape)) * scale
    torch.testing.assert_close(
        small, principal_curvatures(pos, normals(shape)), rtol=1e-6, atol=1e-6
    )


def test_a_far_cloud_has_the_same_curvature() -> None:
    shape = shapes.torus(3000)
    pos = shape.pos.double()
    near, far = (principal_curvatures(x, normals(shape)) for x in (pos, pos + 1e6))
    assert error(far, near) < 1e-4


def test_a_shuffled_cloud_has_the_same_curvature(generator: Generator) -> None:
    shape, order = shapes.statue(3000), torch.randperm(3000, generator=generator)
    here = principal_curvatures(shape.pos, normals(shape))
    there = principal_curvatures(shape.pos[order], normals(shape)[order])
    torch.testing.assert_close(there, here[order], rtol=1e-4, atol=1e-4)


def noisy_sphere(generator: Generator, noise: float) -> tuple[Tensor, Tensor]:
    pos = shapes.sphere(10_000).pos
    pos = pos + noise * torch.randn(pos.shape, generator=generator)
    normal = pca_normals(pos, 60)
    return pos, normal * (normal * pos).sum(-1, keepdim=True).sign()


def median_error(pos: Tensor, normal: Tensor, expected: Tensor | float) -> float:
    found = principal_curvatures(pos, normal).mean(-1)
    return float((found - expected).abs().median())


def test_under_noise_large_neighborhoods_are_taken(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pos, normal = noisy_sphere(generator, 0.02)
    chosen = median_error(pos, normal, 1.0)
    monkeypatch.setattr(curvature, "LEVELS", 1)
    assert chosen < 0.3 * median_error(pos, normal, 1.0)
    assert chosen < 0.08


def test_on_a_clean_surface_small_neighborhoods_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = shapes.statue(6000)
    expected = statue_mean_curvature(shape)
    chosen = median_error(shape.pos, normals(shape), expected)
    monkeypatch.setattr(curvature, "LEVELS", 1)
    assert chosen < 1.2 * median_error(shape.pos, normals(shape), expected)
    monkeypatch.setattr(curvature, "NEIGHBORS", 150)
    assert chosen < 0.3 * median_error(shape.pos, normals(shape), expected)


def test_normals_say_what_noisy_heights_cannot(generator: Generator) -> None:
    pos = shapes.sphere(10_000).pos
    normal = pos
    pos = pos + 0.01 * torch.randn(pos.shape, generator=generator)
    assert median_error(pos, normal, 1.0) < 0.1
    # a jet, which has the heights alone, does not know
    assert float((jet(pos, 24)[1].mean(-1).abs() - 1).abs().median()) > 0.5


def statue_mean_curvature(shape: Shape) -> Tensor:
    """2 H = div n, the normal continued along the rays, by central differences."""
    form, pos, h = make_statue(0), shape.pos.double(), 1e-5

    def field(x: Tensor) -> Tensor:
        # Any continuation by unit vectors will do: the derivative of n along n is across n.
        return torch.nn.functional.normalize(form.gradient(x), dim=-1)

    steps = h * torch.eye(3, dtype=torch.float64)
    div = sum((field(pos + e) - field(pos - e))[:, c] / (2 * h) for c, e in enumerate(steps))
    assert isinstance(div, Tensor)
    return div / 2


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 6])
def test_a_handful_of_points_has_a_finite_answer_and_two_have_none(n: int) -> None:
    shape = shapes.sphere(7)
    found = principal_curvatures(shape.pos[:n], normals(shape)[:n])
    assert found.shape == (n, 2)
    assert bool(torch.isfinite(found).all())
    assert n >= 3 or not bool(found.any())


def test_places_lines_and_planes_are_flat(generator: Generator) -> None:
    up = torch.tensor([0.0, 0.0, 1.0])
    line = torch.linspace(0, 1, 50)[:, None] * torch.tensor([1.0, 2.0, 0.0])
    flat = torch.rand(500, 3, generator=generator) * torch.tensor([1.0, 1.0, 0.0])
    for pos in (torch.full((40, 3), 0.3), line, flat):
        found = principal_curvatures(pos, up.expand_as(pos))
        assert float(found.abs().max()) < 1e-4


def test_duplicates_do_not_break_the_fit() -> None:
    shape = shapes.sphere(300)
    pos, normal = shape.pos.repeat_interleave(30, 0), normals(shape).repeat_interleave(30, 0)
    found = principal_curvatures(pos, normal)
    assert bool(torch.isfinite(found).all())
    assert float(found.abs().max()) < 3
