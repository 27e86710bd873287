"""The mathematics without state: encode, reconstruct, compare.

E(x) = exp(i x A)                              carrier, |E| = 1
G(q) = sum_j w_j window(x_j - q) E(x_j - q)    encoding of the neighborhood of q
"""

from __future__ import annotations

from torch import Tensor

from veckm import inputs
from veckm.engines import Gaussian, Norm
from veckm.engines.phasors import phase, phasors
from veckm.kernel_moments import Moments
from veckm.planning import EngineName, Scales
from veckm.sizes import WindowName, make_window


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
    validate: bool = True,
) -> Tensor:
    """G(q) = sum_j w_j window(x_j - q) exp(i (x_j - q) A), for every point or query q.

    Args:
        pos: points, float32 or float64, in any units.
        A: frequencies, in the inverse units; entries N(0, alpha^2).
        norm: ``"unit"`` for norm sqrt(D) as in the paper, ``"mean"`` to divide by the sum of the
            weights (the local characteristic function, |G| <= 1), or None.
        weights: a number for each point.

    All other arguments as for :func:`veckm.plan`.

    Differentiable in pos, queries, weights and A.

    Shapes:
        returns: complex, (N, D), (M, D), (B, N, D) or (B, M, D). A query without any point in
        reach has encoding zero.

    `VecKM: A Linear Time and Space Local Point Cloud Geometry Encoder, Theorems 1 and 2
    <https://arxiv.org/abs/2404.01568>`_.
    """
    made = make_window(window, beta, radius)
    inputs.check_frequencies(A, "A", None, values=False)  # the rest when they are used
    scales = Scales.of(pos, batch, queries, query_batch, A.shape[0], validate)
    planned = scales.plan(made, engine, eps, B, 2 * A.shape[1], progress)
    return planned.encode(A, norm=norm, weights=weights)


def moments(
    pos: Tensor,  # (N, D_in) or (B, N, D_in)
    *,
    beta: float | None = None,
    radius: float | None = None,
    window: WindowName = "gaussian",
    batch: Tensor | None = None,  # (N,)
    queries: Tensor | None = None,  # (M, D_in) or (B, M, D_in)
    query_batch: Tensor | None = None,  # (M,)
    weights: Tensor | None = None,  # (N,) or (B, N), not negative
    engine: EngineName = "auto",
    eps: float = 1e-3,
    progress: bool | None = None,
    validate: bool = True,
) -> Moments:
    """Weight, mean and covariance of the points around each query, weighted by the window.

    Arguments as for :func:`veckm.plan`; differentiable in pos, queries and weights. Where no
    point is in reach all moments are zero.

    Shapes:
        returns: ``Moments`` with leading shape (N,), (M,), (B, N) or (B, M).
    """
    scales = Scales.of(pos, batch, queries, query_batch, None, validate)
    in_dim = pos.shape[-1]
    columns = 1 + in_dim + in_dim * (in_dim + 1) // 2
    made = make_window(window, beta, radius)
    planned = scales.plan(made, engine, eps, None, columns, progress)
    return planned.moments(weights=weights)


def encode_neighborhood(
    offsets: Tensor,  # (..., K, D_in): neighbors about their center, x_k - x_0
    A: Tensor,  # (D_in, D)
    weights: Tensor | None = None,  # (..., K)
) -> Tensor:
    """g = 1/K sum_k exp(i (x_k - x_0) A): Theorem 1, for neighborhoods that are given.

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

    It tends to the Gaussian kernel mixture of the neighbors as D grows (Lemma 2); the factor 1/D,
    which the paper's proposition leaves out, is that of its Lemma 1.

    Shapes:
        returns: (..., P) real.
    """
    carrier = phasors(-phase(at, A.to(at)))  # (P, D)
    return (G @ carrier.to(G.dtype).t()).real / G.shape[-1]


def similarity(G1: Tensor, G2: Tensor) -> Tensor:
    """Re <g1, g2> / D: how alike two neighborhoods are (Proposition 2).

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
    """f(x) = 1/K sum_k exp(-alpha^2 |x - x_k|^2 / 2): the mixture that the encoding vectorizes.

    Shapes:
        returns: (P,) real.
    """
    kernel = Gaussian(inputs.check_positive(alpha, "alpha"))
    values = kernel((at[:, None] - points[None]).square().sum(-1))  # (P, K)
    return values.mean(1) if weights is None else values @ weights / weights.sum()
