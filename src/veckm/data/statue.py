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
    check_count,
    check_positive,
    collect,
    directions,
    finish,
    gaussian,
    uniform,
)
from veckm.data.solids import cpu_generator

_WAVES = 28
_DISTANCE = 2.6  # of the scanner from the origin
_PIXELS = 110  # of the depth image across the field of view
_DEPTH_POINTS = 100_000  # that the depth image is made of, several per pixel
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
    return replace(raw, log_scale=float(raw.level(directions(generator, 1 << 17)).min()))


def scan(n: int, seed: Seed = 0, form: int = 0, views: int = 3, noise: float = 0.002) -> Shape:
    r"""n points of a statue as scanned from a few places around it and merged.

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
    generator, n = cpu_generator(seed), check_count(n)
    check_positive("views", views)
    parts: list[tuple[Tensor, Tensor]] = []
    for view in range(min(views, n)):  # fewer points than views leave some without any
        count = n // views + (view < n % views)
        eye = _eye(view, views)
        pos, normal = _seen(form, eye, count, generator)
        beam = torch.nn.functional.normalize(pos - eye, dim=-1)
        parts.append((pos + noise * gaussian(generator, count, 1) * beam, normal))
    return finish(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _eye(view: int, views: int) -> Tensor:  # (3,)
    """Around the statue, at heights that differ a little."""
    angle = 2 * math.pi * view / views + 0.4
    climb = 0.25 + 0.2 * math.sin(2.0 * view)
    place = [math.cos(angle) * math.cos(climb), math.sin(angle) * math.cos(climb), math.sin(climb)]
    return _DISTANCE * torch.tensor(place, dtype=torch.float64)


def _seen(
    form: int, eye: Tensor, n: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:  # (n, 3), (n, 3)
    """Points and normals as dense as the beams that come back to a scanner."""
    solid, (points, normals) = make_statue(form), _depth_points(form)
    nearest = torch.full((_PIXELS**2,), math.inf, dtype=torch.float64)
    pixel, distance, returned = _pixels(points, normals, eye)
    nearest.scatter_reduce_(0, pixel, distance, "amin")
    most = 1.2 * float(returned.max())

    def trial(m: int) -> tuple[Tensor, Tensor]:
        samples = solid.draw(m, generator)
        normal, _ = solid.normals(samples.pos)
        pixel, distance, returned = _pixels(samples.pos, normal, eye)
        front = distance < nearest[pixel] + 0.05  # a slanted surface is that deep within a pixel
        keep = uniform(generator, m) < samples.weight * front * returned / most
        return samples.pos[keep], normal[keep]

    pos, normal = collect(n, trial, 1 << 15)
    return pos, normal


@lru_cache(maxsize=8)
def _depth_points(form: int) -> tuple[Tensor, Tensor]:  # (M, 3), (M, 3)
    """Points all over a statue, to see what hides what."""
    solid = make_statue(form)
    pos = solid.draw(_DEPTH_POINTS, torch.Generator().manual_seed(0)).pos
    return pos, solid.normals(pos)[0]


def _pixels(
    pos: Tensor,  # (N, 3)
    normal: Tensor,  # (N, 3)
    eye: Tensor,  # (3,)
) -> tuple[Tensor, Tensor, Tensor]:  # (N,), (N,), (N,)
    """The pixel of each point in an image from ``eye``, its distance, and beams per area."""
    ray = pos - eye
    distance: Tensor = torch.linalg.vector_norm(ray, dim=-1)
    cosine = -(ray * normal).sum(-1) / distance
    ahead = -eye / eye.norm()
    side = torch.linalg.cross(ahead, ahead.new_tensor([0.0, 0.0, 1.0]))
    side = side / side.norm()
    x, y, depth = (ray @ torch.stack((side, torch.linalg.cross(side, ahead), ahead)).T).unbind(-1)
    field = 1.1 / math.sqrt(_DISTANCE**2 - 1)  # the unit ball fits, with a margin
    column, row = (((c / depth / field + 1) / 2 * _PIXELS).long() for c in (x, y))
    return column * _PIXELS + row, distance, (cosine > _GRAZING) * cosine / distance.square()
