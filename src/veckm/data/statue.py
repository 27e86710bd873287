"""A closed organic surface with exact normals: an ellipsoid displaced by a few smooth waves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from veckm.data import cells
from veckm.data.sampling import (
    Seed,
    Shape,
    check_count,
    directions,
    finish,
    gaussian,
    make_generator,
    uniform,
)

_WAVES = 28
_MARGIN = 1.2  # the area element at the rim of a cell is at most 1.1 times that at its center
_CHUNK = 1 << 15  # directions at a time, so that the waves of a chunk stay in the cache


@dataclass(frozen=True, eq=False)
class Form:
    r"""The field behind a statue: the log radius as a function of the direction u.

    .. math:: \log r(u) = c - \tfrac12 \log(u^T M u) + \sum_k a_k \sin(\kappa_k \cdot u + \phi_k)

    An ellipsoid with semi-axes :math:`M^{-1/2}`, times waves of falling amplitude.

    Shapes:
        - axes: (3,), the diagonal of M
        - kappa: (W, 3)
        - phase, amplitude: (W,)
        - shift: (), c, which puts the farthest point on the unit sphere
    """

    axes: Tensor
    kappa: Tensor
    phase: Tensor
    amplitude: Tensor
    shift: Tensor

    def log_radius(
        self,
        u: Tensor,  # (N, 3) unit
    ) -> tuple[Tensor, Tensor]:  # (N,), (N, 3)
        """log r and its gradient along the unit sphere.

        Shapes:
            - u: (N, 3)
            - output: (N,) and (N, 3)
        """
        angle = u @ self.kappa.T + self.phase  # (N, W)
        quadric = (u.square() @ self.axes).unsqueeze(-1)  # (N, 1)
        value = self.shift - quadric.squeeze(-1).log() / 2 + angle.sin() @ self.amplitude
        slope = angle.cos() @ (self.amplitude.unsqueeze(-1) * self.kappa) - u * self.axes / quadric
        return value, slope - (slope * u).sum(-1, keepdim=True) * u

    def surface(
        self,
        u: Tensor,  # (N, 3) unit
    ) -> tuple[Tensor, Tensor, Tensor]:  # (N, 3), (N, 3), (N,)
        r"""The point r(u) u, its outward normal, and the area per solid angle.

        .. math:: n \propto u - \nabla \log r, \qquad
                  dA = r^2 \sqrt{1 + |\nabla \log r|^2}\, d\omega

        Shapes:
            - u: (N, 3)
            - output: (N, 3), (N, 3) and (N,)
        """
        value, slope = self.log_radius(u)
        tilt = (1 + slope.square().sum(-1)).sqrt()  # (N,), also the length of u - slope
        pos = value.exp().unsqueeze(-1) * u
        return pos, (u - slope) / tilt.unsqueeze(-1), (2 * value).exp() * tilt

    def at_cells(self) -> tuple[Tensor, Tensor, Tensor]:
        """Point (F, 3), normal (F, 3) and area per ds dt (F,) at the center of every cell."""
        u, angle = cells.to_directions(*cells.centers())
        pos, normal, area = self.surface(u)
        return pos, normal, area * angle


@lru_cache(maxsize=8)
def make_form(form: int) -> Form:
    """The statue number ``form``: every number is another one, and always the same."""
    generator = torch.Generator().manual_seed(form)
    size = torch.logspace(0.3, 1.4, _WAVES, dtype=torch.float64)  # |kappa| from 2 to 25
    kappa = size.unsqueeze(-1) * directions(generator, _WAVES)
    phase = 2 * torch.pi * uniform(generator, _WAVES)
    amplitude = 0.2 * size**-1.0 * (1 + 0.3 * gaussian(generator, _WAVES))
    axes = torch.tensor([0.62, 0.55, 1.0], dtype=torch.float64) ** -2
    raw = Form(axes, kappa, phase, amplitude, torch.zeros((), dtype=torch.float64))
    farthest = raw.log_radius(cells.to_directions(*cells.centers())[0])[0].max()
    return replace(raw, shift=-farthest)


def draw(
    form: Form,
    area: Tensor,  # (F,) the last of form.at_cells()
    weight: Tensor,  # (F,) points per area wanted in every cell, up to a factor
    n: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:  # (n, 3), (n, 3)
    """n points and normals, as many per area as ``weight`` says.

    Cells are drawn by area and weight and places within a cell evenly; the area element at the
    place itself then decides whether it is kept, so the density is exact and not only by cell.

    Shapes:
        - area, weight: (F,)
        - output: (n, 3) and (n, 3) float64
    """
    face, center = cells.centers()
    bound = area * weight
    kept: list[tuple[Tensor, Tensor]] = []
    while (missing := n - sum(len(pos) for pos, _ in kept)) > 0:
        m = min(_CHUNK, missing * 4 // 3 + 64)
        cell = cells.pick(bound, uniform(generator, m).cpu())
        st = center[cell] + (2 * uniform(generator, m, 2).cpu() - 1) / cells.SIDE
        u, angle = cells.to_directions(face[cell], st)
        pos, normal, here = form.surface(u)
        ok = uniform(generator, m).cpu() * _MARGIN * area[cell] < here * angle
        kept.append((pos[ok][:missing], normal[ok][:missing]))
    pos, normal = (torch.cat(parts).to(generator.device) for parts in zip(*kept, strict=True))
    return pos, normal


def statue(n: int, seed: Seed = 0, form: int = 0) -> Shape:
    r"""n points of a closed organic surface, uniform by area, with exact normals.

    .. math:: x = r(u)\, u, \qquad n \propto u - \nabla \log r(u)

    with the smooth random radius r of ``Form``; star-shaped about the origin.

    Args:
        n: number of points.
        seed: an int or a torch.Generator; decides the points, not the surface.
        form: which statue.

    Shapes:
        - pos, normal: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n)
    field = make_form(form)
    area = field.at_cells()[2]
    return finish(*draw(field, area, torch.ones_like(area), n, generator))
