"""The operator behind everything: a kernel matrix that is never written down.

    K[q, j] = w(x_j - q)          M queries x N points, zero between different clouds
    S = K v                       v: phasors give encodings, polynomials moments, any values a sum

An engine plans K once for a geometry. The planned operator has two products, K v and the gradient
of <u, K v> to the queries, and its transpose; everything else, autograd included, follows here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from veckm.engines.cost import CostModel, cost_model
from veckm.engines.geometry import Geometry
from veckm.engines.phasors import Modulation
from veckm.engines.precision import full_precision
from veckm.engines.windows import Ball, Gaussian

_INSTEAD = "use engine='dense', whose derivatives are those of torch"


class Operator(ABC):
    """K of one geometry, planned: made once, applied many times."""

    #: Whether `product` is made of torch operations that autograd differentiates by itself.
    differentiable = False

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

    def apply(self, values: Tensor) -> Tensor:  # (N, C) -> (M, C), real
        """K v, differentiable in values, points and queries."""
        if self.differentiable:
            return self.product(values)
        points, queries = self.geometry.points.flat, self.geometry.queries.flat
        out: Tensor = _Product.apply(points, queries, values, self)
        return out

    def encodings(self, modulation: Modulation) -> Tensor:  # (M, D) complex
        """G = [K (w E)] ./ E(q), differentiable in points, queries, weights and A."""
        E = modulation.carrier(self.geometry.points.flat)
        at = E if self.geometry.same else modulation.carrier(self.geometry.queries.flat)
        return modulation.encodings(self.apply(modulation.values(E)), at)

    def encode(self, modulation: Modulation, out: Tensor) -> None:
        """Write the encodings into `out`, (M, D) complex. No gradients.

        Engines override it where phasors that never leave the cache are measured to pay.
        """
        out.copy_(self.encodings(modulation))


@dataclass(frozen=True)
class Proposal:
    """What an engine expects to take for a geometry, and how it would go on."""

    seconds: float  # planning and one product
    plan: Callable[[], Operator]


class Engine(ABC):
    """One way of computing K v. Stateless: an instance holds settings, never data."""

    #: Name under which `engine=` finds it.
    name: str
    #: The window classes it can compute.
    windows: tuple[type, ...] = (Gaussian, Ball)
    #: Whether it meets the accuracy asked for, so that `auto` may take it.
    heeds_eps = True

    @abstractmethod
    def propose(self, geometry: Geometry, columns: int) -> Proposal:
        """The cost of planning and of one product with so many real columns; the plan to follow.

        Cheap beside the product itself. Infinite seconds where the engine will refuse.
        """

    def least(self, geometry: Geometry, columns: int) -> float:
        """Seconds below which no proposal of this engine lies, known without looking."""
        rates = self.rates(geometry)
        ends = geometry.size * columns / 2 * (rates.phasor + rates.write) / 2
        return rates.call + len(geometry.points) * rates.point + ends

    @staticmethod
    def rates(geometry: Geometry) -> CostModel:
        """The cost model for the device and dtype of a geometry."""
        return cost_model(geometry.device, geometry.dtype)


class _Rules(torch.autograd.Function):
    """What is the same for K v and for its gradients: an error instead of a wrong derivative."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:  # noqa: ARG004
        raise RuntimeError(
            "forward-mode differentiation (torch.func.jvp, torch.autograd.forward_ad) is not "
            f"available for this engine; {_INSTEAD}, or reverse mode (torch.func.vjp)"
        )

    @staticmethod
    def vmap(info: Any, dims: Any, *args: Any) -> Any:  # noqa: ARG004
        raise RuntimeError(f"vmap cannot follow this engine; {_INSTEAD}")


class _Product(_Rules):
    """K v with the gradients of every engine: K^T u, and those of the two sets of positions."""

    @staticmethod
    def forward(points: Tensor, queries: Tensor, values: Tensor, operator: Operator) -> Tensor:
        return operator.product(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.operator = inputs[3]
        ctx.save_for_backward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad
        found = iter(_Gradients.apply(*ctx.saved_tensors, grad, ctx.operator, wanted))
        return tuple(next(found) if want else None for want in wanted)


class _Gradients(_Rules):
    """The gradients of <grad, K v> to points, queries and values, as far as they are wanted."""

    @staticmethod
    def forward(
        points: Tensor,
        queries: Tensor,
        values: Tensor,
        grad: Tensor,
        operator: Operator,
        wanted: tuple[bool, ...],
    ) -> tuple[Tensor, ...]:
        ways = (
            lambda: operator.T.query_grad(values, grad),
            lambda: operator.query_grad(grad, values),
            lambda: operator.T.product(grad),
        )
        with full_precision(operator.geometry.device):
            return tuple(way() for way, want in zip(ways, wanted, strict=False) if want)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ARG004
        raise RuntimeError(
            f"gradients of gradients are not available for this engine; {_INSTEAD}"
        )
