"""The Gaussian kernel, and what the inner product of two carriers makes of it (Fig. 3, Lemma 1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments.figures.style import COLOR, STEPS, plain
from veckm.frequencies import standard_normal

TITLE = "The Gaussian kernel and its approximation (Fig. 3)"
SIZES = (16, 64, 256, 1024)
_REACH = 4.0  # of the plot, in 1 / alpha
_DRAWS = 20


@dataclass(frozen=True, eq=False)
class Kernel:
    """The kernel along a line, and its estimates.

    Attributes:
        x: distance, in 1 / alpha.
        exact: exp(-x^2 / 2).
        estimates: Re <E(x), E(0)> / D for each D, along one direction of one draw.
        errors: root mean square error for each D, over directions and draws.

    Shapes:
        - x and exact: (P,), estimates: (P,) each
    """

    x: Tensor
    exact: Tensor
    estimates: dict[int, Tensor]
    errors: dict[int, float]


def compute(quick: bool = False) -> Kernel:
    """Estimate the kernel with more and more frequencies.

    .. math:: \\exp(-\\alpha^2 |x - y|^2 / 2) \\approx
              \\tfrac1D \\mathrm{Re} \\langle E(x), E(y) \\rangle

    Args:
        quick: fewer draws.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(-_REACH, _REACH, 161, dtype=torch.float64)
    exact = torch.exp(-x.square() / 2)
    lines: dict[int, Tensor] = {}
    errors: dict[int, float] = {}
    for size in SIZES:
        tries = []
        for _ in range(4 if quick else _DRAWS):
            way = torch.randn(3, dtype=torch.float64, generator=generator)
            A = standard_normal(3, size, generator=generator).double()  # alpha = 1
            tries.append(torch.cos(x[:, None] * ((way / way.norm()) @ A)).mean(1))
        lines[size] = tries[0]
        errors[size] = float((torch.stack(tries) - exact).square().mean().sqrt())
    return Kernel(x, exact, lines, errors)


def draw(kernel: Kernel) -> Figure:
    """The kernel and its estimates, and the error against D."""
    figure = Figure(figsize=(9.6, 3.8))
    left, right = figure.subplots(1, 2)
    for (size, line), color in zip(kernel.estimates.items(), STEPS, strict=True):
        left.plot(kernel.x.numpy(), line.numpy(), color=color, linewidth=1.4, label=f"D = {size}")
    left.plot(kernel.x.numpy(), kernel.exact.numpy(), ":", color="#000000", label="the kernel")
    left.set(xlabel="distance, in units of 1 / alpha", ylabel="value, no unit")
    left.set_title("Gaussian kernel and estimates from one draw")
    left.legend(fontsize=9)
    sizes, errors = list(kernel.errors), list(kernel.errors.values())
    right.loglog(sizes, errors, color=COLOR["grid"], marker="o", label="measured")
    law = [errors[0] * (sizes[0] / size) ** 0.5 for size in sizes]
    right.loglog(sizes, law, ":", color="#666666", label="1 / sqrt(D)")
    right.set(xlabel="D, complex numbers", ylabel="root mean square error")
    right.set_xticks(sizes, [str(size) for size in sizes])
    right.minorticks_off()
    plain(right.yaxis, subs=(1.0, 2.0, 5.0))
    right.set_title("Error over directions and draws")
    right.legend()
    return figure
