"""Procedural clouds with exact normals: the same numbers for the same seed.

Every function takes the number of points and a ``seed`` (an int or a :class:`torch.Generator`)
and returns a :class:`Shape` with ``pos`` (n, 3) float32 in about the unit ball.

>>> from veckm.data import shapes
>>> shapes.torus(1000, seed=1).pos.shape
torch.Size([1000, 3])
"""

from __future__ import annotations

import torch

from veckm.data.house import house
from veckm.data.lidar import airborne, lidar
from veckm.data.primitives import Frustum, Hull, Superellipsoid, Torus
from veckm.data.random_solids import random_shape
from veckm.data.sampling import Seed, Shape
from veckm.data.statue import scan, statue
from veckm.inputs import check_positive

__all__ = [
    "Shape",
    "airborne",
    "box",
    "cylinder",
    "house",
    "lidar",
    "random_shape",
    "scan",
    "sphere",
    "statue",
    "torus",
]


def sphere(n: int, seed: Seed = 0) -> Shape:
    r"""n points of the unit sphere, uniform by area.

    .. math:: |x| = 1, \qquad \text{normal} = x, \qquad \kappa_1 = \kappa_2 = 1

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    return Superellipsoid().sample(n, seed)


def torus(n: int, seed: Seed = 0, major: float = 0.7, minor: float = 0.3) -> Shape:
    r"""n points of a torus about the z axis, uniform by area.

    .. math:: (\sqrt{x^2 + y^2} - R)^2 + z^2 = r^2

    Args:
        n: number of points.
        seed: an int or a torch.Generator.
        major: R, from the axis to the center of the tube.
        minor: r, the radius of the tube.

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    check_positive(minor, "minor")
    if major < minor:
        raise ValueError(f"major is {major} and minor {minor}; a ring needs major >= minor")
    return Torus(minor / major).stretched((major, major, major)).sample(n, seed)


def box(n: int, seed: Seed = 0, half: tuple[float, float, float] = (0.7, 0.55, 0.4)) -> Shape:
    r"""n points of a box with sharp edges, uniform by area.

    .. math:: \max_k |x_k| / h_k = 1

    Args:
        n: number of points.
        seed: an int or a torch.Generator.
        half: h, half of the lengths of the sides.

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    check_positive(min(half), "every half length")
    sides = [torch.tensor([-h, h], dtype=torch.float64) for h in half]
    return Hull(torch.cartesian_prod(*sides)).sample(n, seed)


def cylinder(n: int, seed: Seed = 0, radius: float = 0.5, half_height: float = 0.8) -> Shape:
    r"""n points of a closed cylinder about the z axis, caps included, uniform by area.

    .. math:: \max(\sqrt{x^2 + y^2} / r, |z| / h) = 1

    Args:
        n: number of points.
        seed: an int or a torch.Generator.
        radius: r.
        half_height: h.

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    check_positive(radius, "radius")
    check_positive(half_height, "half_height")
    return Frustum().stretched((radius, radius, half_height)).sample(n, seed)
