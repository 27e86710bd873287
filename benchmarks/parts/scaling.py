"""The same surface with more and more points at the same radius: time and peak memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks import memory, tables
from benchmarks.cases import Case, Config
from benchmarks.harness import Contender, Row, groups, log, race, repeats
from benchmarks.tables import Claim

NAME = "scaling"
TITLE = "Growth of time and memory"
SIZES = (1_000, 10_000, 100_000, 1_000_000)


def measure(config: Config) -> Iterator[Row]:
    """Times in this process, peaks in others; `random` once for comparison."""
    for n in SIZES[1:3] if config.quick else SIZES:
        case = Case(NAME, "statue", config.cloud("statue", n), 60.0, 10.0)
        methods = ["grid"] + (["random"] if n == (10_000 if config.quick else 100_000) else [])
        expected, _ = case.choice()
        contenders = []
        for method in methods:
            run = partial(case.encode, method)
            warm = partial(run, pos=case.pos[:2000]) if expected[method] > 5 else None
            times = max(3, repeats(expected[method], config.quick))
            contenders.append(Contender(method, run, times, warm))
        log(f"scaling: {n:,} points, {', '.join(methods)}")
        for method, timed in race(contenders).items():
            beyond = memory.beyond(case.pos, case.A, case.B(), case.beta, method)
            yield case.row(
                method,
                seconds=timed.seconds,
                estimate=expected[method],
                memory=beyond,
                output=8 * n * case.dim,
                note=timed.failure,
            )


def claims(rows: Sequence[Row]) -> list[Claim]:
    """From 100k to 1M (or the two largest sizes measured)."""
    grid = sorted((row for row in rows if row.method == "grid"), key=lambda row: row.n)
    out = []
    if len(grid) > 1:
        small, large = grid[-2:]
        text = f"time of grid, {large.n:,} / {small.n:,} points"
        out.append(Claim.at_most(text, large.median / small.median, 1.1 * large.n / small.n))
    for row in grid:
        if row.memory is not None and row.output is not None:
            text = f"peak memory of grid beyond inputs and output, {row.n:,} points, in outputs"
            share = row.memory / row.output
            out.append(Claim(text, "< 1x", f"{share:.2g}x", share < 1))
    return out


def markdown(rows: Sequence[Row]) -> str:
    """Time, time per point, memory."""
    lines = []
    for (_, n, _), by in groups(rows):
        for method, row in by.items():
            point = f"{row.median / n * 1e6:.2f} us"
            share = "" if not row.output else f"{(row.memory or 0) / row.output:.2f}"
            sizes = [tables.size(row.output), tables.size(row.memory), share]
            lines.append([f"{n:,}", method, tables.time(row), point, *sizes])
    header = ["N", "engine", "time", "per point", "output", "memory beyond", "in outputs"]
    intro = "statue, D = 256, alpha = 60, beta = 10. Peak memory beyond inputs and output:"
    return "\n".join([intro, "", tables.table(header, lines), ""])
