"""The plots: one style, colors that the color-blind tell apart (Okabe and Ito), units on axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from experiments.figures.style import COLOR, MARKER, plain, styled
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import tables
from benchmarks.harness import Results, Row, count


def draw(results: Results, folder: Path) -> list[str]:
    """Write the plots that the results allow; their names."""
    return draw_all(PLOTS, results, folder, "encode")


def draw_all(
    plots: Mapping[str, Callable[[Any], Figure | None]], results: Any, folder: Path, prefix: str
) -> list[str]:
    """Write the plots that the results allow, prefix and name being that of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    with styled():
        for name, plot in plots.items():
            figure = plot(results)
            if figure is None:
                continue
            # Without a date in it, the same results give the same file.
            figure.savefig(folder / f"{prefix}_{name}.png", metadata={"Software": None})
            plt.close(figure)
            out.append(name)
    return out


def speed(results: Results) -> Figure | None:
    """Time against the number of points, one line per engine."""
    rows = [r for r in results.of("matrix") if (r.cloud, r.beta) == ("statue", 10.0)]
    rows = rows or results.of("scaling")
    if not rows:
        return None
    figure, axes = plt.subplots()
    for method in ("dense", "neighbors", "random", "grid", "auto"):
        mine = sorted((r for r in rows if r.method == method and r.seconds), key=lambda r: r.n)
        if mine:
            x, y = [r.n for r in mine], [r.median for r in mine]
            dashed = "--" if method == "auto" else "-"
            axes.loglog(x, y, dashed, color=COLOR[method], marker=MARKER[method])
            _name_line(axes, method, x, y)
    axes.set(xlabel="points", ylabel="time of one call, s")
    plain(axes.yaxis)
    axes.set_title("Encoding a surface (D = 256, beta = 10)")
    sizes = sorted({r.n for r in rows})
    axes.set_xticks(sizes, [count(n) for n in sizes])
    axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 2.6)
    return figure


def _name_line(axes: Axes, method: str, x: Sequence[float], y: Sequence[float]) -> None:
    label = {"random": "random (paper)", "dense": "dense (definition)"}.get(method, method)
    if method == "auto":  # lies on another line
        axes.plot([], [], "--", color=COLOR[method], marker=MARKER[method], label="auto")
        axes.legend(loc="upper left")
        return
    lift = {"dense": -9, "neighbors": 9}.get(method, 0)  # their last points lie near other lines
    axes.annotate(
        label, (x[-1], y[-1]), xytext=(7, lift), textcoords="offset points",
        color=COLOR[method], va="center",
    )  # fmt: skip


def accuracy(results: Results) -> Figure | None:
    """Error against time: the grid and the neighbors at several eps, random at several p."""
    rows = [r for r in results.of("accuracy") if r.seconds and r.mean_error]
    if not rows:
        return None
    figure, axes = plt.subplots()
    for method in ("grid", "neighbors", "random"):
        mine = sorted((r for r in rows if r.method == method), key=lambda r: -(r.mean_error or 0))
        x, y = [r.median for r in mine], [r.mean_error or 0.0 for r in mine]
        label = {"random": "random, p features (paper)"}.get(method, f"{method}, accuracy eps")
        axes.loglog(x, y, color=COLOR[method], marker=MARKER[method], label=label)
        if method != "neighbors":
            for r in mine:
                axes.annotate(
                    r.setting.split("= ")[1], (r.median, r.mean_error or 0.0), xytext=(6, 4),
                    textcoords="offset points", color=COLOR[method], fontsize=9,
                )  # fmt: skip
    axes.axhline(1e-2, color="#666666", linewidth=1, linestyle=":")
    axes.set(xlabel="time of one call, s", ylabel="mean relative error")
    plain(axes.xaxis)
    plain(axes.yaxis, lambda value, _: f"{value * 100:g} %")
    axes.set_title(f"What accuracy costs ({rows[0].n:,} points, D = 256, beta = 20)")
    axes.margins(x=0.1)
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.12), ncols=3, fontsize="small")
    return figure


def memory(results: Results) -> Figure | None:
    """Peak memory beyond inputs and output against the number of points."""
    rows = [r for r in results.of("scaling") if r.memory is not None]
    grid = sorted((r for r in rows if r.method == "grid"), key=lambda r: r.n)
    if not grid:
        return None
    figure, axes = plt.subplots()
    n, mb = [r.n for r in grid], 1e6
    axes.loglog(n, [(r.output or 0) / mb for r in grid], ":", color="#666666", label="the output")
    axes.loglog(
        n, [max(r.memory or 0, mb / 10) / mb for r in grid],
        color=COLOR["grid"], marker="o", label="grid, beyond inputs and output",
    )  # fmt: skip
    other = [r for r in rows if r.method == "random"]
    axes.loglog(
        [r.n for r in other], [max(r.memory or 0, mb / 10) / mb for r in other], "D",
        color=COLOR["random"], label="random (here in chunks), beyond",
    )  # fmt: skip
    axes.set(xlabel="points", ylabel="peak memory, MB")
    plain(axes.yaxis)
    axes.set_title("Memory for a surface (D = 256, beta = 10)")
    axes.set_xticks(n, [count(k) for k in n])
    axes.legend()
    return figure


def batches(results: Results) -> Figure | None:
    """Times of a batch, one bar per engine."""
    rows = [r for r in results.of("batches") if r.seconds]
    if not rows:
        return None
    rows = sorted(rows, key=lambda r: -r.median)
    figure, axes = plt.subplots(figsize=(6.4, 3.0))
    bars = axes.barh(
        [_batch_label(r) for r in rows], [r.median * 1e3 for r in rows],
        xerr=[r.spread * 500 for r in rows], color=[COLOR[r.method] for r in rows],
        height=0.6, error_kw={"ecolor": "#444444", "capsize": 3},
    )  # fmt: skip
    labels = [f"{r.median * 1e3:.0f} ms, error {tables.error(r)}" for r in rows]
    axes.bar_label(bars, labels, padding=8, fontsize=9)
    axes.set(xlabel="time of one call, ms", xlim=(0, max(r.median for r in rows) * 1.45e3))
    axes.grid(axis="y", visible=False)
    axes.set_title("32 clouds of 1,024 points (D = 256, beta = 6)")
    return figure


def _batch_label(row: Row) -> str:
    return {"paper": "paper's product", "auto": f"auto ({row.took})"}.get(row.method, row.method)


PLOTS = {"speed": speed, "accuracy": accuracy, "memory": memory, "batches": batches}
