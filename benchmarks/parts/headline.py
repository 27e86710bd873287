"""A surface of 100,000 points: the grid against the paper's random features and the floor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import tables
from benchmarks.cases import PAPER_P, Case, Config, Truth
from benchmarks.harness import Contender, Row, count, groups, log, race, repeats
from benchmarks.tables import Claim

NAME = "headline"
TITLE = "One large surface"
METHODS = ("floor", "grid", "neighbors", "random", "auto")
#: How much faster than `random` the grid must be.
TARGET, AIM = {10.0: 40.0, 20.0: 33.0}, 60.0


def measure(config: Config) -> Iterator[Row]:
    """Engines and floor in turns, at both scales."""
    clouds = ["statue"] + ([config.file.stem] if config.file else [])
    for name in clouds:
        n = (20_000 if config.quick else 100_000) if name == "statue" else None
        for beta in TARGET:
            yield from _case(Case(NAME, name, config.cloud(name, n), 60.0, beta), config)


def _case(case: Case, config: Config) -> Iterator[Row]:
    log(f"{case.cloud}, {case.points:,} points, beta = {case.beta:g}: the definition")
    truth = Truth.of(case, 500)
    expected, took = case.choice()
    contenders = []
    for method in METHODS:
        if method == "floor":
            contenders.append(Contender("floor", case.floor, 3 if config.quick else 9))
            continue
        estimate = expected.get(method, min(expected.values()))
        made = case.contender(method, estimate, config.quick, truth.keep)
        least = {"random": 1 if config.quick else 3}.get(method, repeats(0.5, config.quick))
        if method in ("random", "grid", "auto") or estimate < config.budget:
            times = max(least, made.repeats) if method != "neighbors" else made.repeats
            contenders.append(Contender(method, made.run, times, made.warm, truth.keep))
    log("  " + ", ".join(f"{c.name} x{c.repeats}" for c in contenders))
    for method, timed in race(contenders).items():
        mean, most = timed.kept or (None, None)
        yield case.row(
            method,
            {"random": f"p = {PAPER_P}", "floor": ""}.get(method, f"eps = {case.eps:g}"),
            seconds=timed.seconds,
            estimate=expected.get(method),
            mean_error=mean,
            max_error=most,
            took=took if method == "auto" else None,
            note=timed.failure,
        )


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Against random, against the floor, and within eps; a file's cloud has no targets."""
    out = []
    for (cloud, n, beta), by in groups([row for row in rows if row.cloud == "statue"]):
        grid, where = by["grid"], f"{cloud}, {count(n)} points, beta = {beta:g}"
        if "random" in by:
            ratio = by["random"].median / grid.median
            out.append(
                Claim.at_least(f"random / grid, {where}", ratio, TARGET.get(beta, 33.0), AIM)
            )
        out.append(
            Claim.at_most(f"grid / floor, {where}", grid.median / by["floor"].median, 2.5, 1.7)
        )
        if grid.mean_error is not None:
            error = tables.error(grid)
            out.append(
                Claim(f"mean error of grid, {where}", "≤ 1 %", error, grid.mean_error <= 0.01)
            )
    return out


def markdown(rows: Sequence[Row]) -> str:
    """A table for each case."""
    out = []
    for (cloud, n, beta), by in groups(rows):
        floor, paper = by["floor"].median, by["random"].median
        lines = []
        for method, row in by.items():
            name = f"{method} ({row.took})" if row.took else method
            ratios = [f"{row.median / floor:.1f}", f"{paper / row.median:.1f}"]
            errors = [tables.error(row), tables.error(row, "max")]
            lines.append([name, row.setting, tables.time(row), *ratios, *errors])
        header = ["engine", "setting", "time", "/ floor", "random /", "mean error", "max error"]
        title = f"{cloud}, N = {n:,}, D = 256, alpha = 60, beta = {beta:g}:"
        out += [title, "", tables.table(header, lines), ""]
    return "\n".join(out)
