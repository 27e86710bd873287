"""VecKM as a module: holds the frequencies of each scale, picks an engine, encodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from veckm import frequencies, inputs
from veckm.engines import Norm
from veckm.frequencies import BETA_TIMES_RADIUS, Draw
from veckm.functional import EngineName, WindowName, encode

#: alpha * radius when only a radius is given: the authors' default level of detail.
DEFAULT_DETAIL = 6.0


class VecKM(nn.Module):
    """The local geometry of every point as a complex vector.

        G(x_0) = sum_j window(x_j - x_0) exp(i (x_j - x_0) A),    A[., d] ~ N(0, alpha^2)

    Sizes are given in the paper's terms (`alpha`, `beta`) or in the user's (`radius` in the units
    of the data, and `detail`: alpha = detail / radius). Sequences mean several scales; their
    encodings stand side by side.

    Args:
        dim: D, complex numbers for each scale.
        alpha: level of detail.
        beta: inverse size of the window, beta = 1.8 / radius (Appendix D).
        radius: size of the window in the units of the data, instead of `beta`.
        detail: alpha * radius, instead of `alpha`; about 6.
        in_dim: D_in, coordinates of a point.
        window: ``"gaussian"`` or ``"ball"``.
        engine: ``"auto"``, ``"dense"``, ``"neighbors"``, ``"random"`` or ``"grid"``.
        norm: ``"unit"``, ``"mean"`` or None; see :func:`veckm.encode`.
        eps: mean relative error that ``grid`` and ``neighbors`` may make.
        p: columns of B, for ``engine="random"``.
        draw: ``"unbiased"`` frequencies or the ``"paper"``'s quantiles.
        seed: of the generator that A and B come from; the global one is never touched.
        A: frequencies to use instead of drawing them, (D_in, D) or (scales, D_in, D): this is
            how the authors' A is loaded; see :func:`veckm.frequencies.authors_standard_normal`.
        B: likewise, (D_in, p) or (scales, D_in, p).

    Shapes:
        pos: (N, D_in), or (B, N, D_in), or (N, D_in) with `batch` (N,).
        returns: complex, the leading shape of pos (or of the queries), then scales * D.

    Example:
        >>> enc = VecKM(dim=256, alpha=60, beta=(10, 20))
        >>> enc(torch.rand(1000, 3)).shape
        torch.Size([1000, 512])
    """

    A: Tensor  # (scales, D_in, D)
    B: Tensor  # (scales, D_in, p)

    def __init__(
        self,
        dim: int = 256,
        *,
        alpha: float | Sequence[float] | None = None,
        beta: float | Sequence[float] | None = None,
        radius: float | Sequence[float] | None = None,
        detail: float | Sequence[float] | None = None,
        in_dim: int = 3,
        window: WindowName = "gaussian",
        engine: EngineName = "auto",
        norm: Norm = "unit",
        eps: float = 1e-2,
        p: int = 4096,
        draw: Draw = "unbiased",
        seed: int = 0,
        A: Tensor | None = None,
        B: Tensor | None = None,
    ) -> None:
        super().__init__()
        if in_dim < 1:
            raise ValueError(f"in_dim must be at least 1, got {in_dim!r}")
        self.window, self.engine, self.norm, self.eps = window, engine, norm, eps
        self.alpha, self.beta = _scales(alpha, beta, radius, detail, known=A is not None)
        generator = torch.Generator().manual_seed(seed)
        units = [
            (
                frequencies.standard_normal(in_dim, dim, generator=generator, draw=draw),
                frequencies.standard_normal(in_dim, p, generator=generator, draw=draw),
            )
            for _ in self.beta
        ]
        drawn_A = [a * alpha for (a, _), alpha in zip(units, self.alpha, strict=True)]
        drawn_B = [b * beta for (_, b), beta in zip(units, self.beta, strict=True)]
        self.register_buffer("A", _given(A, drawn_A, "A"))
        self.register_buffer("B", _given(B, drawn_B, "B"))

    @property
    def radius(self) -> tuple[float, ...]:
        """The radius of each scale's window."""
        return tuple(BETA_TIMES_RADIUS / beta for beta in self.beta)

    @property
    def out_dim(self) -> int:
        """Complex numbers a point: scales * D."""
        return self.A.shape[0] * self.A.shape[2]

    def forward(
        self,
        pos: Tensor,  # (N, D_in) or (B, N, D_in)
        batch: Tensor | None = None,  # (N,)
        *,
        queries: Tensor | None = None,  # (M, D_in) or (B, M, D_in)
        query_batch: Tensor | None = None,  # (M,)
        weights: Tensor | None = None,  # (N,) or (B, N)
        progress: bool | None = None,
    ) -> Tensor:
        """Encode every point, or every query, of one or more clouds."""
        parts = [
            encode(
                pos,
                self.A[i],
                beta=beta,
                window=self.window,
                engine=self.engine,
                norm=self.norm,
                eps=self.eps,
                batch=batch,
                queries=queries,
                query_batch=query_batch,
                weights=weights,
                B=self.B[i],
                progress=progress,
            )
            for i, beta in enumerate(self.beta)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def extra_repr(self) -> str:
        alpha = ", ".join(f"{a:g}" for a in self.alpha)
        beta = ", ".join(f"{b:g}" for b in self.beta)
        return (
            f"{self.A.shape[1]} -> {self.out_dim} complex, alpha=({alpha}), beta=({beta}), "
            f"window={self.window!r}, engine={self.engine!r}, eps={self.eps:g}"
        )


def _scales(
    alpha: float | Sequence[float] | None,
    beta: float | Sequence[float] | None,
    radius: float | Sequence[float] | None,
    detail: float | Sequence[float] | None,
    *,
    known: bool,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(alpha, beta) of each scale from either way of giving them."""
    if (beta is None) == (radius is None):
        raise ValueError(f"give either beta or radius, not both: beta={beta!r}, radius={radius!r}")
    if alpha is not None and detail is not None:
        raise ValueError(f"give either alpha or detail, not both: {alpha!r} and {detail!r}")
    if beta is not None:
        betas = _numbers(beta, "beta")
    else:
        assert radius is not None
        betas = [BETA_TIMES_RADIUS / r for r in _numbers(radius, "radius")]
    if alpha is not None:
        alphas = _numbers(alpha, "alpha")
    elif detail is None and beta is not None and not known:
        raise ValueError("give alpha (or detail) beside beta; the paper uses alpha = 2 to 6 beta")
    else:
        details = _numbers(DEFAULT_DETAIL if detail is None else detail, "detail")
        details, betas = _paired(details, betas, "detail")
        alphas = [d * b / BETA_TIMES_RADIUS for d, b in zip(details, betas, strict=True)]
    alphas, betas = _paired(alphas, betas, "alpha")
    return tuple(alphas), tuple(betas)


def _numbers(value: float | Sequence[float], name: str) -> list[float]:
    if not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:  # NumPy's, torch's
        value = [float(value)]  # type: ignore[arg-type]
    values = list(value)
    if not values:
        raise ValueError(f"{name} is empty: give at least one scale")
    return [inputs.check_positive(v, name) for v in values]


def _paired(left: list[float], right: list[float], name: str) -> tuple[list[float], list[float]]:
    """Both lists of the same length; a single number stands for all scales."""
    n = max(len(left), len(right))
    if len(left) not in (1, n) or len(right) not in (1, n):
        raise ValueError(
            f"{name} has {len(left)} values but beta (or radius) has {len(right)}: "
            "give one for each scale, or a single one"
        )
    return left * (n // len(left)), right * (n // len(right))


def _given(matrix: Tensor | None, drawn: list[Tensor], name: str) -> Tensor:
    """(scales, D_in, columns) float32: the matrix that was given, else the one that was drawn."""
    if matrix is None:
        return torch.stack(drawn).float()
    matrix = torch.as_tensor(matrix).detach().clone()
    given = tuple(matrix.shape)
    if matrix.dim() == 2:
        matrix = matrix.expand(len(drawn), *matrix.shape).clone()
    if matrix.dim() != 3 or matrix.shape[0] != len(drawn) or matrix.shape[1] != drawn[0].shape[0]:
        raise ValueError(
            f"{name} must have shape ({drawn[0].shape[0]}, columns) or ({len(drawn)}, "
            f"{drawn[0].shape[0]}, columns), got {given}"
        )
    inputs.check_finite(matrix.flatten(0, 1), name)
    return matrix
