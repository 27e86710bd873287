"""Forward and backward to the points, against forward alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from benchmarks import tables
from benchmarks.cases import Case, Config
from benchmarks.harness import Contender, Row, groups, log, race, repeats
from benchmarks.tables import Claim

NAME = "gradients"
TITLE = "Gradients"
_DENSE_POINTS = 5_000  # all pairs of more would not fit


def measure(config: Config) -> Iterator[Row]:
    """The grid at several sizes; dense, and the error against it, at the smallest."""
    for n in (_DENSE_POINTS, 10_000) if config.quick else (_DENSE_POINTS, 10_000, 100_000):
        case = Case(NAME, "statue", config.cloud("statue", n), 60.0, 10.0)
        log(f"gradients: {n:,} points")
        yield from _case(case, config)


def _case(case: Case, config: Config) -> Iterator[Row]:
    engines = ("grid", "dense") if case.points == _DENSE_POINTS else ("grid",)
    pull = _pull(case)
    exact = gradient(case, "dense", pull, torch.float64) if len(engines) > 1 else None
    contenders = []
    for engine in engines:
        times = min(7, repeats(0.3 if case.points < 50_000 else 3.0, config.quick))
        both = partial(gradient, case, engine, pull)
        contenders += [
            Contender(f"{engine} forward", partial(case.encode, engine), times),
            Contender(f"{engine} forward + backward", both, times, keep=partial(relative, exact)),
        ]
    for method, timed in race(contenders).items():
        yield case.row(method, seconds=timed.seconds, mean_error=timed.kept, note=timed.failure)


def _pull(case: Case) -> Tensor:  # (N, D) complex
    """dL/dG of some loss: fixed random numbers."""
    generator = torch.Generator().manual_seed(3)
    shape = (case.points, case.dim, 2)
    return torch.view_as_complex(torch.randn(shape, generator=generator))


def gradient(
    case: Case, engine: str, pull: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:  # (N, 3)
    """dL/dpos."""
    pos = case.pos.to(dtype, copy=True).requires_grad_()
    G = case.encode(engine, pos=pos)
    return torch.autograd.grad(G, pos, pull.to(G.dtype))[0]


def relative(exact: Tensor | None, grad: Tensor) -> float | None:
    """|grad - exact| / |exact| over all points, where the exact one is known."""
    return None if exact is None else float((grad.double() - exact).norm() / exact.norm())


def claims(rows: Sequence[Row]) -> list[Claim]:  # noqa: ARG001 - every part has them
    """Nothing was promised here but linear time, which the table shows."""
    return []


def markdown(rows: Sequence[Row]) -> str:
    """Forward, forward + backward, their ratio."""
    lines = []
    for (_, n, _), by in groups(rows):
        for engine in ("grid", "dense"):
            forward, both = by.get(f"{engine} forward"), by.get(f"{engine} forward + backward")
            if forward is None or both is None:
                continue
            ratio = f"{both.median / forward.median:.1f}"
            times = [tables.time(forward), tables.time(both), ratio]
            lines.append([f"{n:,}", engine, *times, tables.error(both)])
    header = ["N", "engine", "forward", "forward + backward", "ratio", "error of the gradient"]
    intro = (
        "statue, D = 256, alpha = 60, beta = 10, to the points. The error is that of the whole "
        "gradient against `dense` in float64:"
    )
    return "\n".join([intro, "", tables.table(header, lines), ""])
