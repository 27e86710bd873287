"""From rows to a page: claims first, then the tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import tables
from benchmarks.harness import seconds
from benchmarks.register_parts.pairs import SETS
from benchmarks.register_parts.peers import FGR, KISS, OURS, RANSAC, UNTRAINED
from benchmarks.tables import Claim

Rows = Sequence[dict[str, Any]]

_RECALL = {
    "objects, noise 0": 0.95,
    "objects, noise 1": 0.95,
    "objects, noise 2": 0.85,
    "3DMatch": 1.0,
    "LiDAR": 1.0,
}
#: Pairs of clouds of different shapes, and the confidence from which an alignment is claimed.
_DIFFERENT = {"real": "clouds of different places", "meshes": "views of different meshes"}
_SURE = 0.5
#: At how many of our voxels the methods of others ran: their best counts.
COARSER = (1, 2)


def merged(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result with each row, and each method in it, from the last run that has it."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        for row in run["rows"]:
            key = row["part"], row["name"]
            before = rows.get(key, {})
            rows[key] = {**before, **row}
            for part in ("methods", "matches"):
                if isinstance(row.get(part), dict):
                    rows[key][part] = {**before.get(part, {}), **row[part]}
    commits = ", ".join(dict.fromkeys(run["meta"]["commit"] for run in runs))
    return {"meta": {**runs[-1]["meta"], "commit": commits}, "rows": list(rows.values())}


def page(results: dict[str, Any]) -> str:
    """The whole report as Markdown."""
    m, rows = results["meta"], results["rows"]
    out = [
        f"Measured on {m['date'][:10]}, commit {m['commit']}, {m['cpu']}, {m['cores']} cores, "
        f"torch {m['torch']}.\n",
        tables.claims(_claims(rows)),
    ]
    pair, compared, others = (_part(rows, part) for part in ("pair", "solvers", "others"))
    if pair:
        out += ["\n### Recall\n", _recall(pair)]
        out += ["\n### Right nearest matches in the overlap\n", _matches(pair)]
        out += ["\n### Which alignments are claimed\n", _claimed(pair, others)]
    for kind, title in (("solvers", "Solvers, the same matches"), ("refinements", "Refinements")):
        if compared:
            out += [f"\n### {title}\n", _compared(compared, kind)]
    return "\n".join(out).rstrip() + "\n"


def _part(rows: Rows, part: str) -> Rows:
    return [row for row in rows if row["part"] == part]


def _sets(rows: Rows) -> Iterator[tuple[str, Rows]]:
    for name in SETS:
        here = [row for row in rows if row["set"] == name]
        if here:
            yield name, here


def _methods(rows: Rows) -> list[str]:
    coarser = [f"{name}, {k} voxels" for name in (RANSAC, FGR, KISS) for k in COARSER]
    found = {name for row in rows for name in row["methods"]}
    return [name for name in (OURS, UNTRAINED, *coarser) if name in found]


def _recall(rows: Rows) -> str:
    """Pairs that each method aligned, and its median time."""
    lines = []
    for method in _methods(rows):
        line = [method]
        for _, here in _sets(rows):
            ran = [row["methods"][method] for row in here if method in row["methods"]]
            good = sum(each["right"] for each in ran)
            spent = statistics.median(each["seconds"] for each in ran) if ran else math.nan
            line.append(f"{good} of {len(ran)}, {seconds(spent)}" if ran else "")
        lines.append(line)
    return tables.table(["method", *(name for name, _ in _sets(rows))], lines)


def _matches(rows: Rows) -> str:
    lines = []
    for kind in ("veckm", UNTRAINED, "FPFH"):
        shares = [_share(here, kind) for _, here in _sets(rows)]
        lines.append([kind, *("" if math.isnan(s) else f"{s:.3f}" for s in shares)])
    return tables.table(["descriptor", *(name for name, _ in _sets(rows))], lines)


def _claimed(pair: Rows, others: Rows) -> str:
    """Right and wrong alignments, and whether each was claimed."""
    lines = []
    for name, here in _sets(pair):
        mine = [row["methods"][OURS] for row in here]
        counts = [
            sum(m["right"] is right and m["confidence"] >= _SURE for m in mine)
            for right in (True, False)
        ]
        total = [sum(m["right"] is right for m in mine) for right in (True, False)]
        lines.append([name, *(f"{c} of {t}" for c, t in zip(counts, total, strict=True))])
    for kind, title in _DIFFERENT.items():
        here = [row for row in others if row.get("kind") == kind]
        if here:
            claimed = sum(row["claimed"] for row in here)
            lines.append([title, "", f"{claimed} of {len(here)}"])
    return tables.table(["", "right ones claimed", "wrong ones claimed"], lines)


def _compared(rows: Rows, kind: str) -> str:
    """Right pairs, median distance from the true positions in voxels, and median time."""
    lines = []
    for name in rows[0][kind]:
        line = [name]
        for _, here in _sets(rows):
            ran = [(row[kind][name], row["voxel"]) for row in here if name in row[kind]]
            good = sum(r["right"] for r, _ in ran)
            off = statistics.median(r["rmse"] / voxel for r, voxel in ran)
            spent = statistics.median(r["seconds"] for r, _ in ran)
            line.append(f"{good} of {len(ran)}, {off:.2f}, {seconds(spent)}")
        lines.append(line)
    return tables.table(["", *(name for name, _ in _sets(rows))], lines)


def _share(rows: Rows, kind: str) -> float:
    found = [row["matches"][kind] for row in rows if kind in row["matches"]]
    return statistics.mean(found) if found else math.nan


def _claims(rows: Rows) -> Iterator[Claim]:
    pair = _part(rows, "pair")
    for name, here in _sets(pair):
        good = sum(row["methods"][OURS]["right"] for row in here)
        target, recall = _RECALL[name], good / len(here)
        yield Claim(f"recall, {name}", f"≥ {target:g}", f"{good} of {len(here)}", recall >= target)
    objects = [row for row in pair if row["set"].startswith("objects")]
    for text, here, target in (
        ("3DMatch", [row for row in pair if row["set"] == "3DMatch"], 2.0),
        ("objects", objects, 1.3),
    ):
        ratio = _share(here, "veckm") / _share(here, "FPFH")
        if math.isfinite(ratio):
            yield Claim.at_least(f"right matches / those of FPFH, {text}", ratio, target)
    yield from _time_claims(pair)
    for kind, title in _DIFFERENT.items():
        others = [row for row in _part(rows, "others") if row.get("kind") == kind]
        if others:
            refused = sum(not row["claimed"] for row in others)
            measured = f"{refused} of {len(others)}"
            text = f"no alignment claimed, {title}"
            yield Claim(text, "≥ 95 %", measured, refused >= 0.95 * len(others))
    for row in rows:
        if row["part"] == "speed":
            ratio = statistics.median(row["fpfh"]) / statistics.median(row["veckm"])
            text = f"FPFH / ours, {row['points']:,} points, radius {row['radius']:g}"
            yield Claim.at_least(text, ratio, 10.0)
        if row["part"] == "memory":
            peak = row["peak"] / 1e9
            text = f"peak of a process, {row['name']}"
            yield Claim(text, "< 4 GB", f"{peak:.2f} GB", peak < 4)


def _time_claims(pair: Rows) -> Iterator[Claim]:
    ours, theirs = [], []
    for row in pair:
        peer = row["methods"].get(f"{RANSAC}, 1 voxels")
        if row["set"] == "3DMatch" and peer:
            ours.append(row["methods"][OURS]["seconds"])
            theirs.append(peer["seconds"])
    if ours:
        ratio = statistics.median(ours) / statistics.median(theirs)
        yield Claim.at_most("a 3DMatch pair / Open3D's recipe, same voxel", ratio, 1.0)
