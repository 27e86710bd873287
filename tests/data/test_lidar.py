"""The ray caster of the street against marching along the rays."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from veckm.data.house import make_house
from veckm.data.lidar import _rays
from veckm.data.street import Street, make_street


def inside(street: Street, x: Tensor) -> Tensor:
    """Whether points (..., 3) are in a box, in a pole or underground, one object at a time."""
    hit = x[..., 2] < 0
    for box in street.boxes:
        (center, half), (yaw, tilt) = box[:6].split(3), box[6:]
        y, c, s = x - center, yaw.cos(), yaw.sin()
        a, b, z = c * y[..., 0] + s * y[..., 1], c * y[..., 1] - s * y[..., 0], y[..., 2]
        up, out = tilt.cos(), tilt.sin()
        local = torch.stack((a, up * b + out * z, up * z - out * b), -1)
        hit |= (local.abs() < half).all(-1)
    for pole in street.poles:
        hit |= ((x[..., :2] - pole[:2]).norm(dim=-1) < pole[2]) & (x[..., 2] < pole[3])
    return hit


Trial = tuple[Street, Tensor, Tensor]


@pytest.fixture(params=["street", "varied street", "house"])
def trial(request: pytest.FixtureRequest) -> Trial:
    """A street, also with bays and curbs, or the house with its tilted roof; and some rays."""
    origin, ray = _rays(3.0, torch.linspace(0.1, 6.2, 60), torch.linspace(-0.4, 0.2, 16).double())
    if request.param == "street":
        return make_street(0), origin, ray
    if request.param == "varied street":
        return replace(make_street(2, varied=True), trees=None), origin, ray
    return make_house(), torch.tensor([-8.0, -9.0, 5.0]).double(), ray


def test_a_ray_is_free_up_to_its_hit_and_blocked_behind_it(trial: Trial) -> None:
    street, origin, ray = trial
    distance, _ = street.cast(origin, ray)
    hit = distance.isfinite() & (distance < 60)
    assert int(hit.sum()) > 500
    ray, distance = ray[hit], distance[hit, None]
    assert bool(inside(street, origin + (distance + 1e-3) * ray).all())
    for fraction in torch.linspace(0.01, 0.99, 200):
        assert not bool(inside(street, origin + fraction * distance * ray).any())


def test_a_ray_that_hits_nothing_meets_nothing_on_its_way(trial: Trial) -> None:
    street, origin, ray = trial
    distance, _ = street.cast(origin, ray)
    free = distance.isinf()
    assert int(free.sum()) > 20
    for t in torch.linspace(0.5, 100, 400):
        assert not bool(inside(street, origin + t * ray[free]).any())


def test_normals_point_out_of_what_was_hit(trial: Trial) -> None:
    street, origin, ray = trial
    distance, normal = street.cast(origin, ray)
    hit = distance.isfinite() & (distance < 60)
    place = origin + distance[hit, None] * ray[hit]
    torch.testing.assert_close(normal[hit].norm(dim=-1), torch.ones(int(hit.sum())).double())
    assert not bool(inside(street, place + 2e-3 * normal[hit]).any())
    assert bool(inside(street, place - 2e-3 * normal[hit]).all())


def test_other_scenes_are_other_streets_and_always_the_same() -> None:
    make_street.cache_clear()
    first = make_street(1)
    make_street.cache_clear()
    assert torch.equal(first.boxes, make_street(1).boxes)
    assert not torch.equal(first.boxes, make_street(2).boxes)


def test_light_goes_into_crowns_or_through_them_and_leaves_have_no_normal() -> None:
    street = make_street(2, varied=True)
    assert street.trees is not None
    origin, ray = _rays(0.0, torch.linspace(0, 6.28, 600), torch.linspace(-0.3, 0.3, 40).double())
    distance, normal = street.cast(origin, ray, torch.Generator().manual_seed(0))
    bare, _ = replace(street, trees=None).cast(origin, ray)
    leaf = distance < bare
    assert torch.equal(leaf, ~normal.any(1))
    at = origin + distance[leaf, None] * ray[leaf]
    center, half, path = street.trees.split((3, 3, 1), dim=1)
    assert float(((at[:, None] - center) / half).norm(dim=-1).amin(1).max()) < 1
    # Denser crowns stop more of the light.
    dense, thin = (
        replace(street, trees=torch.cat((center, half, factor * path), 1)) for factor in (0.1, 10.0)
    )
    stopped = [
        int((s.cast(origin, ray, torch.Generator().manual_seed(0))[0] < bare).sum())
        for s in (dense, street, thin)
    ]
    assert stopped[0] > stopped[1] > 1.5 * stopped[2] > 0
    with pytest.raises(ValueError, match="needs a generator"):
        street.cast(origin, ray)
