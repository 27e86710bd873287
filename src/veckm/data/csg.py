"""Constructive solids: bodies that draw points of their own surface, with normals and curvatures.

A solid knows how to draw from its surface and which places are inside it. That is enough to turn,
stretch and cut solids out of each other, and the result is a solid again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from veckm.data.sampling import (
    Seed,
    Shape,
    check_count,
    check_positive,
    collect,
    finish,
    make_generator,
    uniform,
)

Way = Literal["or", "and", "minus"]

_CHUNK = 1 << 15  # candidates at a time, so that what lies between stays in the cache


@dataclass(frozen=True, eq=False)
class Spots:
    r"""Candidates for points of a surface.

    .. math:: B = \nabla^2 f / |\nabla f|, \qquad n = \nabla f / |\nabla f|

    for any function f that is zero on the surface and positive outside.

    Shapes (float64):
        - pos, normal: (N, 3)
        - weight: (N,) from 0 to 1, the chance to keep it that makes what is kept even by area
        - bend: (R,) -> (R, 3, 3), the matrix B of some candidates, by their numbers; only how it
          acts along the surface has a meaning
    """

    pos: Tensor
    normal: Tensor
    weight: Tensor
    bend: Callable[[Tensor], Tensor]

    def curvature(
        self,
        rows: Tensor,  # (R,)
    ) -> Tensor:  # (R, 2)
        """The eigenvalues of B along the surface, the larger first."""
        normal, bend = self.normal[rows], self.bend(rows)
        axis = torch.nn.functional.one_hot(normal.abs().argmin(-1), 3).to(normal)
        s = torch.nn.functional.normalize(torch.linalg.cross(axis, normal), dim=-1)
        t = torch.linalg.cross(normal, s)
        bs, bt = ((bend @ v.unsqueeze(-1)).squeeze(-1) for v in (s, t))
        a, b, c = (s * bs).sum(-1), (s * bt).sum(-1), (t * bt).sum(-1)
        spread = torch.hypot((a - c) / 2, b)
        return torch.stack(((a + c) / 2 + spread, (a + c) / 2 - spread), dim=-1)


class Solid(ABC):
    """A body with a surface; subclasses say how to draw from it and what is inside."""

    @property
    @abstractmethod
    def measure(self) -> float:
        """The area that the surface would have if all candidates were kept."""

    @abstractmethod
    def draw(self, m: int, generator: torch.Generator) -> Spots:
        """m candidates; times the mean of their weights the measure is the area."""

    @abstractmethod
    def level(
        self,
        x: Tensor,  # (N, 3)
    ) -> Tensor:  # (N,)
        """Below zero inside, above zero outside, zero on the surface."""

    def sample(self, n: int, seed: Seed = 0) -> Shape:
        """n points of the surface, uniform by area, in random order.

        Args:
            n: number of points.
            seed: an int or a torch.Generator; decides the points, not the solid.

        Shapes:
            - pos, normal: (n, 3), curvature: (n, 2)
        """
        generator, n = on_cpu(seed), check_count(n)

        def trial(m: int) -> tuple[Tensor, Tensor, Tensor]:
            spots = self.draw(m, generator)
            rows = (uniform(generator, m) < spots.weight).nonzero().squeeze(-1)
            rows = rows[torch.randperm(len(rows), generator=generator)]  # the parts come in turn
            return spots.pos[rows], spots.normal[rows], spots.curvature(rows)

        return finish(*collect(n, trial, _CHUNK, "its parts cut each other away"))

    def moved(
        self,
        matrix: Tensor,  # (3, 3)
        shift: Tensor | None = None,  # (3,)
    ) -> Solid:
        """The solid of the points matrix x + shift."""
        return Moved(self, matrix, torch.zeros_like(matrix[0]) if shift is None else shift)

    def stretched(self, factors: Sequence[float]) -> Solid:
        """The solid stretched along x, y and z."""
        check_positive("every factor", min(factors))
        return self.moved(torch.diag(torch.tensor(factors, dtype=torch.float64)))

    def __or__(self, other: Solid) -> Solid:
        return Joined(self, other, "or")

    def __and__(self, other: Solid) -> Solid:
        return Joined(self, other, "and")

    def __sub__(self, other: Solid) -> Solid:
        return Joined(self, other, "minus")


class Uneven(Solid):
    """A solid whose candidates stand for unequal areas, of which a trial finds the largest."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """What candidates are spread over."""

    @abstractmethod
    def candidates(self, m: int, generator: torch.Generator) -> Spots:
        """m candidates with the area per spread as their weights."""

    @cached_property
    def _peak(self) -> float:
        """About the largest weight; where one is above it, a few points are missing."""
        return 1.1 * float(self.candidates(4096, torch.Generator().manual_seed(0)).weight.max())

    @property
    def measure(self) -> float:
        return self.spread * self._peak

    def draw(self, m: int, generator: torch.Generator) -> Spots:
        spots = self.candidates(m, generator)
        return replace(spots, weight=spots.weight / self._peak)


@dataclass(frozen=True, eq=False)
class Moved(Uneven):
    r"""A solid under an affine map, with its normals and curvatures.

    .. math:: x' = M x + t, \qquad \nabla f' = M^{-T} \nabla f, \qquad
              \nabla^2 f' = M^{-T}\, \nabla^2 f\, M^{-1}, \qquad dA' = |\det M|\, |M^{-T} n|\, dA
    """

    solid: Solid
    matrix: Tensor
    shift: Tensor

    @cached_property
    def _inverse(self) -> Tensor:
        inverse: Tensor = torch.linalg.inv(self.matrix)
        return inverse

    @property
    def spread(self) -> float:
        return self.solid.measure

    def candidates(self, m: int, generator: torch.Generator) -> Spots:
        spots = self.solid.draw(m, generator)
        slope = spots.normal @ self._inverse  # M^-T n, as rows
        length = slope.norm(dim=-1, keepdim=True)
        growth = length.squeeze(-1) * torch.linalg.det(self.matrix).abs()

        def bend(rows: Tensor) -> Tensor:
            inverse, scale = self._inverse, length[rows].unsqueeze(-1)
            bent: Tensor = inverse.T @ spots.bend(rows) @ inverse / scale
            return bent

        pos = spots.pos @ self.matrix.T + self.shift
        return Spots(pos, slope / length, spots.weight * growth, bend)

    def moved(self, matrix: Tensor, shift: Tensor | None = None) -> Solid:
        moved = matrix @ self.shift  # one map in place of two
        return Moved(self.solid, matrix @ self.matrix, moved if shift is None else moved + shift)

    def level(self, x: Tensor) -> Tensor:
        return self.solid.level((x - self.shift) @ self._inverse.T)


@dataclass(frozen=True, eq=False)
class Joined(Solid):
    """Two solids as one: a or b, a and b, a minus b. The edges where they meet are sharp."""

    a: Solid
    b: Solid
    how: Way

    @property
    def measure(self) -> float:
        return self.a.measure + self.b.measure

    def draw(self, m: int, generator: torch.Generator) -> Spots:
        share = self.a.measure / self.measure
        k = int((uniform(generator, m) < share).sum())
        a, b = self.a.draw(k, generator), self.b.draw(m - k, generator)
        out_a = self.a.level(b.pos) > 0  # (m - k,)
        out_b = self.b.level(a.pos) > 0  # (k,)
        keep_a = ~out_b if self.how == "and" else out_b
        keep_b = out_a if self.how == "or" else ~out_a
        side = -1 if self.how == "minus" else 1  # what is left of b is then the wall of a hollow

        def bend(rows: Tensor) -> Tensor:
            result = a.pos.new_empty(len(rows), 3, 3)
            result[rows < k] = a.bend(rows[rows < k])
            result[rows >= k] = side * b.bend(rows[rows >= k] - k)
            return result

        return Spots(
            torch.cat((a.pos, b.pos)),
            torch.cat((a.normal, side * b.normal)),
            torch.cat((a.weight * keep_a, b.weight * keep_b)),
            bend,
        )

    def moved(self, matrix: Tensor, shift: Tensor | None = None) -> Solid:
        # Each part by itself, for then each has a peak of its own.
        return Joined(self.a.moved(matrix, shift), self.b.moved(matrix, shift), self.how)

    def level(self, x: Tensor) -> Tensor:
        a, b = self.a.level(x), self.b.level(x)
        if self.how == "or":
            return torch.minimum(a, b)
        return torch.maximum(a, b if self.how == "and" else -b)


def on_cpu(seed: Seed) -> torch.Generator:
    """A generator on the CPU, where the solids are; one of another device starts a new one."""
    generator = make_generator(seed)
    if generator.device.type == "cpu":
        return generator
    return torch.Generator().manual_seed(int(2**52 * float(uniform(generator, 1))))
