"""What accuracy costs: the grid and the neighbors at several eps, random at several p."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks import tables
from benchmarks.cases import Case, Config, Truth
from benchmarks.harness import Contender, Row, log, race, repeats
from benchmarks.tables import Claim

NAME = "accuracy"
TITLE = "What accuracy costs"
EPS = (1e-1, 3e-2, 1e-2, 1e-3, 1e-4, 1e-5)
P = (256, 1024, 4096, 16384)


def measure(config: Config) -> Iterator[Row]:
    """One surface, one scale, many settings."""
    n = 10_000 if config.quick else 100_000
    case = Case(NAME, "statue", config.cloud("statue", n), 60.0, 20.0)
    log(f"accuracy: {n:,} points")
    truth = Truth.of(case, 500)
    contenders, names = [], {}
    for eps in EPS:
        for engine in ("grid", "neighbors"):
            run = partial(case.encode, engine, eps=eps)
            name = f"{engine} {eps:g}"
            names[name] = (engine, f"eps = {eps:g}")
            times = repeats(0.5 if engine == "grid" else 5, config.quick)
            contenders.append(Contender(name, run, times, keep=truth.keep))
    for p in P[:3] if config.quick else P:
        run = partial(case.encode, "random", p=p)
        warm = partial(run, pos=case.pos[:2000])
        names[f"random {p}"] = ("random", f"p = {p}")
        times = 1 if config.quick or p > 4096 else 3
        contenders.append(Contender(f"random {p}", run, times, warm, truth.keep))
    for name, timed in race(contenders).items():
        mean, most = timed.kept or (None, None)
        engine, setting = names[name]
        yield case.row(
            engine,
            setting,
            seconds=timed.seconds,
            mean_error=mean,
            max_error=most,
            note=timed.failure,
        )


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Every engine that takes an eps meets it."""
    asked = [row for row in rows if row.setting.startswith("eps") and row.mean_error is not None]
    if not asked:
        return []
    share = {id(row): (row.mean_error or 0.0) / float(row.setting.split("=")[1]) for row in asked}
    worst = max(asked, key=lambda row: share[id(row)])
    text = f"measured error / eps, worst of {len(asked)} settings ({worst.method}, {worst.setting})"
    return [Claim.at_most(text, share[id(worst)], 1.0)]


def markdown(rows: Sequence[Row]) -> str:
    """One table."""
    lines = []
    for row in sorted(rows, key=lambda row: row.method):
        errors = [tables.error(row), tables.error(row, "max")]
        lines.append([row.method, row.setting, tables.time(row), *errors])
    header = ["engine", "setting", "time", "mean error", "max error"]
    n = rows[0].n if rows else 0
    intro = f"statue, N = {n:,}, D = 256, alpha = 60, beta = 20:"
    return "\n".join([intro, "", tables.table(header, lines), ""])
