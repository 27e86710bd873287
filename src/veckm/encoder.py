"""VecKM as a module: holds the frequencies of each scale, picks an engine, encodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from veckm import frequencies, inputs, sizes
from veckm.engines import Norm, find
from veckm.engines.device import rounding
from veckm.frequencies import BETA_TIMES_RADIUS, Draw
from veckm.planning import EngineName, Plan, Scales, followed
from veckm.sizes import WindowName, joined, make_window


class VecKM(nn.Module):
    """The local geometry of every point as a complex vector.

        G(x_0) = sum_j window(x_j - x_0) exp(i (x_j - x_0) A),    A[., d] ~ N(0, alpha^2)

    Sizes are given in the paper's terms (`alpha`, `beta`) or in the user's (`radius` in the units
    of the data, and `detail`: alpha = detail / radius). Sequences mean several scales; their
    encodings are concatenated.

    A ``state_dict`` holds A, the alpha, beta and window it belongs to, and B where B was given or
    ``engine="random"``. Loading it into an encoder of another alpha, beta or window raises.

    Args:
        dim: D, complex numbers per scale; 256 unless `A` is given, which decides it then.
        alpha: level of detail.
        beta: inverse size of the window, beta = 1.8 / radius (Appendix D).
        radius: size of the window in the units of the data, instead of `beta`.
        detail: alpha * radius, instead of `alpha`; about 6.
        in_dim: D_in, coordinates of a point.
        window, engine, eps: as for :func:`veckm.plan`.
        norm: as for :func:`veckm.encode`.
        p: columns of B, for ``engine="random"``.
        draw: ``"unbiased"`` frequencies or the ``"paper"``'s quantiles.
        seed: of the generators that A and B come from, one for each matrix of each scale; the
            global generator is never used.
        A: frequencies to use instead of drawing them, (D_in, D) for all scales or
            (scales, D_in, D). A tensor is copied into a buffer. An ``nn.Parameter`` is registered
            as it is and trained. Not together with `alpha` or `detail`.
        B: likewise, (D_in, p) or (scales, D_in, p); always a buffer.
        validate: False skips the checks of values in every call, as for :func:`veckm.plan`.

    Shapes:
        pos: (N, D_in), or (B, N, D_in), or (N, D_in) with `batch` (N,).
        returns: complex, the leading shape of pos (or of the queries), then scales * D.

    Example:
        >>> enc = VecKM(dim=256, alpha=60, beta=(10, 20))
        >>> enc(torch.rand(1000, 3)).shape
        torch.Size([1000, 512])
    """

    A: Tensor  # (scales, D_in, D); a Parameter has the shape that it was given with
    _B: Tensor | None  # (scales, D_in, p), or None until first needed
    #: True in networks: ``dense`` then rounds the factors of its product where `eps` is 0.5 % or
    #: more (to bfloat16 that is an error of 0.2 %), in autocast and, where ``auto`` chose it, on a
    #: CPU that multiplies bfloat16 itself.
    rounds = False

    def __init__(
        self,
        dim: int | None = None,
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
        validate: bool = True,
    ) -> None:
        super().__init__()
        in_dim = inputs.check_count(in_dim, "in_dim")
        self.window, self.engine, self.norm = window, engine, norm
        self.eps = inputs.check_eps(eps, torch.float64)  # that of the points is checked with them
        self.validate = validate
        self._p, self._draw, self._seed = inputs.check_count(p, "p"), draw, seed
        self.beta = sizes.resolve_beta(beta, radius)
        made = make_window(window, self.beta[0], None)
        if engine != "auto":
            find(engine, made)
        inputs.check_norm(norm)
        self._alpha: tuple[float, ...] | None = None
        if A is None:
            drawn, self.beta = sizes.resolve_alpha(alpha, detail, self.beta, default=beta is None)
            dim = inputs.check_count(256 if dim is None else dim, "dim")
            self.register_buffer("A", self._drawn("A", in_dim, dim, drawn))
            self._alpha = drawn
        elif alpha is not None or detail is not None:
            raise ValueError("A is given, and its entries decide alpha: leave out alpha and detail")
        else:
            A = _checked(A, len(self.beta), in_dim, "A")
            if dim not in (None, A.shape[-1]):
                raise ValueError(
                    f"dim = {dim}, but the given A has {A.shape[-1]} columns: leave out dim, "
                    "or give an A of that size"
                )
            if isinstance(A, nn.Parameter):
                self.A = A  # not a copy: an optimizer may hold it already
            else:
                self.register_buffer("A", _per_scale(A, len(self.beta)))
        self.register_buffer("_B", None, persistent=False)  # the state has it under its own rules
        self._given_B = B is not None
        if B is not None:
            self._B = _per_scale(_checked(B, len(self.beta), in_dim, "B"), len(self.beta))
        elif engine == "random":
            self._B = self._drawn("B", in_dim, self._p, self.beta)

    @property
    def alpha(self) -> tuple[float, ...]:
        """The level of detail of each scale: as it was drawn, or measured where A was given."""
        if self._alpha is not None:
            return self._alpha
        measured = self.A.detach().double().square().mean((-2, -1)).sqrt()
        return tuple(measured.expand(len(self.beta)).tolist())

    @property
    def radius(self) -> tuple[float, ...]:
        """The radius of each scale's window."""
        return tuple(BETA_TIMES_RADIUS / beta for beta in self.beta)

    @property
    def in_dim(self) -> int:
        """D_in, coordinates of a point."""
        return self.A.shape[-2]

    @property
    def dim(self) -> int:
        """D, complex numbers per scale."""
        return self.A.shape[-1]

    @property
    def out_dim(self) -> int:
        """Complex numbers per point: scales * D."""
        return len(self.beta) * self.dim

    @property
    def B(self) -> Tensor:
        """(scales, D_in, p): the frequencies of Theorem 2, drawn when first needed."""
        if self._B is None:
            with torch.inference_mode(False):  # or autograd could not use it later
                self._B = self._drawn("B", self.in_dim, self._p, self.beta).to(self.A)
        return self._B

    @B.setter
    def B(self, matrix: Tensor) -> None:
        self._B, self._given_B = matrix, True

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
        compiling = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
        if compiling and not followed(self.engine, pos, batch, queries):
            # Here, and not as a decorator: that would load the compiler with every import. Where
            # fullgraph=True forbids it, the error of torch shows this line with its comment.
            eager: Any = torch.compiler.disable(self.forward)  # only dense of few points compiles
            options = {"queries": queries, "query_batch": query_batch, "weights": weights}
            found: Tensor = eager(pos, batch, **options)
            return found
        scales = Scales.of(pos, batch, queries, query_batch, self.in_dim, self.validate)
        # The smallest window first: it sorts the points finest, and the others share that order.
        order = sorted(range(len(self.beta)), key=lambda i: -self.beta[i])
        out = None
        if len(order) > 1 and not scales.differentiates(self.A, weights):
            out = scales.empty(self.out_dim)
        parts = dict.fromkeys(range(len(order)), self.A)
        for i in order:
            plan, A = self._plan(scales, i, progress), self.A[i] if self.A.dim() == 3 else self.A
            part = None if out is None else out[..., i * self.dim : (i + 1) * self.dim]
            parts[i] = plan.encode(A, norm=self.norm, weights=weights, out=part)
        if out is not None:
            return out
        return parts[0] if len(parts) == 1 else torch.cat(list(parts.values()), dim=-1)

    def plans(
        self,
        pos: Tensor,  # (N, D_in) or (B, N, D_in)
        batch: Tensor | None = None,  # (N,)
        *,
        queries: Tensor | None = None,  # (M, D_in) or (B, M, D_in)
        query_batch: Tensor | None = None,  # (M,)
        progress: bool | None = None,
    ) -> list[Plan]:
        """The plan of every scale, to be used more than once: see :func:`veckm.plan`."""
        scales = Scales.of(pos, batch, queries, query_batch, self.in_dim, self.validate)
        return [self._plan(scales, i, progress) for i in range(len(self.beta))]

    def _plan(self, scales: Scales, scale: int, progress: bool | None) -> Plan:
        window = make_window(self.window, self.beta[scale], None)
        B = self.B[scale] if self.engine == "random" else None
        low = rounding(scales.points.pos, native=self.engine == "auto") if self.rounds else None
        return scales.plan(window, self.engine, self.eps, B, 2 * self.dim, progress, low)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> VecKM:
        checked = inputs.full_precision(self, fn)
        super()._apply(checked, recurse)  # type: ignore[no-untyped-call]  # untyped in torch
        return self

    def extra_repr(self) -> str:
        return (
            f"{self.in_dim} -> {self.out_dim} complex, "
            f"alpha=({joined(self.alpha)}), beta=({joined(self.beta)}), "
            f"window={self.window!r}, engine={self.engine!r}, eps={self.eps:g}"
        )

    def _drawn(
        self, matrix: Literal["A", "B"], rows: int, columns: int, size: Sequence[float]
    ) -> Tensor:  # (scales, rows, columns) float32
        """Frequencies of deviation size[i] for scale i."""
        drawn = []
        for scale, deviation in enumerate(size):
            generator = frequencies.scale_generator(self._seed, scale, matrix)
            unit = frequencies.standard_normal(rows, columns, generator=generator, draw=self._draw)
            drawn.append(unit * deviation)
        return torch.stack(drawn).float()

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._given_B or self.engine == "random":
            destination[prefix + "B"] = self.B
        # A tensor, as all that safetensors can store; not a buffer, which .half() would round.
        destination[prefix + "sizes"] = self._sizes()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """As every module, but B is optional and the sizes must fit; the dict is torch's copy."""
        stored, B = state_dict.pop(prefix + "sizes", None), state_dict.pop(prefix + "B", None)
        A = state_dict.get(prefix + "A")
        try:
            # States of earlier versions do not tell what A is of: alpha is then measured.
            alpha = self._alpha if A is None else None
            if stored is not None:
                alpha = sizes.stored_alpha(stored, self._sizes())
            if B is not None:
                B = _per_scale(_checked(B, len(self.beta), self.in_dim, "B"), len(self.beta))
        except ValueError as error:
            args[-1].append(f"{prefix.rstrip('.') or 'VecKM'}: {error}")
            return
        if A is not None:
            state_dict[prefix + "A"] = _like(A, self.A)
        super()._load_from_state_dict(state_dict, prefix, *args)
        # A Parameter may be trained on, so that its alpha stays measured.
        self._alpha = None if isinstance(self.A, nn.Parameter) else alpha
        if B is not None:
            self.B = B.to(self.A)

    def _sizes(self) -> Tensor:
        return sizes.sizes_to_tensor(self.beta, self._alpha, self.window)


