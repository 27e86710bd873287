"""Signs of normals: towards a place, up, or as the neighbors say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from veckm.data import Shape, shapes
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.orient import orient
from veckm.tasks.normals.votes import votes

Maker = Callable[..., Shape]
CLOSED: list[Maker] = [shapes.sphere, shapes.torus, shapes.box, shapes.cylinder, shapes.statue]
closed = pytest.mark.parametrize("make", CLOSED, ids=lambda make: make.__name__)


def normals(shape: Shape) -> Tensor:
    assert shape.normal is not None
    return shape.normal


def shuffled(normal: Tensor, generator: Generator) -> Tensor:
    """The same lines with random signs."""
    return normal * torch.rand(len(normal), 1, generator=generator).sub(0.5).sign()


def right(found: Tensor, expected: Tensor) -> float:
    """The share of points that face the right way."""
    return float(((found * expected).sum(-1) > 0).double().mean())


@closed
@pytest.mark.parametrize("n", [1000, 10_000])
def test_exact_normals_of_a_closed_surface_all_face_outwards(
    make: Maker, n: int, generator: Generator
) -> None:
    shape = make(n)
    found = orient(shape.pos, shuffled(normals(shape), generator))
    assert right(found, normals(shape)) == 1


@closed
@pytest.mark.parametrize("noise", [0.0, 0.015])
def test_estimated_normals_of_a_noisy_surface_nearly_all_face_outwards(
    make: Maker, noise: float, generator: Generator
) -> None:
    shape = make(10_000)
    pos = shape.pos + noise * torch.randn(shape.pos.shape, generator=generator)
    found = orient(pos, pca_normals(pos, 12 if noise == 0 else 60))
    assert right(found, normals(shape)) > 0.985


def test_only_the_signs_change_and_the_given_ones_do_not_matter(generator: Generator) -> None:
    shape = shapes.statue(5000)
    normal = pca_normals(shape.pos, 12)
    found = orient(shape.pos, normal)
    assert bool(((found == normal) | (found == -normal)).all(-1).all())
    assert torch.equal(found, orient(shape.pos, shuffled(normal, generator)))


def test_units_place_and_order_of_the_cloud_do_not_matter(generator: Generator) -> None:
    shape = shapes.torus(5000)
    pos, normal = shape.pos.double(), shuffled(normals(shape), generator)
    order = torch.randperm(5000, generator=generator)
    assert right(orient(pos[order], normal[order]), normals(shape)[order]) == 1
    for moved in (pos + 1e6, 1e-3 * pos, 1e3 * pos):
        assert torch.equal(orient(moved, normal), orient(pos, normal))


def test_separate_pieces_each_face_outwards(generator: Generator) -> None:
    ball, box = shapes.sphere(4000), shapes.box(4000)
    pos = torch.cat((ball.pos, 0.5 * ball.pos + 10, 2 * box.pos - 30))
    normal = torch.cat((normals(ball), normals(ball), normals(box)))
    assert right(orient(pos, shuffled(normal, generator)), normal) == 1


def test_open_pieces_that_are_round_face_outwards_wherever_they_are(generator: Generator) -> None:
    shape = shapes.sphere(8000)
    top = normals(shape)[shape.pos[:, 2] > 0]
    pos = torch.cat((top - 20 * torch.eye(3)[2], top))  # one hemisphere far below the other
    normal = torch.cat((top, top))
    assert right(orient(pos, shuffled(normal, generator)), normal) == 1


def test_a_surface_in_stripes_is_still_one_piece(generator: Generator) -> None:
    shape = shapes.sphere(60_000)
    keep = (shape.pos[:, 2] * 20).floor().long() % 3 == 0  # gaps of a hundred points' spacing
    normal = normals(shape)[keep]
    assert right(orient(shape.pos[keep], shuffled(normal, generator)), normal) == 1


def test_both_sides_of_a_thin_plate_face_outwards(generator: Generator) -> None:
    shape = shapes.box(20_000, half=(0.7, 0.55, 0.02))  # points are 0.012 apart
    found = orient(shape.pos, shuffled(normals(shape), generator))
    assert right(found, normals(shape)) > 0.99


def test_votes_are_certain_across_a_sharp_edge_and_nothing_through_a_sheet() -> None:
    x = np.array([[0.0, 0, 0], [1, 0, -1], [0, 0, -1], [0, 1, 0], [0, 0, 0]])
    n = np.array([[0.0, 0, 1], [1, 0, 0], [0, 0, -1], [0, 0, -1], [0, 0, 1]])
    i = np.array([0, 0, 0, 0])
    vote = votes(x, n, i, np.array([1, 2, 3, 4]))
    # round the corner; straight through; beside, turned; in the same place
    np.testing.assert_allclose(vote, [0.25, 0.0, -1.0, 1.0], atol=1e-12)


def test_a_flat_piece_is_turned_up(generator: Generator) -> None:
    pos = torch.rand(500, 3, generator=generator)
    for axis, facing in ((2, 2), (0, 0), (1, 1)):
        flat = pos.clone()
        flat[:, axis] = 0.3
        normal = torch.eye(3)[facing].expand(500, 3)
        assert torch.equal(orient(flat, shuffled(normal, generator)), normal)


def test_ground_that_a_sensor_sees_at_a_grazing_angle_is_turned_up() -> None:
    pos = torch.tensor([[60.0, 0.0, 0.0], [60.0, 0.0, 0.0], [60.0, 0.0, 4.0]])
    normal = torch.tensor([[-0.1, 0.0, -1.0], [0.99, 0.0, 0.1], [0.1, 0.0, 1.0]])  # a bit wrong
    normal = torch.nn.functional.normalize(normal, dim=1)
    found = orient(pos, normal, "viewpoint", viewpoint=(0.0, 0.0, 1.7))
    assert found[0, 2] > 0  # not down, though that is the side of the sensor
    assert found[1, 0] < 0  # a wall
    assert found[2, 2] < 0  # above the sensor, as a ceiling is


def test_towards_a_viewpoint(generator: Generator) -> None:
    shape = shapes.sphere(1000)
    normal = shuffled(normals(shape), generator)
    inside = orient(shape.pos, normal, "viewpoint", viewpoint=(0.1, 0.0, 0.2))
    assert right(inside, -normals(shape)) == 1
    places = shape.pos + 2 * shuffled(normals(shape), generator)  # one for each point
    each = orient(shape.pos, normal, "viewpoint", viewpoint=places)
    assert right(each, places - shape.pos) == 1


def test_up(generator: Generator) -> None:
    shape = shapes.sphere(1000)
    normal = shuffled(normals(shape), generator)
    assert bool((orient(shape.pos, normal, "up")[:, 2] >= 0).all())


def test_a_normal_at_right_angles_to_up_has_one_answer_too() -> None:
    normal = torch.tensor([[-1.0, 0, 0], [1, 0, 0], [0, -1, 0], [0, 1, 0]])
    found = orient(torch.zeros(4, 3), normal, "up")
    assert torch.equal(found, torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]]))


def test_none_changes_nothing() -> None:
    shape = shapes.sphere(10)
    assert torch.equal(orient(shape.pos, -normals(shape), "none"), -normals(shape))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("how", ["none", "up", "consistent"])
def test_a_handful_of_points_is_no_special_case(n: int, how: str) -> None:
    shape = shapes.sphere(3)
    found = orient(shape.pos[:n], normals(shape)[:n], how)
    assert found.shape == (n, 3)
    assert bool(torch.isfinite(found).all())


def test_one_point_is_turned_up_whatever_its_sign() -> None:
    normal = torch.tensor([[0.6, 0.0, -0.8]])
    for sign in (1, -1):
        assert torch.equal(orient(torch.ones(1, 3), sign * normal), -normal)


def test_duplicates_agree_with_each_other(generator: Generator) -> None:
    shape = shapes.sphere(500)
    pos, normal = shape.pos.repeat_interleave(30, 0), normals(shape).repeat_interleave(30, 0)
    assert right(orient(pos, shuffled(normal, generator)), normal) == 1


def test_gradients_pass_through_the_signs() -> None:
    shape = shapes.sphere(100)
    normal = (-normals(shape)).requires_grad_()
    orient(shape.pos, normal).sum().backward()
    assert normal.grad is not None
    assert torch.equal(normal.grad, torch.full((100, 3), -1.0))


def test_bad_input_says_what_was_got() -> None:
    shape = shapes.sphere(10)
    pos, normal = shape.pos, normals(shape)
    with pytest.raises(ValueError, match=r'"up" or "consistent", got \'down\''):
        orient(pos, normal, "down")
    with pytest.raises(ValueError, match=r"normal must have shape \(10, 3\), .* got \(9, 3\)"):
        orient(pos, normal[:9])
    with pytest.raises(ValueError, match="normal has NaN or infinite values"):
        orient(pos, normal * torch.nan)
    with pytest.raises(TypeError, match=r"normal has dtype torch\.int64; use float32"):
        orient(pos, normal.long())
    with pytest.raises(ValueError, match=r"pass viewpoint=\(x, y, z\)"):
        orient(pos, normal, "viewpoint")
    with pytest.raises(
        ValueError, match=r"viewpoint must have shape \(3,\) or \(10, 3\), got \(2,\)"
    ):
        orient(pos, normal, "viewpoint", viewpoint=(0, 1))
