"""Four `veckm normals` at once on two cores, beside one alone on one thread.

    python -m benchmarks.together            a cloud of 50,000 points, three rounds
    python -m benchmarks.together --quick    5,000 points, one round: to see that it runs

Two cores shared by four processes are half a core for each, so at best each takes twice the time of
one alone on one thread. Both are timed in turns, as processes of their own.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from benchmarks.harness import log, metadata, seconds
from benchmarks.scan_parts.child import veckm
from veckm.data import shapes

ROOT = Path(__file__).resolve().parents[1]
#: Processes at once, the threads of each, and how many times as long as one alone each may take.
PROCESSES, THREADS, TARGET = 4, 2, 2.5


@dataclass(frozen=True)
class Options:
    """Four processes at once beside one alone."""

    quick: bool = False
    """A small cloud and one round: to see that it runs."""
    out: Path = ROOT / "benchmarks" / "results"
    """Folder for the results."""


def once(path: Path, threads: int) -> float:
    """Seconds of one process."""
    ran = veckm("normals", path, "--quiet", threads=threads)
    if ran.code:
        raise SystemExit(ran.error)
    return ran.seconds


def measure(options: Options) -> dict[str, list[float]]:
    """One alone and four together, in turns."""
    found: dict[str, list[float]] = {"alone": [], "together": []}
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(PROCESSES) as pool:
        path = Path(name, "cloud.npy")
        np.save(path, shapes.statue(5000 if options.quick else 50_000).pos.numpy())
        for _ in range(1 if options.quick else 3):
            found["alone"].append(once(path, THREADS // 2))
            found["together"] += pool.map(lambda _: once(path, THREADS), range(PROCESSES))
    return found


def main(options: Options) -> int:
    """Measure, save and print."""
    found = measure(options)
    alone = statistics.median(found["alone"])
    slowest = max(found["together"])
    ratio = slowest / alone
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"together-{time.strftime('%Y%m%d-%H%M%S')}{'-quick' if options.quick else ''}.json"
    path = options.out / name
    path.write_text(json.dumps({"meta": metadata(), **found, "ratio": ratio}, indent=1) + "\n")
    log(f"saved in {path}")
    print(
        f"alone on {THREADS // 2} thread {seconds(alone)}, the slowest of {PROCESSES} at once "
        f"{seconds(slowest)}: {ratio:.2f}x, {'PASS' if ratio <= TARGET else 'MISS'} at {TARGET}x"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
