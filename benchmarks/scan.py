"""Files and scans larger than memory: time, memory, kills and broken files, in one run.

    python -m benchmarks.scan --quick            small clouds, a few minutes
    python -m benchmarks.scan                    everything; makes files of several gigabytes
    python -m benchmarks.scan --parts ply fuzz

The clouds are made by the benchmark, in a temporary folder or in --folder.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from benchmarks import tables
from benchmarks.harness import log, metadata
from benchmarks.scan_parts.measures import PARTS, Config, claims

ROOT = Path(__file__).resolve().parents[1]
Part = Literal["normals", "encode", "dask", "ply", "kills", "fuzz"]


@dataclass(frozen=True)
class Options:
    """Files and scans larger than memory: time, memory, kills and broken files, in one run."""

    quick: bool = False
    """Small clouds, few kills, few mutations: to see that it runs."""
    parts: tuple[Part, ...] = get_args(Part)
    """What to measure."""
    points: int = 10_000_000
    """Points of the large clouds."""
    folder: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where the clouds are made; a temporary folder by default."""
    out: Path = ROOT / "benchmarks" / "results"
    """Folder for the results."""


def configure(options: Options, folder: Path) -> Config:
    """Sizes; a quick run is smaller in every way."""
    if not options.quick:
        return Config(folder, options.points)
    return Config(folder, min(options.points, 100_000), 50_000, 40_000, 2, 1, 500, 20_000, 30_000)


def measure(options: Options) -> dict[str, Any]:
    """All parts, saved after each."""
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"scan-{time.strftime('%Y%m%d-%H%M%S')}" + ("-quick" if options.quick else "")
    path = options.out / f"{name}.json"
    results: dict[str, Any] = {"meta": metadata(), "quick": options.quick, "parts": {}}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        config = configure(options, Path(folder))
        for part in options.parts:
            start = time.perf_counter()
            results["parts"][part] = PARTS[part](config)
            path.write_text(json.dumps(results, indent=1) + "\n")
            log(f"{part} done in {time.perf_counter() - start:.0f} s; saved in {path}")
    return results


def page(results: dict[str, Any]) -> str:
    """When and where, the claims, and what they stand on."""
    m, parts = results["meta"], results["parts"]
    out = [
        f"Measured on {m['date']} at commit {m['commit']}: {m['cpu']}, {m['cores']} cores, "
        f"{m['threads']} threads, torch {m['torch']}, Python {m['python']}, veckm {m['veckm']}.",
        "",
        tables.claims(claims(parts)),
    ]
    if results["quick"]:
        out.insert(1, "A quick run: smaller than the targets are about.")
    if "normals" in parts or "encode" in parts:
        out += ["", _large(parts)]
    if "ply" in parts:
        lines = [
            [name, f"{sorted(times)[len(times) // 2]:.2f} s"]
            for name, times in parts["ply"]["seconds"].items()
        ]
        head = [f"binary PLY, {parts['ply']['points']:,} points", "median"]
        out += ["", tables.table(head, lines)]
    return "\n".join(out) + "\n"


def _large(parts: dict[str, Any]) -> str:
    lines = []
    for name in ("normals", "encode"):
        if name not in parts:
            continue
        r = parts[name]
        for how, points in (("memory", r["memory_points"]), ("tiles", r["points"])):
            ran, where = r[how], f"in tiles of {r['tile']:,}" if how == "tiles" else "in memory"
            pace = f"{points / ran['seconds']:,.0f}"
            peak = f"{ran['peak'] / 1e9:.2f} GB"
            lines.append([name, where, f"{points:,}", f"{ran['seconds']:,.0f} s", pace, peak])
    return tables.table(["verb", "", "points", "time", "points/s", "peak memory"], lines)


def merged(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result with each part from the last run that has it, and which part is of when."""
    parts = {name: part for run in runs for name, part in run["parts"].items()}
    last = {name: number for number, run in enumerate(runs) for name in run["parts"]}
    used = sorted(set(last.values()))
    metas = [runs[number]["meta"] for number in used]
    names = [", ".join(name for name in parts if last[name] == number) for number in used]
    dated = (f"{meta['date']} ({which})" for meta, which in zip(metas, names, strict=True))
    commits = " and ".join(meta["commit"] for meta in metas)
    meta = {**runs[-1]["meta"], "date": " and ".join(dated), "commit": commits}
    return {**runs[-1], "meta": meta, "parts": parts}


def main(options: Options) -> int:
    """Measure, save, print the page."""
    print(page(measure(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, config=(tyro.conf.FlagCreatePairsOff,))))
