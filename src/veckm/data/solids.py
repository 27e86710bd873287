"""Simple shapes with known equations: the ground truth of many tests."""

from __future__ import annotations

import torch

from veckm.data.sampling import (
    Seed,
    Shape,
    check_count,
    check_positive,
    directions,
    finish,
    gaussian,
    make_generator,
    uniform,
)


def sphere(n: int, seed: Seed = 0) -> Shape:
    r"""n points of the unit sphere, uniform by area.

    .. math:: |x| = 1, \qquad \text{normal} = x, \qquad \kappa_1 = \kappa_2 = 1

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    u = directions(make_generator(seed), check_count(n))
    return finish(u, u, torch.ones_like(u[:, :2]))


def torus(n: int, seed: Seed = 0, major: float = 0.7, minor: float = 0.3) -> Shape:
    r"""n points of a torus about the z axis, uniform by area.

    .. math:: (\sqrt{x^2 + y^2} - R)^2 + z^2 = r^2, \quad
              dA = r (R + r \cos\phi)\, d\theta\, d\phi, \quad
              \kappa_1 = 1 / r, \quad \kappa_2 = \cos\phi / (R + r \cos\phi)

    Args:
        n: number of points.
        seed: an int or a torch.Generator.
        major: R, from the axis to the center of the tube.
        minor: r, the radius of the tube.

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    generator, n = make_generator(seed), check_count(n)
    check_positive("minor", minor)
    if major < minor:
        raise ValueError(f"major is {major} and minor {minor}; a ring needs major >= minor")
    theta, phi = 2 * torch.pi * uniform(generator, 2, n)
    # Keeping phi with probability (1 + (r/R) cos phi) / 2 and mirroring it to pi - phi otherwise
    # gives exactly the density of dA, and rejects nothing.
    keep = uniform(generator, n) < (1 + minor / major * phi.cos()) / 2
    phi = torch.where(keep, phi, torch.pi - phi)
    normal = torch.stack((phi.cos() * theta.cos(), phi.cos() * theta.sin(), phi.sin()), dim=-1)
    ring = torch.stack((theta.cos(), theta.sin(), torch.zeros_like(theta)), dim=-1)
    along = phi.cos() / (major + minor * phi.cos())  # the curvature around the axis
    curvature = torch.stack((torch.full_like(along, 1 / minor), along), dim=-1)
    return finish(major * ring + minor * normal, normal, curvature)


def box(n: int, seed: Seed = 0, half: tuple[float, float, float] = (0.7, 0.55, 0.4)) -> Shape:
    r"""n points of a box with sharp edges, uniform by area.

    .. math:: \max_k |x_k| / h_k = 1

    The curvatures are those of the faces, zero. An edge has no curvature to give, and no area to
    draw a point from.

    Args:
        n: number of points.
        seed: an int or a torch.Generator.
        half: h, half of the lengths of the sides.

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    generator, n = make_generator(seed), check_count(n)
    check_positive("every half length", min(half))
    h = torch.tensor(half, dtype=torch.float64, device=generator.device)
    area = h.prod() / h  # of the faces across x, y and z, up to a factor
    axis = torch.multinomial(area, n, replacement=True, generator=generator)  # (n,)
    side = 2.0 * (uniform(generator, n) < 0.5) - 1  # -1 or 1
    normal = torch.nn.functional.one_hot(axis, 3) * side.unsqueeze(-1)
    pos = (2 * uniform(generator, n, 3) - 1) * h
    pos = torch.where(normal != 0, normal * h, pos)
    return finish(pos, normal, torch.zeros_like(pos[:, :2]))


def cylinder(n: int, seed: Seed = 0, radius: float = 0.5, half_height: float = 0.8) -> Shape:
    r"""n points of a closed cylinder about the z axis, caps and all, uniform by area.

    .. math:: \max(\sqrt{x^2 + y^2} / r, |z| / h) = 1

    The curvatures are 1/r and 0 on the side and zero on the caps.

    Args:
        n: number of points.
        seed: an int or a torch.Generator.
        radius: r.
        half_height: h.

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    generator, n = make_generator(seed), check_count(n)
    check_positive("radius", radius)
    check_positive("half_height", half_height)
    phi, u, v = 2 * torch.pi * uniform(generator, n), *uniform(generator, 2, n)
    out = torch.stack((phi.cos(), phi.sin(), torch.zeros_like(phi)), dim=-1)  # away from the axis
    up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64, device=generator.device)
    z = (2 * u - 1).unsqueeze(-1)  # (n, 1), the height on the side, the sign on the caps
    # The side has area 4 pi r h, the caps 2 pi r^2.
    on_cap = (v * (2 * half_height + radius) < radius).unsqueeze(-1)
    disc = radius * uniform(generator, n).sqrt().unsqueeze(-1) * out
    pos = torch.where(
        on_cap, disc + z.sign() * half_height * up, radius * out + z * half_height * up
    )
    bend = (~on_cap).to(pos) / radius  # (n, 1), the curvature around the axis
    curvature = torch.cat((bend, torch.zeros_like(bend)), dim=-1)
    return finish(pos, torch.where(on_cap, z.sign() * up, out), curvature)


def volume(n: int, seed: Seed = 0) -> Shape:
    r"""n points of the solid unit ball, uniform by volume; there is no surface, so no normals.

    .. math:: |x| \le 1, \qquad P(|x| < r) = r^3

    Shapes:
        - pos: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n)
    u = directions(generator, n)
    return finish(u * uniform(generator, n, 1) ** (1 / 3))


def thick_shell(n: int, seed: Seed = 0, thickness: float = 0.1) -> Shape:
    r"""n points of a sphere seen through noise, whose standard deviation is ``thickness``.

    .. math:: x = (\rho + t \xi) u, \qquad |u| = 1, \quad \xi \sim N(0, 1), \quad \rho = 1 - 2t

    The radius is drawn in a little so that nearly all the points stay in the unit ball. The
    normal is that of the sphere before the noise, u.

    Args:
        n: number of points.
        seed: an int or a torch.Generator.
        thickness: t, at most 0.25.

    Shapes:
        - pos, normal: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n)
    if not 0 <= thickness <= 0.25:
        raise ValueError(f"thickness is {thickness}; pass one from 0 to 0.25 of the unit ball")
    u = directions(generator, n)
    return finish((1 - 2 * thickness + thickness * gaussian(generator, n, 1)) * u, u)
