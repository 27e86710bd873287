"""Is the expected error worth anything? Drop the least confident points, and compare with what is.

The histogram of every cloud is saved, not its points: sums over fixed narrow classes of expected
error, which can be added up over clouds and cut into tenths afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from experiments.evaluation import OURS, UNTRAINED, mean_over_sets
from torch import Tensor

from benchmarks import tables
from benchmarks.harness import log
from benchmarks.normals_parts.cases import Config, Key, Row, percent
from benchmarks.tables import Claim
from veckm.data.protocol import LabeledCloud
from veckm.tasks.normals.evaluate import angle_error, rmse

NAME = "confidence"
TITLE = "The expected error"
DROPPED, LESS, OFF = 0.2, 0.25, 0.15
#: Classes of expected error, in degrees: 40 to a factor of ten.
EDGES = torch.logspace(-2, 2, 161, dtype=torch.float64)

Tenth = tuple[float, float, float]  # share of the points, expected and measured mean error


def measure(config: Config, known: Collection[Key]) -> Iterator[list[Row]]:
    """Both of our estimators, on the clouds of the accuracy part."""
    for k, cloud in enumerate(config.clouds(), 1):
        at = cloud.name, cloud.set, len(cloud.pos)
        rows = []
        for name in (OURS, UNTRAINED):
            if (*at, name) not in known:
                found = figures(*config.estimated(name, cloud), cloud)
                rows.append(Row(NAME, at[0], at[2], name, at[1], found))
        log(f"confidence {k}: {cloud.name}, {cloud.set}")
        yield rows


def figures(normal: Tensor, expected: Tensor, cloud: LabeledCloud) -> dict[str, object]:
    """RMSE of all points, of those kept by expected and by true error, and the histogram."""
    expected, error = expected.double(), angle_error(normal, cloud.normal[cloud.subset])
    keep = max(1, round((1 - DROPPED) * len(error)))
    return {
        "rmse": rmse(error),
        "kept": rmse(error[expected.argsort(stable=True)[:keep]]),
        "best": rmse(error.sort().values[:keep]),
        "classes": histogram(expected, error),
    }


def histogram(expected: Tensor, error: Tensor) -> list[list[float]]:  # (M,), (M,)
    """Of every class that has points: its number, how many, their expected and measured sums."""
    at = torch.bucketize(expected, EDGES)
    sums = [torch.bincount(at, weights) for weights in (torch.ones_like(error), expected, error)]
    table = torch.stack(sums, 1)  # (classes, 3)
    return [[k, *table[k].tolist()] for k in table[:, 0].nonzero()[:, 0].tolist()]


def tenths(rows: Sequence[Row]) -> list[Tenth]:
    """All points by expected error, in ten parts as equal as whole classes allow."""
    total: dict[int, list[float]] = {}
    for row in rows:
        for k, *sums in row.values["classes"]:
            old = total.setdefault(k, [0.0, 0.0, 0.0])
            total[k] = [a + b for a, b in zip(old, sums, strict=True)]
    points = sum(sums[0] for sums in total.values())
    parts: dict[int, list[float]] = {}
    before = 0.0
    for k in sorted(total):
        part = int(10 * (before + total[k][0] / 2) / points)  # of the middle of the class
        old = parts.setdefault(part, [0.0, 0.0, 0.0])
        parts[part] = [a + b for a, b in zip(old, total[k], strict=True)]
        before += total[k][0]
    return [(c / points, expected / c, error / c) for c, expected, error in parts.values()]


def miscalibration(parts: Sequence[Tenth]) -> float:
    """Mean |expected - measured| over the tenths, in degrees."""
    return sum(share * abs(expected - error) for share, expected, error in parts)


def by_set(rows: Sequence[Row], name: str) -> dict[str, float]:
    """One of the figures: mean over the clouds of each set, and over the sets."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        scores.setdefault(row.set, []).append(row.values[name])
    return mean_over_sets(scores)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """What dropping a fifth of the points is worth."""
    mine = [row for row in rows if row.method == OURS]
    if not mine:
        return []
    less = 1 - by_set(mine, "kept")["mean"] / by_set(mine, "rmse")["mean"]
    text = "RMSE without the 20 % least confident points, lower by"
    off = max((error / expected - 1 for _, expected, error in tenths(mine)), key=abs)
    tenth = "measured mean error off the expected, worst tenth of the points"
    return [
        Claim(text, f"≥ {LESS * 100:.0f} %", percent(less), less >= LESS),
        Claim(tenth, f"≤ {OFF * 100:.0f} %", percent(off), abs(off) <= OFF),
    ]


def markdown(rows: Sequence[Row]) -> str:
    """For both estimators what dropping is worth; the tenths of ours."""
    out = [
        "RMSE in degrees of all evaluated points, and of the 80 % of each cloud with the smallest "
        "expected error; the last column drops by the true error, and is the most that any "
        "confidence could do:",
        "",
    ]
    for name in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == name]
        whole, kept, best = (by_set(mine, key) for key in ("rmse", "kept", "best"))
        lines = []
        for key in whole:
            shares = [percent(1 - part[key] / whole[key]) for part in (kept, best)]
            lines.append([key, f"{whole[key]:.2f}", f"{kept[key]:.2f}", *shares])
        header = [name, "all", "kept", "lower by", "at most by"]
        out += [tables.table(header, lines), ""]
    return "\n".join([*out, *_reliability([row for row in rows if row.method == OURS])])


def _reliability(rows: Sequence[Row]) -> list[str]:
    """Expected against measured error, tenth by tenth."""
    if not rows:
        return []
    parts = tenths(rows)
    lines = [
        [str(k), percent(share), f"{expected:.2f}", f"{error:.2f}", f"{error / expected:.2f}"]
        for k, (share, expected, error) in enumerate(parts, 1)
    ]
    mean = sum(share * error for share, _, error in parts)
    intro = (
        "All points of all clouds by their expected error, in tenths. Expected and measured are "
        f"{miscalibration(parts):.2f} degrees apart on average, of a mean error of {mean:.2f}:"
    )
    header = ["tenth", "points", "expected", "measured mean error", "measured / expected"]
    return [intro, "", tables.table(header, lines), ""]
