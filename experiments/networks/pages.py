"""From rows to the Markdown tables of a page: ours beside the paper's, pair by pair.

A row is of one seed. Rows whose runs were not kept were read from the published page: they have
``seeds``, and a mean and spread in ``scores`` and ``difference``, in percent.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.common import markdown, mean
from experiments.networks.cases import Case

Rows = Sequence[dict[str, Any]]

#: Rows that agree in these had the same training.
BUDGET = ("objects", "epochs", "points", "batch", "rate", "smoothing", "drop", "set", "precision")


def merged(old: Rows, new: Iterable[dict[str, Any]], same: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of earlier runs and of this one; one that is about the same thing is replaced."""
    rows = {tuple(str(row.get(name) or 0) for name in same): row for row in (*old, *new)}
    return list(rows.values())


def current(cases: Sequence[Case], rows: Rows) -> list[dict[str, Any]]:
    """Without those read from a page of networks of which both sides have been trained since."""
    new = {(row["key"], _settings(row)) for row in rows if "seeds" not in row}
    pairs = {case.network: case.key for case in cases if case.veckm and not case.dim}
    done = {name for name, of in new if (pairs.get(name), of) in new}
    done |= {pairs[name] for name in done}
    return [row for row in rows if "seeds" not in row or row["key"] not in done]


def short(tables: Iterable[tuple[str, Sequence[Case], str, Rows, Rows]]) -> str:
    """A line for each pair and set: its longest training, and the time of a forward pass.

    Args:
        tables: of each what it is about, its cases, first metric, rows and times.
    """
    lines = []
    for about, cases, metric, every, timed in tables:
        rows = current(cases, every)
        speed = {row["key"]: 1e3 * statistics.median(row["seconds"]) for row in timed}
        for case in (case for case in cases if case.veckm and not case.dim):
            longest: dict[str, list[dict[str, Any]]] = {}
            for mine in _alike([row for row in rows if row["key"] == case.key]):
                name = mine[0].get("set", "")
                if _plain(case, mine, rows) and _size(mine) > _size(longest.get(name, [])):
                    longest[name] = mine
            for name, mine in longest.items():
                plain, fast = _plain(case, mine, rows), speed.get(case.network)
                both = "" if not fast else f"{fast:,.0f} → {speed[case.key]:,.0f}"
                what = f"{about}{', ' * bool(name)}{name}"
                difference = _difference(case, mine, rows, [metric])
                shown = (_score(plain, metric), _score(mine, metric), difference[1])
                lines.append([case.title, what, *shown, difference[-1], _trained(mine), both])
    head = ["network", "task", "without", "with VecKM", "difference", "seeds", "trained on"]
    return markdown([*head, "forward pass, ms"], lines)


def _size(mine: Rows) -> int:
    """Points that a training saw; 0 without one."""
    return sum(row["epochs"] * row["objects"] * row["points"] for row in mine[:1])


def _plain(case: Case, mine: Rows, rows: Rows) -> list[dict[str, Any]]:
    """The rows of the plain network that were trained as these."""
    alike = [row for row in rows if row["key"] == case.network]
    return [row for row in alike if _settings(row) == _settings(mine[0])]


def accuracy(
    cases: Sequence[Case], rows: Rows, metrics: Sequence[str], *, printed: bool = True
) -> str:
    """A line for each network, one for what VecKM is worth, and the paper's where ``printed``."""
    lines = []
    for case in cases:
        found = _alike([row for row in rows if row["key"] == case.key])
        for mine in found:
            scores = [_score(mine, name) for name in metrics]
            size = f"{mine[0]['parameters'] / 1e6:.2f}M"
            seeds = str(mine[0].get("seeds", len(mine)))
            lines.append([case.title, *scores, size, _trained(mine), seeds])
            if case.veckm:
                lines.append(_difference(case, mine, rows, metrics))
        if found and case.scores and printed:
            paper = [f"{value:g}" for value in case.scores]
            lines.append([f"{case.title}, as printed", *paper, f"{case.parameters:g}M", "", ""])
    head = ["network", *(f"{name}, %" for name in metrics), "parameters", "trained on", "seeds"]
    return markdown(head, lines)


def _score(mine: Rows, name: str) -> str:
    if "seeds" in mine[0]:
        return _spread(mine[0]["scores"][name])
    return mean([100 * row["scores"][name] for row in mine])


