"""An endless variety of solids, for training and for tests.

>>> from veckm.data.variety import random_shape
>>> random_shape(1000, seed=7).normal.shape
torch.Size([1000, 3])
"""

from __future__ import annotations

import torch
from torch import Tensor

from veckm.data.csg import Joined, Solid, Way, on_cpu
from veckm.data.sampling import Seed, Shape, check_count, directions, gaussian, rotation, uniform
from veckm.data.surfaces import Bumpy, Frustum, Hull, Superellipsoid, Torus, prism


def random_shape(n: int, seed: Seed = 0) -> Shape:
    """n points of a random solid in the unit ball, with exact normals and curvatures.

    Shapes:
        - pos, normal: (n, 3), curvature: (n, 2)
    """
    generator, n = on_cpu(seed), check_count(n)
    return random_surface(generator).sample(n, generator)


def random_surface(seed: Seed = 0) -> Solid:
    """A random solid in the unit ball, turned and stretched at random.

    About half are machine parts, made of several solids that join and cut each other with sharp
    edges; the others are single smooth, wavy or faceted ones.
    """
    g = on_cpu(seed)
    makers = (_machine, _machine, _machine, _bumpy, _bumpy, _single)
    solid = makers[_choice(g, len(makers))](g)
    matrix = rotation(g) @ torch.diag((0.8 * uniform(g, 3) - 0.4).exp())
    pos = solid.sample(4096, g).pos.double() @ matrix.T
    middle = (pos.amax(0) + pos.amin(0)) / 2
    size = float((pos - middle).norm(dim=-1).max()) * 1.01  # the farthest point may be missing
    return solid.moved(matrix / size, -middle / size)


def _choice(g: torch.Generator, count: int) -> int:
    return int(count * float(uniform(g, 1)))


def _between(g: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(uniform(g, 1))


def _single(g: torch.Generator) -> Solid:
    """One plain solid of about the unit ball's size."""
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


def _bumpy(g: torch.Generator) -> Bumpy:
    """A ball with waves from about half its size down to a detail of random fineness."""
    count, finest, slope = 8 + _choice(g, 25), _between(g, 0.7, 1.9), _between(g, 0.2, 1.1)
    size = torch.logspace(0.2, finest, count, dtype=torch.float64)  # |kappa|
    # A wave of amplitude a has the slope a |kappa| / sqrt(2), root mean square.
    amplitude = slope * (2 / count) ** 0.5 / size * (1 + 0.3 * gaussian(g, count))
    kappa = size.unsqueeze(-1) * directions(g, count)
    return Bumpy(kappa, 2 * torch.pi * uniform(g, count), amplitude)


def _machine(g: torch.Generator) -> Solid:
    """A solid with others joined to it and cut out of it, each centered on what was there."""
    square = _choice(g, 3) > 0  # all along the same axes, as most machine parts are
    solid = _place(_single(g), g, 0.3, 1.0, square)
    for _ in range(1 + _choice(g, 7)):
        spots = solid.draw(256, g)
        at = spots.pos[spots.weight > 0][0]
        part = _bumpy(g) if _choice(g, 10) == 0 else _single(g)
        part = _place(part, g, 0.1, 0.6, square, at)
        ways: tuple[Way, ...] = ("or", "or", "minus", "minus", "and")
        wish = Joined(solid, part, ways[_choice(g, 5)])
        # Not where next to nothing is left, or a sliver too thin for any cloud to show.
        if float((wish.draw(512, g).weight > 0).double().mean()) > 0.3:
            solid = wish
    return solid


def _place(
    solid: Solid,
    g: torch.Generator,
    least: float,
    most: float,
    square: bool,
    at: Tensor | None = None,  # (3,)
) -> Solid:
    """A solid stretched by random factors, turned, and put somewhere."""
    stretch = torch.diag(least + (most - least) * uniform(g, 3))
    quarter = torch.eye(3, dtype=torch.float64)[torch.randperm(3, generator=g)]
    return solid.moved((quarter if square else rotation(g)) @ stretch, at)
