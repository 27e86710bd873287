"""A statue as a scanner sees it: from a few places, the front only, with noise along the beam."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from veckm.data.sampling import (
    Seed,
    Shape,
    check_count,
    check_positive,
    finish,
    gaussian,
    make_generator,
)
from veckm.data.statue import draw, make_form

_DISTANCE = 2.6  # of the scanner from the origin
_PIXELS = 110  # of the depth image across the field of view, coarser than the cells of the statue
_GRAZING = 0.12  # cosine of the incidence below which no light comes back


def scan(n: int, seed: Seed = 0, form: int = 0, views: int = 3, noise: float = 0.002) -> Shape:
    r"""n points of a statue as scanned from a few places around it and put together.

    .. math:: \text{density} \propto
              \sum_v \frac{[\text{seen from } c_v] \cos\theta_v}{|x - c_v|^2},
              \qquad x' = x + \sigma \xi \frac{x - c_v}{|x - c_v|}

    Hidden parts are missing, slanted parts are sparse, and views overlap, as in a real scan.
    The normals are those of the surface without noise. The sample that the CLI starts with.

    Args:
        n: number of points, split evenly over the views.
        seed: an int or a torch.Generator; decides the points, not the surface.
        form: which statue.
        views: number of places to scan from.
        noise: sigma, the standard deviation along the beam.

    Shapes:
        - pos, normal: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n)
    check_positive("views", views)
    field = make_form(form)
    pos, normal, area = field.at_cells()
    seen: list[tuple[Tensor, Tensor]] = []
    for view in range(min(views, n)):  # fewer points than views leave some without any
        count = n // views + (view < n % views)
        eye = _eye(view, views)
        at, up = draw(field, area, _visibility(pos, normal, eye), count, generator)
        beam = torch.nn.functional.normalize(at - eye.to(at), dim=-1)
        seen.append((at + noise * gaussian(generator, count, 1) * beam, up))
    return finish(*(torch.cat(parts) for parts in zip(*seen, strict=True)))


def _eye(view: int, views: int) -> Tensor:  # (3,)
    """Around the statue, at heights that differ a little."""
    turn = 2 * math.pi * view / views + 0.4
    climb = 0.25 + 0.2 * math.sin(2.0 * view)
    spot = [math.cos(turn) * math.cos(climb), math.sin(turn) * math.cos(climb), math.sin(climb)]
    return _DISTANCE * torch.tensor(spot, dtype=torch.float64)


def _visibility(
    pos: Tensor,  # (F, 3)
    normal: Tensor,  # (F, 3)
    eye: Tensor,  # (3,)
) -> Tensor:  # (F,)
    """Beams per area that come back to the scanner: 0 where hidden or too slanted."""
    ray = pos - eye
    distance: Tensor = torch.linalg.vector_norm(ray, dim=-1)
    cosine = -(ray * normal).sum(-1) / distance
    front = _in_front(ray, distance, eye) & (cosine > _GRAZING)
    return front * cosine / distance.square()


def _in_front(
    ray: Tensor,  # (F, 3)
    distance: Tensor,  # (F,)
    eye: Tensor,  # (3,)
) -> Tensor:  # (F,) bool
    """Whether a point is the nearest of its pixel in a depth image, give or take."""
    ahead = -eye / eye.norm()
    side = torch.linalg.cross(ahead, ahead.new_tensor([0.0, 0.0, 1.0]))
    side = side / side.norm()
    frame = torch.stack((side, torch.linalg.cross(side, ahead), ahead))  # (3, 3)
    x, y, depth = (ray @ frame.T).unbind(-1)
    plane = torch.stack((x, y), dim=-1) / depth.unsqueeze(-1)
    field = 1.1 / math.sqrt(_DISTANCE**2 - 1)  # the unit ball fits, with some air
    cell = ((plane / field + 1) / 2 * _PIXELS).long()
    pixel = cell[:, 0] * _PIXELS + cell[:, 1]
    nearest = torch.full((_PIXELS**2,), math.inf, dtype=distance.dtype)
    nearest.scatter_reduce_(0, pixel, distance, "amin")
    return distance < nearest[pixel] + 0.05  # a slanted surface is that deep within a pixel
