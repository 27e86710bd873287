"""What every engine is given and what it must give back.

    G(q) = sum_j w_j window(x_j - q) E(x_j - q),      E(z) = exp(i z A)

An engine is one way of computing these sums: same window, same result, other cost. It says which
windows it can do, what it expects to cost, and computes. Everything that can be wrong with the
input has been checked before (`veckm.inputs`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor
from torch.nn import functional

Norm = Literal["unit", "mean"] | None


@dataclass(frozen=True)
class Gaussian:
    """w(z) = exp(-beta^2 |z|^2 / 2): J-hat in the paper."""

    beta: float

    def __call__(self, squared: Tensor, inplace: bool = False) -> Tensor:
        # Below the least normal number exp takes eight times as long, and is taken for zero anyway.
        least, rate = math.log(torch.finfo(squared.dtype).tiny), -0.5 * self.beta**2
        if inplace:
            return no_subnormals(squared.mul_(rate).clamp_min_(least).exp_(), inplace=True)
        return no_subnormals(torch.exp((squared * rate).clamp_min(least)))

    def reach(self, eps: float, in_dim: int) -> float:
        """The radius outside which lies the share `eps` of the window's mass (chi distribution)."""
        return math.sqrt(float(chi2.isf(min(eps, 0.5), in_dim))) / self.beta


@dataclass(frozen=True)
class Ball:
    """w(z) = 1 where |z| < radius, else 0: J in the paper."""

    radius: float

    def __call__(self, squared: Tensor, inplace: bool = False) -> Tensor:
        inside = squared < self.radius**2
        return squared.copy_(inside) if inplace else inside.to(squared.dtype)

    def reach(self, eps: float, in_dim: int) -> float:  # noqa: ARG002 - a ball ends where it ends
        return self.radius


Window = Gaussian | Ball


@dataclass(frozen=True)
class Problem:
    """One call of the encoder at one scale, checked and centred."""

    pos: Tensor  # (N, D_in) points, each cloud about its own origin
    cloud: Tensor  # (N,) int64, ascending: the cloud of each point
    queries: Tensor  # (M, D_in) where to encode; `pos` itself unless asked otherwise
    query_cloud: Tensor  # (M,) int64, ascending
    weights: Tensor | None  # (N,)
    A: Tensor  # (D_in, D) frequencies, in the dtype of pos
    window: Window
    norm: Norm
    eps: float
    B: Tensor | None = None  # (D_in, p) frequencies of Theorem 2, for the random engine
    progress: bool | None = None

    @property
    def in_dim(self) -> int:
        return self.pos.shape[1]

    @property
    def same(self) -> bool:
        """Whether the queries are the points: the engines then plan and sort once."""
        return self.queries is self.pos

    @property
    def complex_dtype(self) -> torch.dtype:
        return torch.complex128 if self.pos.dtype == torch.float64 else torch.complex64

    @cached_property
    def needs_grad(self) -> bool:
        inputs = (self.pos, self.queries, self.weights)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)

    @cached_property
    def columns(self) -> Tensor:
        """(D_in, C): A, and for norm="mean" one more column of frequency zero.

        E(z) is 1 there, so that this column of the sums is sum_j w_j window(x_j - q) itself.
        """
        if self.norm != "mean":
            return self.A
        return torch.cat([self.A, self.A.new_zeros(self.in_dim, 1)], dim=1)

    def label(self, what: str) -> str | None:
        """The name of a progress bar; none where the caller wants none."""
        return None if self.progress is False else what

    def finish(self, sums: Tensor) -> Tensor:  # (n, C) complex -> (n, D) complex
        """Normalise sums. |E| = 1, so this may come before or after dividing by E(q).

        Where no point is within reach the sums are zero and so is the encoding: never NaN.
        """
        tiny = 1e6 * torch.finfo(self.pos.dtype).tiny  # its reciprocal must still be finite
        if self.norm == "unit":
            parts = torch.view_as_real(sums).flatten(-2)  # torch's complex norm is 20 times slower
            length = torch.linalg.vector_norm(parts, dim=-1, keepdim=True).clamp_min(tiny)
            scaled = parts * (math.sqrt(sums.shape[-1]) / length)
            return torch.view_as_complex(scaled.unflatten(-1, (-1, 2)))
        if self.norm == "mean":
            total = sums[..., -1:].real.clamp_min(tiny)
            return sums[..., :-1] / total
        return sums


