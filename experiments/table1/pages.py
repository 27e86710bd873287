"""From the results of Table 1 to its pages."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from experiments import common
from experiments.common import Results, markdown, mean, where
from experiments.table1.rows import PAPER, Options
from veckm.data.protocol import SETS


def save(results: Results, options: Options, name: str) -> None:
    """As JSON, in the folder of results."""
    common.save(results, options.out / f"{name}{'-quick' if options.quick else ''}.json")


def page(results: Results) -> str:
    """Where it ran and with what settings, then the table."""
    s = results["settings"]
    if s["part"] == "runtime":
        return f"{where(results)}\n\n{runtime_tables(results['rows'])}\n"
    origin = "a folder of meshes" if s["meshes"] else "procedural shapes"
    seeds = f"{s['seeds']} seed{'s' if s['seeds'] > 1 else ''}"
    how = (
        f"Clouds of {s['points']:,} points by the PCPNet protocol from {origin}. Trained on "
        f"{s['shapes']} shapes with four levels of noise: clouds turned at random, Adam at "
        f"{s['rate']:g}, {seeds}, graphs of {s['graph']:,} points for DGCNN. Tested once, "
        f"after the last step, on {s['tests']} other shape(s) in six sets, {s['evaluated']:,} "
        "points of each. Unoriented RMSE in degrees."
    )
    return f"{where(results)}\n{how}\n\n{accuracy_table(results['rows'], s['part'] == 'table')}\n"


def accuracy_table(rows: Sequence[dict[str, Any]], printed: bool) -> str:
    """Each row over its seeds, with the paper's numbers below it if asked for."""
    lines = []
    for name in dict.fromkeys(row["row"] for row in rows):
        mine = [row for row in rows if row["row"] == name]
        columns = [mean([row["rmse"][column] for row in mine]) for column in (*SETS, "mean")]
        steps = f"{mine[0]['training']['steps']:,} x {mine[0]['batch']:,}"
        minutes = statistics.fmean(row["training"]["seconds"] for row in mine) / 60
        size = f"{mine[0]['parameters'] / 1e3:,.0f}k"
        lines.append([mine[0]["title"], *columns, steps, f"{minutes:.1f} min", size])
        if printed and name in PAPER:
            numbers = [f"{value:.2f}" for value in PAPER[name]]
            lines.append(["as printed in the paper", *numbers, "", "", ""])
    return markdown(["encoder", *SETS, "mean", "steps x points", "training", "parameters"], lines)


def runtime_tables(rows: Sequence[dict[str, Any]]) -> str:
    """Two tables: against the points, and against the neighbors."""
    out = []
    for against, other in (("points", "neighbors"), ("neighbors", "points")):
        mine = [row for row in rows if row["against"] == against]
        if not mine:
            continue
        cases = list(dict.fromkeys(row[against] for row in mine))
        first = {row[against]: row for row in mine if row["title"] == "VecKM"}
        lines = []
        for title in dict.fromkeys(row["title"] for row in mine):
            found = {row[against]: row for row in mine if row["title"] == title}
            lines.append([title, *(_time(found[case], first[case]) for case in cases)])
        out += [f"Seconds for a whole cloud, {mine[0][other]:,} {other}; in brackets, times VecKM:"]
        out += ["", markdown([against, *(f"{case:,}" for case in cases)], lines), ""]
    return "\n".join(out)


def _time(row: dict[str, Any], first: dict[str, Any]) -> str:
    if not row["seconds"]:
        return f"not run (est. {row['estimate']:.0f} s)"
    mine = statistics.median(row["seconds"])
    ratio = mine / statistics.median(first["seconds"]) if first["seconds"] else float("nan")
    return f"{mine:.3g} ({ratio:.1f}x)"