def _checked(matrix: Tensor, scales: int, in_dim: int, name: str) -> Tensor:
    """Given frequencies, if they are for these scales and coordinates."""
    if not isinstance(matrix, Tensor):
        matrix = torch.as_tensor(matrix)
    shape = tuple(matrix.shape)
    fits = shape[:-1] in ((in_dim,), (scales, in_dim)) and shape[-1] > 0
    if not fits or not matrix.is_floating_point():
        raise ValueError(
            f"{name} must have shape ({in_dim}, columns) or ({scales}, {in_dim}, columns) and a "
            f"float dtype, got {shape} of {matrix.dtype}"
        )
    inputs.check_finite(matrix.reshape(-1, shape[-1]), name)
    return matrix


def _per_scale(matrix: Tensor, scales: int) -> Tensor:  # (scales, D_in, columns)
    """A copy without gradient; one matrix stands for all scales."""
    return matrix.detach().expand(scales, *matrix.shape[-2:]).clone()


def _like(matrix: Tensor, own: Tensor) -> Tensor:
    """A loaded matrix with the dimensions of the encoder's own: one may stand for all scales."""
    if matrix.dim() == 2 and own.dim() == 3:
        return matrix.expand(len(own), *matrix.shape)
    if matrix.dim() == 3 and own.dim() == 2 and len(matrix) == 1:
        return matrix[0]
    return matrix