@dataclass(frozen=True)
class Task:
    """A problem that an engine has looked at: what it will cost, and how to do it."""

    seconds: float  # expected on two cores of a current CPU
    run: Callable[[], Tensor]  # (M, D) complex, normalised; differentiable in the inputs


class Engine(ABC):
    """One way of computing the sums. Stateless: an instance holds settings, never data."""

    #: Name under which `engine=` finds it.
    name: str
    #: The window classes it can compute.
    windows: tuple[type, ...] = (Gaussian, Ball)

    @abstractmethod
    def prepare(self, problem: Problem) -> Task:
        """Look at the problem, do what is cheap, and say what the rest will cost.

        The task computes (M, D) complex: the sums at the queries, normalised by
        `problem.finish`, differentiable in pos, queries and weights.
        """

    def cost(self, problem: Problem) -> float:
        """Seconds this engine expects to take."""
        return self.prepare(problem).seconds

    def encode(self, problem: Problem) -> Tensor:
        """(M, D) complex."""
        return self.prepare(problem).run()


class Rates:
    """Measured costs on two cores (Zen 3, torch 2.13, float32): only their ratios matter."""

    FLOP = 1 / 1.3e11  # one multiply or add inside a matrix product of a few hundred rows
    PHASOR = 2.6e-9  # phase, cosine, sine and interleaving of one complex number
    WRITE = 2.5e-9  # normalise and write one complex number to fresh memory
    WINDOW = 1.2e-9  # one squared distance as a product, and one exponential
    DISTANCE = 3e-9  # one squared distance by differences, and one exponential
    ROW_BYTE = 1 / 1.0e10  # gathering or scattering rows
    BLOCK = 4.5e-5  # Python and thread hand-over for one block, one pass
    ROW = 4e-6  # one row of all pairs, beside its numbers
    EVEN = 0.67  # all pairs are a few even products: of these rates they need less than blocks do
    CALL = 3.5e-3  # what planning costs however few the points are
    SEARCH = 3e-6  # sorting one point and looking up its neighbours
    TRIMMED = 0.47  # of the work on the nodes of small clouds is left without the idle ones
    TRIMMED_TWICE = 0.8  # the same where queries are not the points, and have windows of their own


def no_subnormals(values: Tensor, inplace: bool = False) -> Tensor:
    """Zero for what makes subnormal products with phasors: they slow matrix products down."""
    return functional.threshold(values, 1e8 * torch.finfo(values.dtype).tiny, 0.0, inplace)


#: Phases up to this many rad keep an absolute error of about 1e-4 in float32.
SAFE_PHASE = 2000.0


def phase(x: Tensor, A: Tensor) -> Tensor:  # (n, D_in), (D_in, C) -> (n, C)
    """x A; where float32 would lose digits, in float64 and reduced to one turn."""
    if x.dtype == torch.float32 and len(x):
        largest = float(x.detach().abs().amax()) * float(A.detach().abs().sum(0).amax())
        if largest > SAFE_PHASE:
            return torch.remainder(x.double() @ A.double(), 2 * math.pi).to(x.dtype)
    return x @ A


def phasors(angle: Tensor) -> Tensor:
    """exp(i angle): cosine and sine separately, several times faster than torch's complex exp."""
    return torch.complex(torch.cos(angle), torch.sin(angle))


def empty_result(problem: Problem) -> Tensor:
    """(M, D) complex, uninitialised, for the caller's result.

    On the CPU the memory comes from NumPy, which asks Linux for huge pages as torch does not:
    touching a fresh result for the first time is then several times faster.
    """
    shape = (len(problem.queries), problem.A.shape[1])
    if problem.pos.device.type != "cpu":
        return torch.empty(shape, dtype=problem.complex_dtype, device=problem.pos.device)
    dtype = np.complex128 if problem.pos.dtype == torch.float64 else np.complex64
    return torch.from_numpy(np.empty(shape, dtype))


def as_complex(real: Tensor) -> Tensor:  # (n, 2C) -> (n, C) complex, the same memory
    """Interleaved real and imaginary parts as complex numbers."""
    return torch.view_as_complex(real.view(real.shape[0], -1, 2))


def as_real(values: Tensor) -> Tensor:  # (n, C) complex -> (n, 2C), the same memory
    """Complex numbers as interleaved real and imaginary parts."""
    return torch.view_as_real(values).flatten(1)
