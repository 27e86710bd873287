"""The plan: the kernel operator of a cloud, made once and applied many times.

    K[q, j] = w(x_j - q)
    plan.encode(A)      [K E](q) / E(q),  E(x) = exp(i x A)
    plan.moments()      K applied to 1, x, x x^T, about each query
    plan.sum(values)    K v

As in FFTW and finufft, it holds all that depends on the points and the window, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from veckm import inputs
from veckm.engines import ENGINES, Geometry, Modulation, Norm, Points, Window, choose, device, find
from veckm.engines.dense import DenseOperator
from veckm.engines.device import full_precision, too_large, traced
from veckm.engines.operator import Operator
from veckm.engines.phasors import as_real
from veckm.kernel_moments import Moments, from_sums, polynomials
from veckm.parallel import one_thread
from veckm.sizes import WindowName, make_window

EngineName = Literal["auto", "dense", "neighbors", "random", "grid"]

#: Least eps at which factors of products may be rounded: to bfloat16 that is an error of 0.2 %.
ROUNDED = 5e-3
#: Real columns that `auto` optimizes for by default: an encoding of size 256.
_COLUMNS = 512


class Plan:
    """K of one cloud, or of a batch of clouds, at one scale; made by :func:`veckm.plan`.

    Attributes:
        engine: the name of the engine that was chosen.
        cost: the seconds that it expected for planning and one product.
        window: the window, with its ``beta`` or ``radius``.
    """

    def __init__(
        self, scales: Scales, geometry: Geometry, engine: EngineName, columns: int
    ) -> None:
        self._scales, self._geometry, self._columns = scales, geometry, columns
        self.window = geometry.window
        if traced(geometry.points.pos, geometry.queries.pos):
            _check_traceable(engine, geometry)
            chosen, self.cost = find("dense", geometry.window), math.nan
            self._operator: Operator = DenseOperator(geometry)
        elif len(geometry.points) and len(geometry.queries):
            with one_thread(), full_precision(geometry.device), torch.no_grad():
                chosen, self.cost, self._operator = choose(geometry, engine, columns)
        else:  # nothing to sum; a wrong name is wrong all the same
            chosen, self.cost = find("dense" if engine == "auto" else engine, geometry.window), 0.0
            self._operator = DenseOperator(geometry)
        self.engine = chosen.name

    @cached_property
    def costs(self) -> dict[str, float]:
        """Expected seconds of every engine that can compute the window; infinite if it refuses."""
        able = [e for e in ENGINES if isinstance(self.window, e.windows)]
        return {e.name: e.propose(self._geometry, self._columns).seconds for e in able}

    def encode(
        self,
        A: Tensor,  # (D_in, D)
        *,
        norm: Norm = "unit",
        weights: Tensor | None = None,  # (N,) or (B, N)
        out: Tensor | None = None,
    ) -> Tensor:
        """G(q) = sum_j w_j window(x_j - q) exp(i (x_j - q) A): see :func:`veckm.encode`.

        Args:
            A, norm, weights: as there.
            out: where to write the result, of its shape and dtype; as with torch's own ``out=``,
                not together with gradients.
        """
        g, validate = self._geometry, self._scales.validate
        A = inputs.check_frequencies(A, "A", g.points.pos, validate)
        inputs.check_norm(norm)
        with one_thread():
            flat = inputs.check_weights(weights, g.points.pos, norm == "mean", validate)
            if validate:
                inputs.check_phases(g.points.flat, A, g.window.reach(g.eps, g.in_dim))
        shape = (*g.queries.lead, A.shape[1])
        modulation = Modulation(A, flat, norm)
        graph = self._scales.differentiates(A, flat)
        if out is not None and (graph or out.shape != shape or out.dtype != A.dtype.to_complex()):
            raise ValueError(
                f"out must be {A.dtype.to_complex()} of shape {shape}, got {out.dtype} "
                f"{tuple(out.shape)}; out= and gradients exclude each other"
            )
        if graph or (out is None and device.launches(g.device)):
            with self._room(), torch.set_grad_enabled(graph):
                return self._operator.encodings(modulation).view(shape)
        out = self._scales.empty(A.shape[1]) if out is None else out
        with self._room(), torch.no_grad():
            modulation = replace(modulation, A=A.detach())
            self._operator.encode(modulation, out.view(-1, A.shape[1]))
        return out

    def sum(self, values: Tensor) -> Tensor:
        """S(q) = sum_j w(x_j - q) v_j: linear-time, differentiable kernel smoothing.

        ``plan.sum(v) / plan.sum(torch.ones_like(v))`` is the Nadaraya-Watson mean.

        Shapes:
            - values: (N,), (N, C), (B, N) or (B, N, C), real or complex; float64 is summed as such
            - output: likewise, with M queries in the place of the points
        """
        g = self._geometry
        lead = g.points.lead
        real = isinstance(values, Tensor) and (values.is_floating_point() or values.is_complex())
        if not real or values.shape[: len(lead)] != lead or values.dim() > len(lead) + 1:
            got = f"{values.dtype} {tuple(values.shape)}" if isinstance(values, Tensor) else values
            raise ValueError(
                f"values must be a float or complex tensor of shape {(*lead, 'C')} or {lead}, "
                f"got {got}"
            )
        if self._scales.validate:
            inputs.check_finite(values, "values")
        rows = as_real(values.reshape(-1, *values.shape[len(lead) :] or (1,)))
        sums = self._apply(rows.to(torch.promote_types(rows.dtype, g.dtype)))
        if values.is_complex():
            sums = torch.view_as_complex(sums.unflatten(-1, (-1, 2)).contiguous())
        return sums.view(*g.queries.lead, *values.shape[len(lead) :])

    def moments(self, *, weights: Tensor | None = None) -> Moments:
        """Weight, mean and covariance around each query: see :func:`veckm.moments`."""
        g = self._geometry
        with one_thread():
            flat = inputs.check_weights(weights, g.points.pos, True, self._scales.validate)
            values = polynomials(g.points.flat, flat)
        sums = self._apply(values)
        with one_thread():
            raw = from_sums(sums, g.queries.flat)
        weight, mean, covariance = (p.view(*g.queries.lead, *p.shape[1:]) for p in raw)
        return Moments(weight, mean, covariance, g.window)

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Full precision; and one thread of torch's where the operator has threads of its own."""
        own = one_thread() if self._operator.shares else nullcontext()
        with full_precision(self._geometry.device), own:
            yield

    def _apply(self, values: Tensor) -> Tensor:  # (N, C) -> (M, C), real
        with self._room():
            if self._scales.differentiates(values):
                return self._operator.apply(values)
            with torch.no_grad():
                return self._operator.product(values)


