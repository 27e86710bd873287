"""The operator behind everything: a kernel matrix that is never written down.

    K[q, j] = w(x_j - q)          M queries x N points, zero between different clouds
    S = K v                       v: phasors give encodings, polynomials moments, any values a sum

An engine plans K once for a geometry. The planned operator has two products, K v and the gradient
of <u, K v> to the queries, and its transpose; everything else, autograd included, follows here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, Self, TypeVar

from torch import Tensor

from veckm.engines.autodiff import ByRows, differentiable
from veckm.engines.cost import CostModel, cost_model
from veckm.engines.geometry import Geometry
from veckm.engines.phasors import Modulation
from veckm.engines.windows import Ball, Gaussian


class Operator(ABC):
    """K of one geometry, planned: made once, applied many times."""

    #: Whether its products are shared among threads of our own, torch having one meanwhile.
    shares = True

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry

    @abstractmethod
    def product(self, values: Tensor) -> Tensor:  # (N, C) -> (M, C), real
        """K v, in the dtype of the values. No gradients."""

    @abstractmethod
    def query_grad(self, cotangent: Tensor, values: Tensor) -> Tensor:  # (M, C), (N, C)
        """(M, D_in): the gradient of <cotangent, K values> to the queries."""

    @property
    @abstractmethod
    def T(self) -> Operator:
        """K^T: the queries become the points. The gradient to the points is that of its queries."""

    def value(self, *tensors: Tensor) -> Tensor:
        """K v for autograd, of points, queries and values; the positions are those of the plan."""
        return self.product(tensors[-1])

    def gradients(self, grad: Tensor, wanted: Sequence[bool], *tensors: Tensor) -> list[Tensor]:
        """Of <grad, K v> to points, queries and values, as far as they are wanted."""
        (points, queries, inputs), values = wanted, tensors[-1]
        found = [self.T.query_grad(values, grad)] if points else []
        found += [self.query_grad(grad, values)] if queries else []
        return found + ([self.T.product(grad)] if inputs else [])

    def apply(self, values: Tensor) -> Tensor:  # (N, C) -> (M, C), real
        """K v, differentiable in values, points and queries."""
        return differentiable(self, self.geometry.points.flat, self.geometry.queries.flat, values)

    def encodings(self, modulation: Modulation) -> Tensor:  # (M, D) complex
        """G = [K (w E)] ./ E(q), differentiable in points, queries, weights and A."""
        m, g = modulation, self.geometry
        values = differentiable(ByRows(m.modulated, 2), g.points.flat, m.weights, m.A)
        return differentiable(ByRows(m.demodulated, 2), self.apply(values), g.queries.flat, m.A)

    def encode(self, modulation: Modulation, out: Tensor) -> None:
        """Write the encodings into `out`, (M, D) complex. No gradients: engines may fuse it."""
        out.copy_(self.encodings(modulation))


class Side(Protocol):
    """One factor of K: the points, or the queries, and how they see the table between them."""

    def gather(self, table: Tensor) -> Tensor:  # (rows, C) -> (n, C)
        """S Q."""

    def position_grad(self, values: Tensor, table: Tensor) -> Tensor:  # (n, C) -> (n, D_in)
        """The gradient of <values, S Q> to the positions."""


SideT = TypeVar("SideT", bound=Side)


class Factored(Operator, Generic[SideT]):
    """K = c S_q S_x^T with a table between the factors; each table is made once."""

    def __init__(self, geometry: Geometry, source: SideT, target: SideT) -> None:
        super().__init__(geometry)
        self.source, self.target = source, target

    @abstractmethod
    def spread(self, values: Tensor) -> Tensor:  # (N, C) -> (rows, C)
        """Q = c S_x^T v."""

    @cached_property
    def T(self) -> Self:
        if self.geometry.same:
            return self
        other = copy(self)
        other.geometry = self.geometry.swapped
        other.source, other.target = self.target, self.source
        return other

    def product(self, values: Tensor) -> Tensor:
        return self.target.gather(self.spread(values))

    def query_grad(self, cotangent: Tensor, values: Tensor) -> Tensor:
        return self.target.position_grad(cotangent, self.spread(values))

    def gradients(self, grad: Tensor, wanted: Sequence[bool], *tensors: Tensor) -> list[Tensor]:
        (points, queries, inputs), values = wanted, tensors[-1]
        back = self.T.spread(grad) if points or inputs else grad
        found = [self.source.position_grad(values, back)] if points else []
        found += [self.query_grad(grad, values)] if queries else []
        return found + ([self.source.gather(back)] if inputs else [])


@dataclass(frozen=True)
class Proposal:
    """The predicted cost of an engine for a geometry, and the function that plans it."""

    seconds: float  # planning and one product
    plan: Callable[[], Operator]


class Engine(ABC):
    """One way of computing K v. Stateless: an instance holds settings, never data."""

    #: Name under which `engine=` finds it.
    name: str
    #: The window classes it can compute.
    windows: tuple[type, ...] = (Gaussian, Ball)
    #: Whether it meets the requested accuracy, so that `auto` may choose it.
    meets_eps = True

    @abstractmethod
    def propose(self, geometry: Geometry, columns: int) -> Proposal:
        """The cost of planning and one product of so many real columns; infinite if it refuses."""

    def least(self, geometry: Geometry, columns: int) -> float:
        """A lower bound on the seconds of any proposal, from the number of points alone."""
        rates = self.rates(geometry)
        return rates.call + len(geometry.points) * rates.point + self.ends(geometry, columns)

    def ends(self, geometry: Geometry, columns: int) -> float:
        """Seconds for what every engine does: phasors of points and queries, and the result."""
        rates = self.rates(geometry)
        phasors = geometry.size * rates.phasor + len(geometry.queries) * rates.write
        return phasors * columns / 2

    @staticmethod
    def rates(geometry: Geometry) -> CostModel:
        """The cost model for the device and dtype of a geometry."""
        return cost_model(geometry.device, geometry.dtype)
