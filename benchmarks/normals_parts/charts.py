"""The plots of the normals' benchmark, in the style of all plots here."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from experiments.evaluation import BEST, OURS, UNTRAINED, best_of
from experiments.figures.style import plain
from matplotlib.figure import Figure

from benchmarks.normals_parts import confidence, lenssen
from benchmarks.normals_parts.accuracy import complete
from benchmarks.normals_parts.cases import PAPER, Results, scores_of
from benchmarks.plots import draw_all
from veckm.data.protocol import SETS

COLOR = {
    OURS: "#0072B2",
    BEST: "#003355",
    UNTRAINED: "#56B4E9",
    best_of("PCA"): "#E69F00",
    best_of("Jet"): "#009E73",
    PAPER: "#D55E00",
    lenssen.NAME: "#CC79A7",
}
_OTHER = "#999999"


def draw(results: Results, folder: Path) -> list[str]:
    """Write the plots that the results allow; their names."""
    return draw_all(PLOTS, results, folder, "normals")


def accuracy(results: Results) -> Figure | None:
    """RMSE in the six sets, a bar a method."""
    rows = results.of("accuracy")
    if not rows:
        return None
    table = scores_of(complete(rows)[0]).table()  # type: ignore[arg-type]
    names = [name for name in COLOR if name in table]
    columns = [key for key in (*SETS, "mean") if key in table[names[0]]]
    figure, axes = plt.subplots(figsize=(8.0, 4.2))
    width = 0.8 / len(names)
    for k, name in enumerate(names):
        x = [at + (k - (len(names) - 1) / 2) * width for at in range(len(columns))]
        axes.bar(x, [table[name][key] for key in columns], width, color=COLOR[name], label=name)
    axes.set_xticks(range(len(columns)), columns)
    axes.set(ylabel="RMSE, degrees")
    axes.grid(axis="x", visible=False)
    axes.set_title("Error of normals by the protocol of PCPNet")
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure


def reliability(results: Results) -> Figure | None:
    """Measured against expected error, a point a tenth of all points."""
    rows = results.of(confidence.NAME)
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(5.0, 4.6))
    for name, marker in ((OURS, "o"), (UNTRAINED, "s")):
        parts = confidence.tenths([row for row in rows if row.method == name])  # type: ignore[misc]
        if parts:
            _, expected, error = zip(*parts, strict=True)
            axes.loglog(expected, error, color=COLOR[name], marker=marker, label=name)
    low, high = axes.get_xlim()
    axes.plot([low, high], [low, high], ":", color="#666666", label="as it should be")
    axes.set(xlabel="expected error, degrees", ylabel="measured mean error, degrees")
    plain(axes.xaxis)
    plain(axes.yaxis)
    axes.set_title("Expected and measured error, tenths of all points")
    axes.legend()
    return figure


def time(results: Results) -> Figure | None:
    """Seconds of each method, a bar each."""
    rows = [row for row in results.of("time") if row.set == "all" and row.seconds]  # type: ignore[attr-defined]
    if not rows:
        return None
    rows = sorted(rows, key=lambda row: -row.median)
    figure, axes = plt.subplots(figsize=(6.4, 3.0))
    bars = axes.barh(
        [row.method for row in rows], [row.median for row in rows],
        xerr=[row.spread / 2 for row in rows],
        color=[COLOR.get(row.method, _OTHER) for row in rows],
        height=0.6, error_kw={"ecolor": "#444444", "capsize": 3},
    )  # fmt: skip
    axes.bar_label(bars, [f"{row.median:.2f} s" for row in rows], padding=8, fontsize=9)
    axes.set(xlabel="time of one call, s", xlim=(0, max(row.median for row in rows) * 1.3))
    axes.grid(axis="y", visible=False)
    axes.set_title(f"Normals of {rows[0].n:,} points")
    return figure


PLOTS = {"accuracy": accuracy, "confidence": reliability, "time": time}