@dataclass(frozen=True)
class Scales:
    """Checked and centered input that plans of several scales share."""

    points: Points
    queries: Points
    validate: bool

    @classmethod
    def of(
        cls,
        pos: Tensor,
        batch: Tensor | None,
        queries: Tensor | None,
        query_batch: Tensor | None,
        in_dim: int | None,
        validate: bool,
    ) -> Scales:
        """Check and center points and queries; raises on bad input."""
        validate = validate and not (isinstance(pos, Tensor) and traced(pos))
        with one_thread():
            inputs.check_points(pos, "pos", in_dim, validate)
            points = targets = inputs.as_points(pos, batch, "pos", validate)
            if queries is not None:
                inputs.check_queries(queries, pos, validate)
                if (batch is None) != (query_batch is None):
                    raise ValueError("batch and query_batch go together: give both or neither")
                targets = inputs.as_points(queries, query_batch, "queries", validate)
            elif query_batch is not None:
                raise ValueError("query_batch is given but queries is not: give both, or use batch")
            return cls(*inputs.centered(points, targets), validate)

    def differentiates(self, *others: Tensor | None) -> bool:
        """Whether any tensor requires derivatives, forward mode included."""
        given = [t for t in (self.points.pos, self.queries.pos, *others) if t is not None]
        if traced(*given) or any(unpack_dual(t).tangent is not None for t in given):
            return True
        return torch.is_grad_enabled() and any(t.requires_grad for t in given)

    def empty(self, columns: int) -> Tensor:
        """Memory for encodings of all queries, complex, of the caller's shape."""
        rows, pos = self.queries, self.points.pos
        flat = device.empty(len(rows), columns, pos, pos.dtype.to_complex())
        return flat.view(*rows.lead, columns)

    def plan(
        self,
        window: Window,
        engine: EngineName,
        eps: float,
        B: Tensor | None = None,
        columns: int = _COLUMNS,
        progress: bool | None = None,
        low: torch.dtype | None = None,
    ) -> Plan:
        """The plan of one scale."""
        eps = inputs.check_eps(eps, self.points.pos.dtype)
        if B is not None:
            B = inputs.check_frequencies(B, "B", self.points.pos, self.validate).detach()
        low = low if eps >= ROUNDED and self.points.pos.dtype == torch.float32 else None
        geometry = Geometry(self.points, self.queries, window, eps, B, progress, low)
        return Plan(self, geometry, engine, columns)


