"""Random solids of many kinds, for training and for tests.

>>> from veckm.data.random_solids import random_shape
>>> random_shape(1000, seed=7).normal.shape
torch.Size([1000, 3])
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor

from veckm.data.primitives import Frustum, Hull, Superellipsoid, Torus, Wavy, prism
from veckm.data.sampling import Seed, Shape, directions, gaussian, make_generator, rotation, uniform
from veckm.data.solids import Solid


def random_shape(n: int, seed: Seed = 0) -> Shape:
    """n points of a random solid in the unit ball, with exact normals and curvatures.

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    generator = make_generator(seed)
    return random_surface(generator).sample(n, generator)


@torch.inference_mode(False)  # its tensors take part in derivatives
def random_surface(seed: Seed = 0) -> Solid:
    """A random solid in the unit ball, rotated and stretched at random.

    About half are machine parts, made of several solids joined to and cut out of each other with
    sharp edges; the others are single smooth, wavy or faceted ones.
    """
    g = make_generator(seed)
    makers = (_machine_part, _machine_part, _machine_part, _wavy, _wavy, _single)
    solid = makers[_choice(g, len(makers))](g)
    matrix = rotation(g) @ torch.diag((0.8 * uniform(g, 3) - 0.4).exp())
    pos = solid.sample(4096, g).pos.double() @ matrix.T
    middle = (pos.amax(0) + pos.amin(0)) / 2
    size = float((pos - middle).norm(dim=-1).max()) * 1.01  # the farthest point may be missing
    return solid.transformed(matrix / size, -middle / size)


def _choice(g: torch.Generator, count: int) -> int:
    return int(count * float(uniform(g, 1)))


def _between(g: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(uniform(g, 1))


def _single(g: torch.Generator) -> Solid:
    """One plain solid of about the size of the unit ball."""
    match _choice(g, 9):
        case 0 | 1:
            return prism(4)
        case 2:
            return prism(3 + _choice(g, 5), _between(g, 0.0, 1.0) if _choice(g, 2) else 1.0)
        case 3:
            return Frustum(1.0)
        case 4:
            return Frustum(_between(g, 0.0, 0.8))
        case 5:
            return Torus(_between(g, 0.15, 0.6))
        case 6:
            return Superellipsoid()
        case 7:
            return Superellipsoid(*(2 ** _between(g, 0.5, 3.3) for _ in range(2)))
        case _:
            count = 6 + _choice(g, 20)
            return Hull((0.7 + 0.3 * uniform(g, count, 1)) * directions(g, count))


def _wavy(g: torch.Generator) -> Wavy:
    """A ball with waves from about half its size down to a detail of random fineness."""
    count, finest, slope = 8 + _choice(g, 25), _between(g, 0.7, 1.9), _between(g, 0.2, 1.1)
    size = torch.logspace(0.2, finest, count, dtype=torch.float64)  # |kappa|
    # A wave of amplitude a has the slope a |kappa| / sqrt(2), root mean square.
    amplitude = slope * (2 / count) ** 0.5 / size * (1 + 0.3 * gaussian(g, count))
    kappa = size.unsqueeze(-1) * directions(g, count)
    return Wavy(kappa, 2 * torch.pi * uniform(g, count), amplitude)


def _machine_part(g: torch.Generator) -> Solid:
    """A solid with others joined to it and cut out of it, each centered on its surface."""
    aligned = _choice(g, 3) > 0  # all along the same axes, as most machine parts are
    solid = _place(_single(g), g, 0.3, 1.0, aligned)
    operations = (operator.or_, operator.or_, operator.sub, operator.sub, operator.and_)
    for _ in range(1 + _choice(g, 7)):
        pos, area = solid.draw(256, g)
        at = pos[area > 0][0]
        part = _wavy(g) if _choice(g, 10) == 0 else _single(g)
        part = _place(part, g, 0.1, 0.6, aligned, at)
        combined: Solid = operations[_choice(g, 5)](solid, part)
        # Not where next to nothing is left, or a sliver too thin for any cloud to show.
        if float((combined.draw(512, g)[1] > 0).double().mean()) > 0.3:
            solid = combined
    return solid


def _place(
    solid: Solid,
    g: torch.Generator,
    least: float,
    most: float,
    aligned: bool,
    at: Tensor | None = None,  # (3,)
) -> Solid:
    """A solid stretched by random factors, rotated, and centered at ``at``."""
    stretch = torch.diag(least + (most - least) * uniform(g, 3))
    quarter = torch.eye(3, dtype=torch.float64)[torch.randperm(3, generator=g)]
    return solid.transformed((quarter if aligned else rotation(g)) @ stretch, at)
