"""Solids that can be sampled, transformed, and combined by union, intersection and difference.

A solid draws points of its surface and has a level function: negative inside, zero on the
surface, positive outside. Normals and curvatures are derivatives of the level function, which
autograd or a formula gives, so transformed and combined solids have exact ones too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from veckm.data.sampling import Density, Seed, Shape, Surface, sample_shape, uniform
from veckm.inputs import check_positive

_CHUNK = 1 << 14  # candidates at a time, so that intermediate results stay in the cache


class Solid(Surface):
    """A body with a surface."""

    @abstractmethod
    def draw(self, m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:  # (m, 3), (m,)
        """m points and the area that each represents; together the area of the surface."""

    @cached_property
    def measure(self) -> float:
        """The area if all of it were as sparse as where points represent the most.

        Estimated by a trial; where a point represents more, a few points are missing.
        """
        _, area = self.draw(4096, torch.Generator().manual_seed(0))
        slack = 1.1 if float(area.min()) < float(area.max()) else 1.0
        return slack * 4096 * float(area.max())

    @abstractmethod
    def level(self, x: Tensor) -> Tensor:  # (N, 3) -> (N,)
        """Negative inside, positive outside, zero on the surface."""

    def sample(self, n: int, seed: Seed = 0, density: Density | None = None) -> Shape:
        def trial(m: int, generator: torch.Generator) -> tuple[Tensor, ...]:
            pos, area = self.draw(m, generator)
            share = 1.0 if density is None else density(pos)
            keep = uniform(generator, m) < area * (m / self.measure) * share
            pos = pos[keep]
            pos = pos[torch.randperm(len(pos), generator=generator)]  # the parts come in turn
            return pos, *self.differentiate(pos)

        return sample_shape(n, seed, trial, _CHUNK, "its parts cut each other away")

    def differentiate(self, pos: Tensor) -> tuple[Tensor, Tensor]:  # (N, 3) -> (N, 3), (N, 2)
        r"""Outward normals and principal curvatures, the larger first, of points on the surface.

        .. math:: n = \nabla f / |\nabla f|, \qquad \kappa_{1, 2} = \text{eigenvalues of }
                  \nabla^2 f / |\nabla f| \text{ on the tangent plane}
        """
        gradient, hessian = self.derivatives(pos)
        length = gradient.norm(dim=-1, keepdim=True)
        normal = gradient / length
        return normal, _tangent_eigenvalues(normal, hessian / length.unsqueeze(-1))

    def derivatives(self, x: Tensor) -> tuple[Tensor, Tensor]:  # (N, 3) -> (N, 3), (N, 3, 3)
        """Gradient and Hessian of the level: by autograd, unless a solid has a faster way."""
        with torch.inference_mode(False), torch.enable_grad():
            x = x.clone().requires_grad_()
            # The second term has no value; it gives linear levels a second derivative too.
            level = (self.level(x) + 0 * x.square().sum(-1)).sum()
            (slope,) = torch.autograd.grad(level, x, create_graph=True)
            rows = [torch.autograd.grad(slope[:, k].sum(), x, retain_graph=True) for k in range(3)]
        return slope.detach(), torch.stack([row for (row,) in rows], 1)

    def gradient(self, x: Tensor) -> Tensor:  # (N, 3) -> (N, 3)
        """The gradient of the level."""
        with torch.inference_mode(False), torch.enable_grad():
            x = x.clone().requires_grad_()
            return torch.autograd.grad(self.level(x).sum(), x)[0]

    def transformed(self, matrix: Tensor, shift: Tensor | None = None) -> Solid:  # (3, 3), (3,)
        """The solid of the points matrix x + shift."""
        return Transformed(self, matrix, torch.zeros_like(matrix[0]) if shift is None else shift)

    def stretched(self, factors: Sequence[float]) -> Solid:
        """The solid stretched along x, y and z."""
        check_positive(min(factors), "every factor")
        return self.transformed(torch.diag(torch.tensor(factors, dtype=torch.float64)))

    def __or__(self, other: Solid) -> Solid:
        return Combined(self, other, -1, -1)

    def __and__(self, other: Solid) -> Solid:
        return Combined(self, other, 1, 1)

    def __sub__(self, other: Solid) -> Solid:
        return Combined(self, other, 1, -1)


@dataclass(frozen=True, eq=False)
class Transformed(Solid):
    r"""A solid under an affine map.

    .. math:: x' = M x + t, \qquad dA' = |\det M|\, |M^{-T} n|\, dA
    """

    solid: Solid
    matrix: Tensor
    shift: Tensor

    @cached_property
    def _inverse(self) -> Tensor:
        inverse: Tensor = torch.linalg.inv(self.matrix)
        return inverse

    def draw(self, m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        pos, area = self.solid.draw(m, generator)
        normal = torch.nn.functional.normalize(self.solid.gradient(pos), dim=-1)
        growth = (normal @ self._inverse).norm(dim=-1) * torch.linalg.det(self.matrix).abs()
        return pos @ self.matrix.T + self.shift, area * growth

    def transformed(self, matrix: Tensor, shift: Tensor | None = None) -> Solid:
        moved = matrix @ self.shift  # one map instead of two
        moved = moved if shift is None else moved + shift
        return Transformed(self.solid, matrix @ self.matrix, moved)

    def level(self, x: Tensor) -> Tensor:
        return self.solid.level((x - self.shift) @ self._inverse.T)

    def derivatives(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gradient, hessian = self.solid.derivatives((x - self.shift) @ self._inverse.T)
        return gradient @ self._inverse, self._inverse.T @ hessian @ self._inverse


@dataclass(frozen=True, eq=False)
class Combined(Solid):
    r"""Union, intersection or difference of two solids. The edges where they meet are sharp.

    .. math:: f = s_a \max(s_a f_a, s_b f_b)

    with the signs -1, -1 of a union, 1, 1 of an intersection and 1, -1 of a difference.
    """

    a: Solid
    b: Solid
    sign_a: int
    sign_b: int

    @cached_property
    def measure(self) -> float:
        return self.a.measure + self.b.measure

    def draw(self, m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        k = int((uniform(generator, m) < self.a.measure / self.measure).sum())
        (a, area_a), (b, area_b) = self.a.draw(k, generator), self.b.draw(m - k, generator)
        keep_a, keep_b = self.sign_b * self.b.level(a) < 0, self.sign_a * self.a.level(b) < 0
        return torch.cat((a, b)), torch.cat((area_a * keep_a, area_b * keep_b))

    def transformed(self, matrix: Tensor, shift: Tensor | None = None) -> Solid:
        # Each part by itself, so that each estimates its own measure.
        a, b = (part.transformed(matrix, shift) for part in (self.a, self.b))
        return replace(self, a=a, b=b)

    def level(self, x: Tensor) -> Tensor:
        a, b = self.sign_a * self.a.level(x), self.sign_b * self.b.level(x)
        return self.sign_a * torch.maximum(a, b)

    def derivatives(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of each part where the surface is its own, so that no part is differentiated in vain."""
        own = self.sign_a * self.a.level(x) >= self.sign_b * self.b.level(x)
        gradient, hessian = torch.empty_like(x), x.new_empty(len(x), 3, 3)
        for rows, part, sign in ((own, self.a, 1), (~own, self.b, self.sign_a * self.sign_b)):
            of_part = part.derivatives(x[rows])
            gradient[rows], hessian[rows] = sign * of_part[0], sign * of_part[1]
        return gradient, hessian


def _tangent_eigenvalues(normal: Tensor, matrix: Tensor) -> Tensor:  # (N, 3), (N, 3, 3) -> (N, 2)
    """The eigenvalues of a symmetric matrix on the plane across the normal, the larger first."""
    axis = torch.nn.functional.one_hot(normal.abs().argmin(-1), 3).to(normal)
    s = torch.nn.functional.normalize(torch.linalg.cross(axis, normal), dim=-1)
    t = torch.linalg.cross(normal, s)
    ms, mt = ((matrix @ v.unsqueeze(-1)).squeeze(-1) for v in (s, t))
    a, b, c = (s * ms).sum(-1), (s * mt).sum(-1), (t * mt).sum(-1)
    spread = torch.hypot((a - c) / 2, b)
    return torch.stack(((a + c) / 2 + spread, (a + c) / 2 - spread), dim=-1)
