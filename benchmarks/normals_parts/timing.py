"""How long a cloud takes, from points to normals, and the growth of time and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from experiments.evaluation import BEST, OURS, UNTRAINED
from torch import Tensor

from benchmarks import tables
from benchmarks.harness import Contender, count, log, race, repeats, seconds
from benchmarks.normals_parts import lenssen, peak
from benchmarks.normals_parts.cases import (
    OPEN3D,
    Config,
    Key,
    Row,
    has_open3d,
    open3d_normals,
    scipy_normals,
)
from benchmarks.tables import Claim
from veckm.data import shapes
from veckm.tasks.normals import estimate
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.evaluate import angle_error, rmse

NAME = "time"
TITLE = "Time and memory"
SCIPY, MINE = "scipy and numpy PCA, k = 122", "PCA, k = 122"
ORIENT = f"{OURS}, with consistent signs"
_RIVALS = (OPEN3D, SCIPY, MINE)
_GROWTH = 10
_GB = 1e9
_LONG = 2.0  # seconds; longer calls are warmed up on few points

Call = Callable[[Tensor], Tensor]


def calls(config: Config) -> dict[str, Call]:
    """From points to normals, as users call it."""
    net = config.net
    out: dict[str, Call] = {
        OURS: lambda pos: estimate(pos, net=net).normal,
        ORIENT: lambda pos: estimate(pos, net=net, orient="consistent").normal,
        BEST: lambda pos: estimate(pos, net=net, method="best").normal,
        UNTRAINED: lambda pos: estimate(pos, method="moments").normal,
        MINE: partial(pca_normals, k=122),
        SCIPY: partial(scipy_normals, k=122),
    }
    if has_open3d():
        out[OPEN3D] = partial(open3d_normals, k=122)
    if config.lenssen is not None:
        out[lenssen.NAME] = lenssen.estimator(config.lenssen)
    return out


def measure(config: Config, known: Collection[Key]) -> Iterator[list[Row]]:
    """All at one size in turns; then ours at ten times as many points, and again at the first."""
    n, found = config.points, calls(config)
    if ("statue", "all", n, OURS) not in known:
        yield _race(config, "all", {n: list(found)}, found)
    large = _GROWTH * n
    if ("statue", "growth", large, OURS) not in known:
        yield _race(config, "growth", {n: [OURS, UNTRAINED], large: [OURS, UNTRAINED]}, found)
    if ("statue", "memory", large, OURS) not in known:
        log(f"time: peak memory at {large:,} points")
        pos = shapes.statue(large).pos
        yield [
            Row(NAME, "statue", large, name, "memory", peak.of(pos, config.weights, method))
            for name, method in ((OURS, "network"), (UNTRAINED, "moments"))
        ]


def _race(
    config: Config, race_name: str, sizes: dict[int, list[str]], found: dict[str, Call]
) -> list[Row]:
    """All methods at all sizes in turns, each with the error of the very result."""
    contenders, where = [], {}
    for n, names in sizes.items():
        cloud = shapes.statue(n)
        for name in names:
            key = f"{name} {n}"
            where[key] = (name, n)
            contenders.append(_contender(key, found[name], cloud, config.quick))
    log(f"time, {race_name}: " + ", ".join(f"{c.name} x{c.repeats}" for c in contenders))
    rows = []
    for key, timed in race(contenders).items():
        name, n = where[key]
        values = {} if timed.kept is None else {"rmse": timed.kept}
        rows.append(Row(NAME, "statue", n, name, race_name, values, timed.seconds, timed.failure))
    return rows


def _contender(name: str, call: Call, cloud: shapes.Shape, quick: bool) -> Contender:
    """With as many repeats as a tenth of the points suggests, three at least: claims rest on it."""
    few = cloud.pos[:: max(1, len(cloud.pos) // 10_000)]
    call(few)
    start = time.perf_counter()
    call(few)
    expected = (time.perf_counter() - start) * len(cloud.pos) / len(few)
    truth = cloud.normal
    assert truth is not None

    def keep(normal: Tensor) -> float:
        return rmse(angle_error(normal, truth))

    warm = partial(call, few) if expected > _LONG else None
    times = repeats(expected, quick) if quick else max(3, repeats(expected, quick))
    return Contender(name, partial(call, cloud.pos), times, warm, keep)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Against Open3D, or the faster PCA where it is absent; then growth and memory."""
    all_rows = {row.method: row for row in rows if row.set == "all" and row.seconds}
    out = []
    if OURS in all_rows:
        mine = all_rows[OURS]
        present = [all_rows[name] for name in _RIVALS if name in all_rows]
        open3d = [row for row in present if row.method == OPEN3D]
        rival = open3d[0] if open3d else min(present, key=lambda row: row.median)
        text = f"time of ours / {rival.method}, {count(mine.n)} points"
        out.append(Claim.at_most(text, mine.median / rival.median, 1.5, 1.0))
    if ORIENT in all_rows:
        text = f"time of orientation / of the normals themselves, {count(mine.n)} points"
        out.append(Claim.at_most(text, all_rows[ORIENT].median / mine.median - 1, 1.0))
    growth = sorted(_of(rows, "growth"), key=lambda row: row.n)
    if len(growth) > 1 and all(row.seconds for row in growth):
        small, large = growth[0], growth[-1]
        text = f"time of ours, {count(large.n)} / {count(small.n)} points"
        out.append(Claim.at_most(text, large.median / small.median, 11.0))
    for row in _of(rows, "memory"):
        used = row.values["peak"] / _GB
        text = f"peak memory of the whole process, {count(row.n)} points"
        out.append(Claim(text, "< 3 GB", f"{used:.2f} GB", used < 3))
    return out


