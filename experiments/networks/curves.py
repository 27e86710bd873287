"""The learning curves of pairs of networks: the loss of every epoch, plain and with VecKM."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.networks.cases import Case
from experiments.networks.pages import BUDGET, Rows

#: Of a pair: a title, and each network with its rows, one per seed.
Pair = tuple[str, list[tuple[Case, Rows]]]
_SET = BUDGET.index("set")  # what a pair is named by


def pairs(title: str, cases: Sequence[Case], rows: Rows) -> list[Pair]:
    """Networks with and without VecKM of one budget, the longest that both sides have; of two
    alike that of more seeds."""
    found = []
    for case in (case for case in cases if case.veckm and not case.dim):
        plain = next(c for c in cases if c.network == case.network and not c.veckm)
        budgets = [_budgets(rows, side.key) for side in (plain, case)]
        for name in sorted({key[_SET] for key in budgets[0].keys() & budgets[1].keys()}):
            shared = [key for key in budgets[0].keys() & budgets[1].keys() if key[_SET] == name]
            longest = max(shared, key=lambda key: (*_size(budgets, key), key))
            sides = [(side, b[longest]) for side, b in zip((plain, case), budgets, strict=True)]
            found.append((f"{title}{': ' * bool(name)}{name}", sides))
    return found


def _size(budgets: Sequence[Mapping[tuple[str, ...], Rows]], key: tuple[str, ...]) -> list[int]:
    """Epochs, and seeds that both sides have."""
    return [len(budgets[0][key][0]["curve"]), min(len(side[key]) for side in budgets)]


def _budgets(rows: Rows, key: str) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """The rows with a curve by their budget."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["key"] == key and row.get("curve"):
            budget = tuple(str(row.get(name) or "") for name in BUDGET)
            found.setdefault(budget, []).append(row)
    return found


def draw(found: Sequence[Pair], metric: Mapping[str, str], folder: Path) -> str:
    """Write ``networks_curves.png``; the Markdown of a page that shows it, empty without curves.

    Args:
        found: from :func:`pairs`.
        metric: the first metric of a table by the beginning of its title, for the legends.
        folder: for the plot.
    """
    if not found:
        return ""
    import matplotlib.pyplot as plt  # only where something is drawn

    from experiments.figures.style import COLOR, plain, styled

    wide = min(3, len(found))
    high = -(-len(found) // wide)
    with styled():
        figure, grid = plt.subplots(high, wide, figsize=(4.2 * wide, 3.2 * high), squeeze=False)
        for axes in grid.flat[len(found) :]:
            axes.set_axis_off()
        for axes, (title, sides) in zip(grid.flat, found, strict=False):
            for case, rows in sides:
                name = next(name for start, name in metric.items() if title.startswith(start))
                score = 100 * statistics.fmean(row["scores"][name] for row in rows)
                for number, row in enumerate(rows):
                    axes.semilogy(
                        range(1, len(row["curve"]) + 1),
                        row["curve"],
                        color=COLOR["grid" if case.veckm else "dense"],
                        linewidth=1.2,
                        label=None if number else f"{case.title} ({score:.1f} %)",
                    )
            axes.set(xlabel="epoch", ylabel="training loss")
            plain(axes.yaxis, subs=(1.0, 3.0))
            axes.set_title(title, fontsize=9)
            axes.legend(fontsize=8)
        folder.mkdir(parents=True, exist_ok=True)
        # Without a date in it, the same results give the same file.
        figure.savefig(folder / "networks_curves.png", metadata={"Software": None})
        plt.close(figure)
    return (
        "![Training loss per epoch of the networks with and without VecKM]"
        "(_static/networks_curves.png)\n\nMean training loss of every epoch, a line per seed; in "
        "brackets the first metric of the table, tested once after the last epoch.\n"
    )
