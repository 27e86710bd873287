"""From results to a page: claims first, then each part's table and plot."""

from __future__ import annotations

from types import ModuleType

from experiments.evaluation import BEST, OURS, UNTRAINED, best_of

from benchmarks import tables
from benchmarks.harness import seconds
from benchmarks.normals_parts import (
    accuracy,
    confidence,
    curvature,
    lenssen,
    lidar,
    orientation,
    pcpnet,
    timing,
)
from benchmarks.normals_parts.cases import OPEN3D, PAPER, Results, scores_of
from benchmarks.report import where
from benchmarks.tables import Claim
from veckm.data.protocol import SETS

#: In the order in which they are measured and shown.
PARTS: dict[str, ModuleType] = {
    part.NAME: part
    for part in (accuracy, pcpnet, timing, confidence, curvature, orientation, lidar)
}
_PLOT = {
    "accuracy": "RMSE of each method in the six sets",
    "confidence": "Measured against expected error",
    "time": "Time of each method",
}
_SHORT = (
    OURS,
    BEST,
    UNTRAINED,
    PAPER,
    lenssen.NAME,
    OPEN3D,
    "PCA, k = 122",
    best_of("PCA"),
    best_of("Jet"),
)


def page(results: Results, plots: list[str], images: str = "_static") -> str:
    """The whole report as Markdown, to be included below a heading of the second level."""
    out = [where(results), ""]
    if results.options.get("quick"):
        out += ["A quick run: fewer points and shapes than the targets are about.", ""]
    claims: list[Claim] = []
    sections: dict[str, str] = {}
    for name, part in PARTS.items():
        rows = results.of(name)
        if any(row.method == OURS for row in rows):  # others stay known with other weights
            claims += part.claims(rows)
            sections[name] = part.markdown(rows)
    out += [tables.claims(claims)]
    for name, text in sections.items():
        part = PARTS[name]
        out += ["", f"### {part.TITLE}", "", text]
        if part.NAME in plots:
            out += [f"![{_PLOT[part.NAME]}]({images}/normals_{part.NAME}.png)", ""]
    return "\n".join(out).rstrip() + "\n"


def short(results: Results) -> str:
    """The table for the README: errors in the six sets, and the time beside."""
    rows = results.of("accuracy")
    if not rows:
        return ""
    table = scores_of(accuracy.complete(rows)[0]).table()  # type: ignore[arg-type]
    timed = {r.method: r for r in results.of("time") if r.set == "all" and r.seconds}  # type: ignore[attr-defined]
    lines = []
    for name in _SHORT:
        if name in table:
            row = table[name]
            cells = [f"{row[key]:.2f}" if key in row else "-" for key in (*SETS, "mean")]
            spent = seconds(timed[name].median) if name in timed else ""
            lines.append([name, *cells, spent])
    n = f"{next(iter(timed.values())).n:,} points" if timed else "time"
    return tables.table(["RMSE in degrees", *SETS, "mean", n], lines) + "\n"
