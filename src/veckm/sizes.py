"""Sizes of windows and scales: alpha and beta from what a user gives, and as stored values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Sizes:
    """What the frequencies of an encoder belong to, as it is stored beside them.

    Attributes:
        beta: of each scale.
        alpha: of each scale, or None where the frequencies were given.
        window: name of the window.
    """

    beta: tuple[float, ...]
    alpha: tuple[float, ...] | None
    window: WindowName

    def to_tensor(self) -> Tensor:  # (scales, 3) float64
        """beta, alpha (NaN for None) and the number of the window, one row per scale."""
        alpha = self.alpha or (math.nan,) * len(self.beta)
        window = float(get_args(WindowName).index(self.window))
        rows = [(b, a, window) for b, a in zip(self.beta, alpha, strict=True)]
        return torch.tensor(rows, dtype=torch.float64)

    @staticmethod
    def from_tensor(stored: Tensor) -> Sizes:  # (scales, 3)
        """The inverse of `to_tensor`."""
        beta, alpha, window = (tuple(column) for column in stored.detach().double().t().tolist())
        drawn = not any(math.isnan(a) for a in alpha)
        return Sizes(beta, alpha if drawn else None, get_args(WindowName)[int(window[0])])

    def fits(self, other: Sizes, rounding: float = _SAME) -> bool:
        """Whether both are of the same sizes and window; an unknown alpha fits any."""
        alphas = self.alpha is None or other.alpha is None
        return (
            self.window == other.window
            and _same(self.beta, other.beta, rounding)
            and (alphas or _same(self.alpha or (), other.alpha or (), rounding))
        )

    def __str__(self) -> str:
        sizes = {"beta": self.beta, "alpha": self.alpha}
        words = [f"{name}=({joined(size)})" for name, size in sizes.items() if size is not None]
        return ", ".join([*words, f"window={self.window!r}"])


def joined(numbers: Sequence[float]) -> str:
    """``10, 20``, for messages."""
    return ", ".join(f"{number:g}" for number in numbers)


def _same(left: tuple[float, ...], right: tuple[float, ...], rounding: float) -> bool:
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=rounding) for a, b in zip(left, right, strict=True)
    )


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
