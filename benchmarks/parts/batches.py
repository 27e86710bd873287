"""32 clouds of 1,024 points, as in training: against the paper's dense product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial

import torch
from torch import Tensor

from benchmarks import tables
from benchmarks.cases import Case, Config, definition, relative_error
from benchmarks.harness import Contender, Row, log, race, seconds
from benchmarks.tables import Claim
from veckm.data import shapes

NAME = "batches"
TITLE = "Batches of 32 clouds of 1,024 points"
CLOUDS, POINTS = 32, 1024


def paper(pos: Tensor, A: Tensor, beta: float) -> Tensor:  # (B, N, 3) -> (B, N, D)
    """J-hat @ A as the authors' public code writes it (Eqn. 3 of the paper), batched."""
    J = torch.exp(-(beta**2) * torch.cdist(pos, pos) ** 2 / 2)
    phase = pos @ A
    eA = torch.cat((torch.cos(phase), torch.sin(phase)), dim=-1)
    G, d = J @ eA, A.shape[1]
    G = torch.complex(G[..., :d], G[..., d:]) / torch.complex(eA[..., :d], eA[..., d:])
    return G / torch.norm(G, dim=-1, keepdim=True) * d**0.5


def measure(config: Config) -> Iterator[Row]:
    """All in turns."""
    case = Case(NAME, "shapes", clouds(), 30.0, 6.0)
    truth = exact(case)

    def keep(G: Tensor) -> tuple[float, float]:
        return relative_error(G[:, :16], truth)

    log(f"batches: {CLOUDS} clouds of {POINTS} points")
    times = 5 if config.quick else 15
    contenders = [Contender("paper", partial(paper, case.pos, case.A, case.beta), times, keep=keep)]
    for engine in ("dense", "neighbors", "grid", "auto"):
        contenders.append(Contender(engine, partial(case.encode, engine), times, keep=keep))
    _, took = case.choice()
    for method, timed in race(contenders).items():
        mean, most = timed.kept or (None, None)
        yield case.row(
            method,
            seconds=timed.seconds,
            mean_error=mean,
            max_error=most,
            took=took if method == "auto" else None,
            note=timed.failure,
        )


def exact(case: Case) -> Tensor:  # (32, 16, D) complex128
    """The definition for the first 16 points of each cloud."""
    A = case.A.double()
    return torch.stack([definition(x, x[:16], A, case.beta) for x in case.pos.double()])


@cache
def clouds() -> Tensor:  # (32, 1024, 3)
    """Different shapes in the unit ball."""
    simple = (shapes.sphere, shapes.torus, shapes.box, shapes.cylinder)
    out = []
    for k in range(CLOUDS):
        if k % 2:
            x = shapes.statue(POINTS, seed=k, form=k).pos
        else:
            x = simple[k // 2 % len(simple)](POINTS, seed=k).pos
        out.append(x / x.norm(dim=1).max())
    return torch.stack(out)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Against the paper's product: auto at an accuracy within eps, dense at that of the product."""
    by = {row.method: row for row in rows}
    auto, paper = by["auto"], by["paper"].median
    error = auto.mean_error if auto.mean_error is not None else float("inf")
    text = "auto / the paper's dense product, 32 x 1,024 points, beta = 6"
    return [
        Claim.at_most(text, auto.median / paper, 0.6, 0.5),
        Claim("its mean error", "≤ 1 %", tables.error(auto), error <= 0.01),
        Claim.at_most(
            "dense / the paper's dense product, which is as exact", by["dense"].median / paper, 0.5
        ),
    ]


def markdown(rows: Sequence[Row]) -> str:
    """One table."""
    base = next(row for row in rows if row.method == "paper")
    lines = []
    for row in rows:
        name = {"paper": "the paper's product", "auto": f"auto ({row.took})"}.get(
            row.method, row.method
        )
        faster = f"{base.median / row.median:.2f}" if row.seconds else ""
        errors = [tables.error(row), tables.error(row, "max")]
        lines.append([name, tables.time(row), faster, seconds(row.median / CLOUDS), *errors])
    header = ["engine", "time", "times as fast", "per cloud", "mean error", "max error"]
    intro = "Different procedural shapes in the unit ball, D = 256, alpha = 30, beta = 6:"
    return "\n".join([intro, "", tables.table(header, lines), ""])
