"""All engines on all clouds at all sizes: who wins, and does `auto` know?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import tables
from benchmarks.cases import Case, Config, Truth
from benchmarks.harness import Row, count, groups, log, race, seconds
from benchmarks.tables import Claim

NAME = "matrix"
TITLE = "Every engine on every cloud"
ENGINES = ("dense", "neighbors", "random", "grid")
#: beta = 10 sees many points and 80 a few or none: thin cells, where a grid has nothing to share.
#: The noise of the thick shell is as thick as the window of beta = 10.
BETAS = (10.0, 20.0, 40.0, 80.0)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
#: auto may take so much longer than the best engine.
_TARGET = 1.3


def measure(config: Config) -> Iterator[Row]:
    """Every case, its engines in turns."""
    sizes = config.sizes or (SIZES[:2] if config.quick else SIZES)
    betas = config.betas or ((10.0, 80.0) if config.quick else BETAS)
    cases = [(n, name, beta) for n in sizes for name in config.names for beta in betas]
    for k, (n, name, beta) in enumerate(cases, 1):
        if n > config.available(name):
            continue
        log(f"matrix {k}/{len(cases)}: {name}, {n:,} points, beta = {beta:g}")
        yield from _case(Case(NAME, name, config.cloud(name, n), 60.0, beta), config)


def _case(case: Case, config: Config) -> Iterator[Row]:
    truth = Truth.of(case, 200)
    expected, took = case.choice()
    contenders = [
        case.contender(method, expected[method], config.quick, truth.keep)
        for method in ENGINES
        if expected[method] <= config.budget
    ]
    contenders.append(case.contender("auto", expected[took], config.quick, truth.keep))
    timed = race(contenders)
    for method in (*ENGINES, "auto"):
        mine = timed.get(method)
        mean, most = mine.kept if mine and mine.kept else (None, None)
        estimate = expected.get(method)
        yield case.row(
            method,
            seconds=mine.seconds if mine else [],
            estimate=None if estimate == float("inf") else estimate,
            mean_error=mean,
            max_error=most,
            took=took if method == "auto" else None,
            note=mine.failure if mine else "",
        )
    shown = [f"{name} {seconds(t.seconds[-1])}" for name, t in timed.items() if t.seconds]
    log("  " + ", ".join(shown) + f"; auto took {took}")


def best(by: dict[str, Row]) -> Row:
    """The fastest engine that heeds eps."""
    return min((by[m] for m in ENGINES if m != "random"), key=lambda row: row.median)


def against_best(by: dict[str, Row]) -> float | None:
    """auto's time over that of the best engine; None where no engine was run beside it."""
    first = best(by)
    return by["auto"].median / first.median if first.seconds else None


def random_time(rows: Sequence[Row], by: dict[str, Row]) -> float:
    """Of `random`; where it was not run, scaled from its largest run, for it is linear in N."""
    if by["random"].seconds:
        return by["random"].median
    runs = [row for row in rows if row.method == "random" and row.seconds]
    if not runs:
        return float("inf")
    largest = max(runs, key=lambda row: row.n)
    return largest.median * by["random"].n / largest.n


def claims(rows: Sequence[Row]) -> list[Claim]:
    """About auto and about eps, on the worst case of each."""
    cases = list(groups(rows))
    ratios = [(r, case) for case, by in cases if (r := against_best(by)) is not None]
    ratio, where = max(ratios, default=(float("nan"), cases[0][0]))
    slower, there = max((by["auto"].median / random_time(rows, by), case) for case, by in cases)
    heeding = [row for row in rows if row.method != "random" and row.mean_error is not None]
    worst = max(heeding, key=lambda row: row.mean_error or 0.0)
    place = _place(worst.case)
    return [
        Claim.at_most(
            f"auto / best engine, worst of {len(ratios)} cases ({_place(where)})", ratio, _TARGET
        ),
        Claim.at_most(
            f"auto / random (scaled where not run), worst case ({_place(there)})", slower, 1.0
        ),
        Claim(
            f"mean error within eps, worst case ({worst.method}, {place})",
            "≤ 1 %",
            tables.error(worst),
            (worst.mean_error or 0.0) <= 0.01,
        ),
    ]


def _place(case: tuple[str, int, float]) -> str:
    return f"{case[0]}, {count(case[1])}, beta = {case[2]:g}"


def markdown(rows: Sequence[Row]) -> str:
    """The whole matrix, then what it says against us."""
    cases = list(groups(rows))
    header = ["cloud", "N", "beta", *ENGINES, "auto", "took", "auto / best", "mean error"]
    lines = []
    for (cloud, n, beta), by in cases:
        ratio = against_best(by)
        marked = "-" if ratio is None else f"{ratio:.2f}"
        marked = f"**{marked}**" if ratio is not None and ratio > _TARGET else marked
        times = [tables.brief(by[m]) for m in (*ENGINES, "auto")]
        took = by["auto"].took or ""
        lines.append([cloud, count(n), f"{beta:g}", *times, took, marked, tables.error(by["auto"])])
    return "\n".join(
        [
            "Medians; `est.` is the engine's own estimate where it was above the budget and the "
            "engine was not run; `refused` means that it declined beforehand, `failed` that the "
            "call raised an error, listed below. The error is that of auto's result, of which 1 % "
            "was asked.",
            "",
            tables.table(header, lines),
            "",
            *_misses(cases),
            *_losses(cases),
            *[f"- {_place(row.case)}, {row.method}: {row.note}" for row in rows if row.note],
        ]
    )


def _misses(cases: list[tuple[tuple[str, int, float], dict[str, Row]]]) -> list[str]:
    """Where auto is not within 1.3 of the best engine, worst first."""
    ratios = [(against_best(by) or 0.0, case, by) for case, by in cases]
    missed = sorted((m for m in ratios if m[0] > _TARGET), key=lambda m: -m[0])
    if not missed:
        return [f"`auto` is within {_TARGET:g}x of the best engine in every case.", ""]
    lines = [
        f"- {_place(case)}: {ratio:.2f}x, took {by['auto'].took}, best {best(by).method}"
        for ratio, case, by in missed
    ]
    title = f"`auto` takes more than {_TARGET:g}x the best engine's time in {len(missed)} of "
    return [f"{title}{len(cases)} cases:", "", *lines, ""]


def _losses(cases: list[tuple[tuple[str, int, float], dict[str, Row]]]) -> list[str]:
    """Where the grid is not the best."""
    lines = []
    for (cloud, n, beta), by in cases:
        first, grid = best(by), by["grid"]
        if first.method != "grid":
            ratio = f"{grid.median / first.median:.1f}" if grid.seconds else "-"
            row = [cloud, count(n), f"{beta:g}", first.method, tables.brief(first)]
            lines.append([*row, tables.brief(grid), ratio])
    header = ["cloud", "N", "beta", "winner", "its time", "grid", "grid / winner"]
    out = [f"The grid loses {len(lines)} of {len(cases)} cases:", ""]
    return [*out, tables.table(header, lines), ""] if lines else ["The grid loses no case.", ""]