def _of(rows: Sequence[Row], race_name: str) -> list[Row]:
    return [row for row in rows if row.set == race_name and row.method == OURS]


def markdown(rows: Sequence[Row]) -> str:
    """Two tables: the methods side by side, and growth."""
    first = [row for row in rows if row.set == "all"]
    out = []
    if first:
        mine = next(row for row in first if row.method == OURS)
        lines = []
        for row in first:
            ratio = f"{row.median / mine.median:.2f}" if row.seconds else ""
            lines.append([row.method, tables.time(row), ratio, _degrees(row)])
        header = ["method", "time", "/ ours", "RMSE"]
        intro = (
            f"A clean surface of {mine.n:,} points, all of them answered for. `{MINE}` is this "
            "package's own, the other as one writes it with scipy and numpy:"
        )
        out += [intro, "", tables.table(header, lines), ""]
        if not any(row.method == OPEN3D for row in first):
            out += ["Open3D was not installed.", ""]
    grown = [row for row in rows if row.set == "growth"]
    if grown:
        out += ["The same surface with ten times as many points, in turns with the small one:", ""]
        out += [_growth(grown, [row for row in rows if row.set == "memory"]), ""]
    return "\n".join(out)


def _growth(rows: Sequence[Row], memory: Sequence[Row]) -> str:
    used = {(row.method, row.n): row.values for row in memory}
    least = {name: min(r.n for r in rows if r.method == name) for name in {r.method for r in rows}}
    base = {row.method: row.median for row in rows if row.n == least[row.method]}
    lines = []
    for row in rows:
        found = used.get((row.method, row.n), {})
        sizes = [tables.size(found.get(name)) for name in ("peak", "beyond")]
        a_point = seconds(row.median / row.n) if row.seconds else ""
        ratio = f"{row.median / base[row.method]:.1f}" if row.seconds else ""
        lines.append([f"{row.n:,}", row.method, tables.time(row), a_point, ratio, *sizes])
    header = ["N", "method", "time", "a point", "ratio", "peak memory", "beyond idle"]
    return tables.table(header, lines)


def _degrees(row: Row) -> str:
    return f"{row.values['rmse']:.2f}" if "rmse" in row.values else ""