def plan(
    pos: Tensor,  # (N, D_in) or (B, N, D_in)
    *,
    radius: float | None = None,
    beta: float | None = None,
    batch: Tensor | None = None,  # (N,)
    queries: Tensor | None = None,  # (M, D_in) or (B, M, D_in)
    query_batch: Tensor | None = None,  # (M,)
    window: WindowName = "gaussian",
    engine: EngineName = "auto",
    eps: float = 1e-2,
    B: Tensor | None = None,  # (D_in, p)
    columns: int = _COLUMNS,
    progress: bool | None = None,
    validate: bool = True,
) -> Plan:
    """The kernel operator of a cloud, to be applied many times.

    Args:
        pos: points, float32 or float64, in any units. They must not be changed in place while the
            plan is in use.
        radius, beta: the size of the window, one of the two; beta = 1.8 / radius.
        batch: PyG batch vector: the cloud of each point, ascending. Clouds do not see each other.
        queries: where to sum, instead of at the points; `query_batch` goes with `batch`.
        window: ``"gaussian"``, exp(-beta^2 |z|^2 / 2), or ``"ball"``, |z| < radius.
        engine: how to compute it; ``"auto"`` takes the fastest that meets `eps`.
        eps: mean relative error that ``grid`` and ``neighbors`` may make.
        B: frequencies N(0, beta^2) of Theorem 2, for ``engine="random"``.
        columns: real columns per point that ``"auto"`` optimizes for, two per complex number.
        progress: False for no progress bar; a bar only ever shows on a terminal.
        validate: False skips the checks of values (finite, in range), each a pass over the data
            and on a GPU a wait; shapes stay checked.

    Example:
        >>> plan = veckm.plan(pos, radius=0.1)
        >>> density = plan.sum(torch.ones(len(pos)))
        >>> G, m = plan.encode(A), plan.moments()
    """
    scales = Scales.of(pos, batch, queries, query_batch, None, validate)
    made = make_window(window, beta, radius)
    return scales.plan(made, engine, eps, B, columns, progress)


def followed(engine: str, pos: Tensor, batch: Tensor | None, queries: Tensor | None) -> bool:
    """Whether a compiler can follow the call."""
    rows = pos if queries is None else queries
    few = not too_large(pos[..., 0].numel() * rows.shape[-2])
    return engine in ("auto", "dense") and batch is None and few


def _check_traceable(name: EngineName, geometry: Geometry) -> None:
    g = geometry
    if not followed(name, g.points.pos, g.points.batch, g.queries.pos):
        raise NotImplementedError(
            "torch.compile, torch.export, torch.jit.trace and vmap can follow engine='dense' on "
            f"(N, D_in) or (B, N, D_in) with few points, got engine={name!r}, pos "
            f"{tuple(g.points.pos.shape)} and {'no' if g.points.batch is None else 'a'} batch "
            "vector; call it outside of the graph, for example by torch.compiler.disable"
        )