def _spread(pair: Sequence[float | None]) -> str:
    """A mean and its spread over seeds, as :func:`mean` prints them; None for no spread."""
    value, spread = pair
    return f"{value:.2f}" + ("" if spread is None else f" ± {spread:.2f}")


def _alike(rows: Rows) -> list[list[dict[str, Any]]]:
    """Rows that differ by the seed alone."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(_settings(row), []).append(row)
    return list(groups.values())


def _settings(row: dict[str, Any]) -> str:
    return " ".join(str(row.get(name) or 0) for name in BUDGET)


def _trained(mine: Rows) -> str:
    row = mine[0]
    minutes = statistics.fmean(r["train_seconds"] for r in mine) / 60
    beyond = [f"{name} {row[name]:g}" for name in ("smoothing", "drop") if row.get(name)]
    size = f"{row['objects']:,} x {row['points']:,} points, {row['epochs']} epochs"
    beyond += [row["precision"]] if "precision" in row else []
    return ", ".join((size, *beyond, f"{minutes:.0f} min"))


def _difference(case: Case, mine: Rows, rows: Rows, metrics: Sequence[str]) -> list[str]:
    """Against the plain network with the same settings and seeds, seed by seed."""
    if "seeds" in mine[0]:
        known = mine[0]["difference"]
        cells = [f"**{'+' if known[n][0] > 0 else ''}{_spread(known[n])}**" for n in metrics]
        return ["difference", *cells, "", "", str(mine[0]["seeds"])]
    plain = {row["seed"]: row for row in _plain(case, mine, rows)}
    pairs = [(row, plain[row["seed"]]) for row in mine if row["seed"] in plain]
    cells = []
    for name in metrics:
        each = [100 * (a["scores"][name] - b["scores"][name]) for a, b in pairs]
        cells.append(f"**{'+' if statistics.fmean(each) > 0 else ''}{mean(each)}**" if each else "")
    return ["difference", *cells, "", "", str(len(pairs)) if pairs else "no plain run alike"]


def times(cases: Sequence[Case], rows: Rows) -> str:
    """Milliseconds of a forward pass, with how many times as fast VecKM is as its plain network."""
    sizes = list(dict.fromkeys((row["clouds"], row["points"]) for row in rows))
    known = {(row["key"], row["clouds"], row["points"]): row for row in rows}
    lines = []
    for case in cases:
        if not any(row["key"] == case.key for row in rows):
            continue
        cells = []
        for clouds, points in sizes:
            row = known.get((case.key, clouds, points))
            plain = known.get((case.network, clouds, points)) if case.veckm else None
            cells.append("" if row is None else _milliseconds(row, plain))
        lines.append([case.title, *cells, f"{case.milliseconds:g}" if case.scores else ""])
    head = [f"{clouds} x {points:,} points" for clouds, points in sizes]
    return markdown(["network", *head, "printed (GPU)"], lines)


def _milliseconds(row: dict[str, Any], plain: dict[str, Any] | None) -> str:
    mine = 1e3 * statistics.median(row["seconds"])
    ratio = "" if plain is None else f" ({1e3 * statistics.median(plain['seconds']) / mine:.2f}x)"
    memory = f", {row['peak']:.2f} GB" if "peak" in row else ""
    return f"{mine:,.0f} ms{ratio}{memory}"


def against_pointnet2(rows: Rows) -> str:
    """How many times as fast VecKM -> PN is as the network that groups neighbors."""
    known = {row["key"]: statistics.median(row["seconds"]) for row in rows}
    keys = {"": "veckm-pointnet", "with D = 128 ": "veckm-pointnet-128"}
    if "pointnet2" not in known or not all(key in known for key in keys.values()):
        return ""
    said = [f"{of}{known['pointnet2'] / known[key]:.2f}" for of, key in keys.items()]
    return f"VecKM → PN is {' and '.join(said)} times as fast as PointNet++."


def steps(cases: Sequence[Case], rows: Rows) -> str:
    """Processor seconds of a training step in each precision."""
    known = {(row["key"], row["precision"]): statistics.median(row["seconds"]) for row in rows}
    names = list(dict.fromkeys(name for _, name in known))
    lines = []
    for case in (case for case in cases if (case.key, names[0]) in known):
        mine = [known.get((case.key, name)) for name in names]
        lines.append([case.title, *("" if value is None else f"{value:.2f} s" for value in mine)])
    row = rows[0]
    size = f"{row['clouds']} x {row['points']:,} points, {row['threads']} thread(s)"
    return markdown([f"network, {size}", *names], lines)
