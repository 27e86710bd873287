"""What a plan saves: a second call, and a second scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

import veckm
from benchmarks import tables
from benchmarks.cases import Case, Config, Truth
from benchmarks.harness import Contender, Row, log, race, repeats
from benchmarks.tables import Claim

NAME = "plans"
TITLE = "What a plan saves"
BETAS = (10.0, 20.0)
_FIRST, _KEPT = "veckm.encode", "plan.encode"
_BOTH = "beta = 10 and 20"


def measure(config: Config) -> Iterator[Row]:
    """All calls in turns, with the grid engine."""
    n = 20_000 if config.quick else 100_000
    cases = [Case(NAME, "statue", config.cloud("statue", n), 60.0, beta) for beta in BETAS]
    log(f"plans: {n:,} points, the definition")
    truths = [Truth.of(case, 200) for case in cases]
    times = repeats(0.5, config.quick)
    contenders = [_scales(cases, truths, times)]
    for case, truth in zip(cases, truths, strict=True):
        plan = case.plan("grid")
        calls = {_FIRST: partial(case.encode, "grid"), _KEPT: partial(plan.encode, case.A)}
        for method, run in calls.items():
            contenders.append(Contender(_name(method, case.beta), run, times, keep=truth.keep))
        contenders.append(_scales([case], [truth], times))
    log("  " + ", ".join(c.name for c in contenders))
    for name, timed in race(contenders).items():
        mean, most = timed.kept or (None, None)
        method, setting = name.split(", ")
        yield cases[0].row(
            method,
            setting,
            seconds=timed.seconds,
            mean_error=mean,
            max_error=most,
            note=timed.failure,
        )


def _name(method: str, beta: float) -> str:
    return f"{method}, beta = {beta:g}"


def _scales(cases: Sequence[Case], truths: Sequence[Truth], times: int) -> Contender:
    """VecKM with all scales of the cases; its error is that of the worst."""
    betas = tuple(case.beta for case in cases)
    encoder = veckm.VecKM(beta=betas, A=cases[0].A, engine="grid", eps=cases[0].eps)

    def keep(G: Tensor) -> tuple[float, float]:
        parts = zip(truths, G.chunk(len(cases), dim=-1), strict=True)
        return max(truth.keep(part) for truth, part in parts)

    name = f"VecKM, {_BOTH}" if len(cases) > 1 else _name("VecKM", betas[0])
    return Contender(name, partial(_encode, encoder, cases[0].pos), times, keep=keep)


@torch.no_grad()
def _encode(encoder: veckm.VecKM, pos: Tensor) -> Tensor:
    G: Tensor = encoder(pos, progress=False)
    return G


def claims(rows: Sequence[Row]) -> list[Claim]:
    """One scale is the mean of the two."""
    by = {(row.method, row.setting): row.median for row in rows}
    settings = [f"beta = {beta:g}" for beta in BETAS]
    one = sum(by["VecKM", setting] for setting in settings) / len(settings)
    text = "two scales together / one scale (the mean of the two alone)"
    out = [Claim.at_most(text, by["VecKM", _BOTH] / one, 1.7)]
    for setting in settings:
        ratio = by[_FIRST, setting] / by[_KEPT, setting]
        text = f"first call with planning / call on a kept plan, {setting}"
        out.append(Claim.at_least(text, ratio, 1.3))
    return out


def markdown(rows: Sequence[Row]) -> str:
    """One table."""
    lines = [
        [row.method, row.setting, tables.time(row), tables.error(row), tables.error(row, "max")]
        for row in sorted(rows, key=lambda row: (row.method, row.setting))
    ]
    header = ["call", "setting", "time", "mean error", "max error"]
    n = rows[0].n if rows else 0
    intro = (
        f"statue, N = {n:,}, D = 256, alpha = 60, `grid`. `veckm.encode` plans and encodes, "
        "`plan.encode` uses a plan that was kept, `VecKM` plans every scale:"
    )
    return "\n".join([intro, "", tables.table(header, lines), ""])
