"""Sizes of windows and scales: alpha and beta from what a user gives, and as stored values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from veckm import inputs
from veckm.engines import Ball, Gaussian, Window
from veckm.frequencies import BETA_TIMES_RADIUS

#: alpha * radius when only a radius is given: the authors' default level of detail.
DEFAULT_DETAIL = 6.0
#: Relative difference up to which two sizes are the same: 1.8 / 0.18 is not exactly 10.
_SAME = 1e-6

WindowName = Literal["gaussian", "ball"]

Given = float | Sequence[float] | None


def make_window(name: WindowName, beta: float | None, radius: float | None) -> Window:
    """The window called `name`, sized by beta or by radius; the other follows (Appendix D)."""
    own, *others = resolve_beta(beta, radius)
    if others:
        raise ValueError(f"a plan has one scale, got {1 + len(others)}: veckm.VecKM takes several")
    if name == "gaussian":
        return Gaussian(own)
    if name == "ball":
        return Ball(BETA_TIMES_RADIUS / own if radius is None else _numbers(radius, "radius")[0])
    raise ValueError(f"unknown window {name!r}: use 'gaussian' or 'ball'")


def resolve_beta(beta: Given, radius: Given) -> tuple[float, ...]:
    """beta of each scale, from beta or from the radius."""
    if (beta is None) == (radius is None):
        raise ValueError(f"give either beta or radius, not both: beta={beta!r}, radius={radius!r}")
    if beta is not None:
        return tuple(_numbers(beta, "beta"))
    assert radius is not None
    return tuple(BETA_TIMES_RADIUS / r for r in _numbers(radius, "radius"))


def resolve_alpha(
    alpha: Given, detail: Given, beta: tuple[float, ...], *, default: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(alpha, beta) of each scale; `default` allows to give neither alpha nor detail."""
    if alpha is not None and detail is not None:
        raise ValueError(f"give either alpha or detail, not both: {alpha!r} and {detail!r}")
    if alpha is not None:
        return _paired(_numbers(alpha, "alpha"), list(beta), "alpha")
    if detail is None and not default:
        raise ValueError("give alpha (or detail) beside beta; the paper uses alpha = 2 to 6 beta")
    details = _numbers(DEFAULT_DETAIL if detail is None else detail, "detail")
    paired, betas = _paired(details, list(beta), "detail")
    alphas = tuple(d * b / BETA_TIMES_RADIUS for d, b in zip(paired, betas, strict=True))
    return alphas, betas


def sizes_to_tensor(
    beta: Sequence[float], alpha: Sequence[float] | None, window: WindowName
) -> Tensor:  # (scales, 3) float64
    """beta, alpha (NaN if unknown) and the number of the window, as stored beside frequencies."""
    number = float(get_args(WindowName).index(window))
    alphas = (math.nan,) * len(beta) if alpha is None else alpha
    rows = [(b, a, number) for b, a in zip(beta, alphas, strict=True)]
    return torch.tensor(rows, dtype=torch.float64)


def stored_alpha(sizes: Tensor, own: Tensor) -> tuple[float, ...] | None:
    """alpha of stored sizes, None if unknown; raises unless they fit the encoder's own sizes."""
    rounding = max(_SAME, 4 * torch.finfo(sizes.dtype).eps)
    sizes = sizes.detach().double().cpu()
    fits = sizes.shape == own.shape
    if fits:
        same = torch.isclose(sizes, own, rtol=rounding, atol=0)
        same[:, 1] |= sizes[:, 1].isnan() | own[:, 1].isnan()
        fits = bool(same.all())
    if not fits:
        raise ValueError(
            f"the state is of an encoder with {_describe(sizes)}, but this one has "
            f"{_describe(own)}; build it with the values of the state"
        )
    alpha = tuple(sizes[:, 1].tolist())
    return None if any(map(math.isnan, alpha)) else alpha


def _describe(sizes: Tensor) -> str:
    beta, alpha, window = sizes.t().tolist()
    words = [f"beta=({joined(beta)})"]
    if not any(map(math.isnan, alpha)):
        words.append(f"alpha=({joined(alpha)})")
    return ", ".join([*words, f"window={get_args(WindowName)[int(window[0])]!r}"])


def joined(numbers: Sequence[float]) -> str:
    """``10, 20``, for messages."""
    return ", ".join(f"{number:g}" for number in numbers)


def _numbers(value: float | Sequence[float], name: str) -> list[float]:
    if not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:  # NumPy's, torch's
        value = [float(value)]  # type: ignore[arg-type]
    values = list(value)
    if not values:
        raise ValueError(f"{name} is empty: give at least one scale")
    return [inputs.check_positive(v, name) for v in values]


def _paired(
    left: list[float], right: list[float], name: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Both of the same length; a single number stands for all scales."""
    n = max(len(left), len(right))
    if len(left) not in (1, n) or len(right) not in (1, n):
        raise ValueError(
            f"{name} has {len(left)} values but beta (or radius) has {len(right)}: "
            "give one for each scale, or a single one"
        )
    return tuple(left * (n // len(left))), tuple(right * (n // len(right)))
