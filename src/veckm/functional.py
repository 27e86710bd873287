"""The mathematics without state: encode, reconstruct, compare.

E(x) = exp(i x A)                              carrier, |E| = 1
G(q) = sum_j w_j window(x_j - q) E(x_j - q)    encoding of the neighbourhood of q
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from veckm import inputs
from veckm.engines import Ball, Gaussian, Norm, Problem, Window, find, prepare
from veckm.engines.base import phase, phasors
from veckm.frequencies import BETA_TIMES_RADIUS

WindowName = Literal["gaussian", "ball"]
EngineName = Literal["auto", "dense", "neighbors", "random", "grid"]


def encode(
    pos: Tensor,  # (N, D_in) or (B, N, D_in)
    A: Tensor,  # (D_in, D)
    *,
    beta: float | None = None,
    radius: float | None = None,
    window: WindowName = "gaussian",
    engine: EngineName = "auto",
    norm: Norm = "unit",
    eps: float = 1e-2,
    batch: Tensor | None = None,  # (N,)
    queries: Tensor | None = None,  # (M, D_in) or (B, M, D_in)
    query_batch: Tensor | None = None,  # (M,)
    weights: Tensor | None = None,  # (N,) or (B, N)
    B: Tensor | None = None,  # (D_in, p)
    progress: bool | None = None,
) -> Tensor:
    """G(q) = sum_j w_j window(x_j - q) exp(i (x_j - q) A), for every point or query q.

    Args:
        pos: points, float32 or float64, in any units.
        A: frequencies, in the inverse units; entries N(0, alpha^2).
        beta, radius: the size of the window, one of the two; beta = 1.8 / radius.
        window: ``"gaussian"``, exp(-beta^2 |z|^2 / 2), or ``"ball"``, |z| < radius.
        engine: how to compute it; ``"auto"`` takes the fastest that meets `eps`.
        norm: ``"unit"`` for norm sqrt(D) as in the paper, ``"mean"`` to divide by the sum of the
            weights (the local characteristic function, |G| <= 1), or None.
        eps: mean relative error of the encodings that ``grid`` and ``neighbors`` may make.
        batch: PyG batch vector: the cloud of each point, ascending. Clouds do not see each other.
        queries: where to encode, instead of at the points.
        weights: a number for each point.
        B: frequencies N(0, beta^2) of Theorem 2, for ``engine="random"``.
        progress: False for no progress bar; a bar only ever shows on a terminal.

    Shapes:
        returns: complex, (N, D), (M, D), (B, N, D) or (B, M, D). A query without any point in
        reach has encoding zero.

    `VecKM: A Linear Time and Space Local Point Cloud Geometry Encoder, Theorems 1 and 2
    <https://arxiv.org/abs/2404.01568>`_.
    """
    problem, lead = make_problem(
        pos,
        A,
        window=make_window(window, beta, radius),
        norm=norm,
        eps=eps,
        batch=batch,
        queries=queries,
        query_batch=query_batch,
        weights=weights,
        B=B,
        progress=progress,
    )
    if not len(problem.pos) or not len(problem.queries):
        find("dense" if engine == "auto" else engine, problem)  # a wrong name is wrong here too
        shape = (len(problem.queries), A.shape[1])
        empty = torch.zeros(shape, dtype=problem.complex_dtype, device=problem.pos.device)
        return empty.view(*lead, A.shape[1])
    # Phases need all their digits, so a surrounding autocast does not reach into the engines.
    with torch.autocast(problem.pos.device.type, enabled=False):
        return prepare(problem, engine)[1].run().view(*lead, A.shape[1])


def make_window(name: WindowName, beta: float | None, radius: float | None) -> Window:
    """The window called `name`, sized by beta or by radius; the other follows (Appendix D)."""
    if (beta is None) == (radius is None):
        raise ValueError(f"give either beta or radius, not both: beta={beta!r}, radius={radius!r}")
    if beta is not None:
        beta = inputs.check_positive(beta, "beta")
        radius = BETA_TIMES_RADIUS / beta
    else:
        assert radius is not None
        radius = inputs.check_positive(radius, "radius")
        beta = BETA_TIMES_RADIUS / radius
    if name == "gaussian":
        return Gaussian(beta)
    if name == "ball":
        return Ball(radius)
    raise ValueError(f"unknown window {name!r}: use 'gaussian' or 'ball'")


def make_problem(
    pos: Tensor,
    A: Tensor,
    *,
    window: Window,
    norm: Norm,
    eps: float,
    batch: Tensor | None = None,
    queries: Tensor | None = None,
    query_batch: Tensor | None = None,
    weights: Tensor | None = None,
    B: Tensor | None = None,
    progress: bool | None = None,
) -> tuple[Problem, tuple[int, ...]]:
    """Check everything at the door; flat, centred clouds, and the leading shape of the result."""
    A = _frequencies(A, "A", pos)
    inputs.check_points(pos, "pos", A.shape[0])
    eps = inputs.check_eps(eps, pos.dtype)
    if norm not in ("unit", "mean", None):
        raise ValueError(f"unknown norm {norm!r}: use 'unit', 'mean' or None")
    if weights is not None:
        weights = inputs.check_weights(weights, pos, norm == "mean")
    if queries is None and query_batch is not None:
        raise ValueError("query_batch is given but queries is not: give both, or use batch")
    asked = None if queries is None else _queries(queries, pos, batch, query_batch)
    if B is not None and isinstance(B, Tensor) and B.dim() == 2 and B.shape[0] != A.shape[0]:
        raise ValueError(
            f"B is for {B.shape[0]} coordinates a point and A for {A.shape[0]}: "
            f"draw B with shape ({A.shape[0]}, p)"
        )
    points, asked = inputs.centre(inputs.flatten(pos, batch, "pos"), asked)
    target = points if asked is None else asked
    inputs.check_phases(points.pos, A, window.reach(eps, A.shape[0]))
    problem = Problem(
        pos=points.pos,
        cloud=points.cloud,
        queries=target.pos,
        query_cloud=target.cloud,
        weights=weights,
        A=A,
        window=window,
        norm=norm,
        eps=eps,
        B=None if B is None else _frequencies(B, "B", pos),
        progress=progress,
    )
    return problem, target.lead


def _frequencies(A: Tensor, name: str, pos: Tensor) -> Tensor:
    if not isinstance(A, Tensor) or A.dim() != 2 or 0 in A.shape or not A.is_floating_point():
        got = f"{A.dtype} {tuple(A.shape)}" if isinstance(A, Tensor) else type(A).__name__
        raise ValueError(f"{name} must be a float tensor of shape (D_in, D), got {got}")
    inputs.check_finite(A, name)
    return A.detach().to(pos) if isinstance(pos, Tensor) and pos.is_floating_point() else A


def _queries(
    queries: Tensor, pos: Tensor, batch: Tensor | None, query_batch: Tensor | None
) -> inputs.Clouds:
    inputs.check_points(queries, "queries", pos.shape[-1])
    if queries.dtype != pos.dtype or queries.device != pos.device or queries.dim() != pos.dim():
        raise ValueError(
            f"queries must be like pos in dtype, device and dimensions: got {queries.dtype} "
            f"{tuple(queries.shape)} on {queries.device} beside {pos.dtype} {tuple(pos.shape)} "
            f"on {pos.device}"
        )
    if pos.dim() == 3 and queries.shape[0] != pos.shape[0]:
        raise ValueError(f"pos has {pos.shape[0]} clouds but queries has {queries.shape[0]}")
    if (batch is None) != (query_batch is None):
        raise ValueError("batch and query_batch go together: give both or neither")
    return inputs.flatten(queries, query_batch, "queries")


def encode_neighborhood(
    offsets: Tensor,  # (..., K, D_in): neighbours about their centre, x_k - x_0
    A: Tensor,  # (D_in, D)
    weights: Tensor | None = None,  # (..., K)
) -> Tensor:
    """g = 1/K sum_k exp(i (x_k - x_0) A): Theorem 1, for neighbourhoods that are given.

    Shapes:
        returns: (..., D) complex.
    """
    if offsets.shape[-1:] != A.shape[:1] or offsets.dim() < 2 or offsets.shape[-2] == 0:
        raise ValueError(
            f"offsets must have shape (..., K, {A.shape[0]}) with K >= 1, "
            f"got {tuple(offsets.shape)}"
        )
    e = phasors(offsets @ A.to(offsets))
    if weights is None:
        return e.mean(-2)
    return (e * weights[..., None]).sum(-2) / weights.sum(-1, keepdim=True)


def reconstruct(
    G: Tensor,  # (..., D) complex
    at: Tensor,  # (P, D_in): where, about the point that was encoded
    A: Tensor,  # (D_in, D)
) -> Tensor:
    """f(x) = Re <exp(i x A), g> / D: the density that an encoding holds (Proposition 1).

    It tends to the Gaussian kernel mixture of the neighbours as D grows (Lemma 2); the factor 1/D,
    which the paper's proposition leaves out, is that of its Lemma 1.

    Shapes:
        returns: (..., P) real.
    """
    carrier = phasors(-phase(at, A.to(at)))  # (P, D)
    return (G @ carrier.to(G.dtype).t()).real / G.shape[-1]


def similarity(G1: Tensor, G2: Tensor) -> Tensor:
    """Re <g1, g2> / D: how alike two neighbourhoods are (Proposition 2).

    It tends to the correlation of the two kernel mixtures as D grows (Lemma 3), and is 1 for equal
    encodings of unit norm. Leading dimensions broadcast.

    Shapes:
        G1, G2: (..., D) complex. returns: (...) real.
    """
    if G1.shape[-1] != G2.shape[-1]:
        raise ValueError(f"encodings of different sizes: {G1.shape[-1]} and {G2.shape[-1]}")
    return (G1.conj() * G2).real.mean(-1)


def kernel_mixture(
    points: Tensor,  # (K, D_in)
    at: Tensor,  # (P, D_in)
    alpha: float,
    weights: Tensor | None = None,  # (K,)
) -> Tensor:
    """f(x) = 1/K sum_k exp(-alpha^2 |x - x_k|^2 / 2): the mixture that the encoding vectorises.

    Shapes:
        returns: (P,) real.
    """
    kernel = Gaussian(inputs.check_positive(alpha, "alpha"))
    values = kernel((at[:, None] - points[None]).square().sum(-1))  # (P, K)
    return values.mean(1) if weights is None else values @ weights / weights.sum()
