"""A closed organic surface, whole or as a scanner sees it from a few places."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from veckm.data.primitives import Wavy
from veckm.data.sampling import (
    Seed,
    Shape,
    directions,
    finish,
    gaussian,
    make_generator,
    pick,
    uniform,
)
from veckm.inputs import check_count

_WAVES = 28
_DISTANCE = 2.6  # of the scanner from the origin
_PIXELS = 110  # of the depth image across the field of view
_DIRECTIONS = 100_000  # of the lattice, so that several fall into a pixel
_GRAZING = 0.12  # cosine of the incidence below which no light comes back


def statue(n: int, seed: Seed = 0, form: int = 0) -> Shape:
    r"""n points of a closed organic surface, uniform by area, with exact normals.

    .. math:: x = r(u)\, u, \qquad \log r(u) = c - \tfrac12 \log(u^T M u)
              + \sum_k a_k \sin(\kappa_k \cdot u + \phi_k)

    An ellipsoid with waves of falling amplitude; star-shaped about the origin.

    Args:
        n: number of points.
        seed: an int or a torch.Generator; decides the points, not the surface.
        form: which statue.

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    return make_statue(form).sample(n, seed)


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # the cached tensors take part in derivatives
def make_statue(form: int) -> Wavy:
    """The statue number ``form``, whose farthest point is on the unit sphere."""
    generator = torch.Generator().manual_seed(form)
    size = torch.logspace(0.3, 1.4, _WAVES, dtype=torch.float64)  # |kappa| from 2 to 25
    kappa = size.unsqueeze(-1) * directions(generator, _WAVES)
    phase = 2 * torch.pi * uniform(generator, _WAVES)
    amplitude = 0.2 * size**-1.0 * (1 + 0.3 * gaussian(generator, _WAVES))
    axes = torch.tensor([0.62, 0.55, 1.0], dtype=torch.float64) ** -2
    raw = Wavy(kappa, phase, amplitude, axes)
    return replace(raw, log_scale=float(raw.level(_lattice()).min()))


def scan(n: int, seed: Seed = 0, form: int = 0, views: int = 3, noise: float = 0.002) -> Shape:
    r"""n points of a statue as scanned from a few places around it and merged.

    .. math:: \text{density} \propto
              \sum_v \frac{[\text{seen from } c_v] \cos\theta_v}{|x - c_v|^2},
              \qquad x' = x + \sigma \xi \frac{x - c_v}{|x - c_v|}

    Hidden parts are missing, slanted parts are sparse, and views overlap, as in a real scan.
    The normals are those of the surface without noise.

    Args:
        n: number of points, split evenly over the views.
        seed: an int or a torch.Generator; decides the points, not the surface.
        form: which statue.
        views: number of places to scan from.
        noise: sigma, the standard deviation along the beam.

    Shapes:
        - pos, normal: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n, "n")
    check_count(views, "views")
    solid, u = make_statue(form), _lattice()
    whole, facing, area = solid.at(u)
    spacing = math.sqrt(4 * math.pi / _DIRECTIONS)
    parts: list[tuple[Tensor, Tensor]] = []
    for view in range(min(views, n)):  # fewer points than views leave some without any
        count = n // views + (view < n % views)
        angle, climb = 2 * math.pi * view / views + 0.4, 0.25 + 0.2 * math.sin(2.0 * view)
        place = (math.cos(angle) * math.cos(climb), math.sin(angle) * math.cos(climb))
        eye = _DISTANCE * torch.tensor([*place, math.sin(climb)], dtype=torch.float64)
        # Directions of the lattice by the light that they return, moved within its spacing.
        rows = pick(area * _returned_light(whole, facing, eye), uniform(generator, count))
        pos, normal, _ = solid.at(u[rows] + spacing / 2 * gaussian(generator, count, 3))
        beam = torch.nn.functional.normalize(pos - eye, dim=-1)
        parts.append((pos + noise * gaussian(generator, count, 1) * beam, normal))
    return finish(*(torch.cat(part) for part in zip(*parts, strict=True)))


@lru_cache(maxsize=1)
@torch.inference_mode(False)
def _lattice() -> Tensor:  # (F, 3)
    """Nearly evenly spread directions: a Fibonacci spiral."""
    k = torch.arange(_DIRECTIONS, dtype=torch.float64)
    z, phi = 1 - (2 * k + 1) / _DIRECTIONS, k * math.pi * (3 - math.sqrt(5))
    rho = (1 - z.square()).sqrt()
    return torch.stack((rho * phi.cos(), rho * phi.sin(), z), dim=-1)


def _returned_light(pos: Tensor, normal: Tensor, eye: Tensor) -> Tensor:  # (F,)
    """Beams per area that come back to the scanner: 0 where hidden or too slanted."""
    ray = pos - eye
    distance: Tensor = torch.linalg.vector_norm(ray, dim=-1)
    cosine = -(ray * normal).sum(-1) / distance
    ahead = -eye / eye.norm()
    side = torch.linalg.cross(ahead, ahead.new_tensor([0.0, 0.0, 1.0]))
    side = side / side.norm()
    x, y, depth = (ray @ torch.stack((side, torch.linalg.cross(side, ahead), ahead)).T).unbind(-1)
    field = 1.1 / math.sqrt(_DISTANCE**2 - 1)  # the unit ball fits, with a margin
    column, row = (((c / depth / field + 1) / 2 * _PIXELS).long() for c in (x, y))
    pixel = column * _PIXELS + row
    nearest = torch.full((_PIXELS**2,), math.inf, dtype=torch.float64)
    nearest.scatter_reduce_(0, pixel, distance, "amin")
    front = distance < nearest[pixel] + 0.05  # a slanted surface is that deep within a pixel
    return front * (cosine > _GRAZING) * cosine / distance.square()
