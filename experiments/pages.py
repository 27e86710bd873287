"""From results to files: one JSON with everything, one Markdown page with the table."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rows import PAPER, Options

import veckm
from veckm.data.protocol import SETS

Results = dict[str, Any]


def header(options: Options) -> Results:
    """Where and with what a run was made, and no rows yet."""
    settings = asdict(options)
    return {
        "settings": {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()},
        "meta": {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "veckm": veckm.__version__,
        },
        "rows": [],
    }


def save(results: Results, options: Options, name: str) -> None:
    """As JSON and as Markdown, in the folder of results."""
    path = options.out / f"{name}{'-quick' if options.quick else ''}.json"
    write(path, lambda part: part.write_text(json.dumps(results, indent=1) + "\n"))
    write(path.with_suffix(".md"), lambda part: part.write_text(page(results)))


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """Beside it first, then renamed: a kill leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    fill(part)
    part.replace(path)


def log(text: str) -> None:
    """A line for who is waiting."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def page(results: Results) -> str:
    """Where it ran and with what settings, then the table."""
    s, m = results["settings"], results["meta"]
    where = (
        f"{m['date'][:10]}, {m['machine']}, {m['cores']} cores, {m['threads']} threads, "
        f"torch {m['torch']}, veckm {m['veckm']}."
    )
    if s["part"] == "runtime":
        return f"{where}\n\n{runtime_tables(results['rows'])}\n"
    how = (
        f"Clouds of {s['points']:,} points by the PCPNet protocol from "
        f"{s['meshes'] or 'procedural shapes'}. Trained on {s['shapes']} shapes with four levels "
        f"of noise: {s['visits']} visits to a turned cloud, Adam at {s['rate']:g}, {s['seeds']} "
        f"seed{'s' if s['seeds'] > 1 else ''}, graphs of {s['graph']:,} points for DGCNN. Tested "
        f"once, after the last step, on {s['tests']} other shape(s) in six sets, "
        f"{s['evaluated']:,} points of each. Unoriented RMSE in degrees."
    )
    return f"{where}\n{how}\n\n{accuracy_table(results['rows'])}\n"


def accuracy_table(rows: Sequence[dict[str, Any]]) -> str:
    """Each row over its seeds, with the paper's numbers below it."""
    lines = []
    for name in dict.fromkeys(row["row"] for row in rows):
        mine = [row for row in rows if row["row"] == name]
        columns = [_mean([row["rmse"][column] for row in mine]) for column in (*SETS, "mean")]
        steps = f"{mine[0]['training']['steps']:,} x {mine[0]['batch']:,}"
        minutes = statistics.fmean(row["training"]["seconds"] for row in mine) / 60
        size = f"{mine[0]['parameters'] / 1e3:,.0f}k"
        lines.append([mine[0]["title"], *columns, steps, f"{minutes:.1f} min", size])
        if name in PAPER:
            numbers = [f"{value:.2f}" for value in PAPER[name]]
            lines.append(["as printed in the paper", *numbers, "", "", ""])
    return markdown(["encoder", *SETS, "mean", "steps x points", "training", "parameters"], lines)


def _mean(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def runtime_tables(rows: Sequence[dict[str, Any]]) -> str:
    """Two tables: against the points, and against the neighbours."""
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


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))
