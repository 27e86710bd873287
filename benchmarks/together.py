"""`veckm normals` as users run it: four at once on two cores, and what its defaults add.

    python -m benchmarks.together                  a cloud of 50,000 points, three rounds
    python -m benchmarks.together --cloud FILE     also its defaults on this file
    python -m benchmarks.together --quick          5,000 points, one round: to see that it runs

Two cores shared by four processes are half a core for each, so at best each takes twice the time of
one alone on one thread. All are timed in turns, as processes of their own; four on one thread each
show what the machine itself makes of four processes, where cores share caches or are half cores.

The defaults are orientation and curvature; beside them stand the normals alone (`--orient none
--no-curvature`), both by the seconds of computing that `--json` reports.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.harness import log, metadata
from benchmarks.scan_parts.child import veckm
from benchmarks.scan_parts.pages import together_page
from veckm.data import shapes

ROOT = Path(__file__).resolve().parents[1]
#: Processes at once, the threads of each.
PROCESSES, THREADS = 4, 2


@dataclass(frozen=True)
class Options:
    """Four processes at once beside one alone."""

    quick: bool = False
    """A small cloud and one round: to see that it runs."""
    cloud: Path | None = None
    """A cloud to time the defaults of `veckm normals` on."""
    rounds: int = 3
    """How often each is run."""
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
    found: dict[str, list[float]] = {"alone": [], "together": [], "one thread each": []}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(PROCESSES) as pool:
        path = Path(folder, "cloud.npy")
        np.save(path, shapes.statue(5000 if options.quick else 50_000).pos.numpy())
        for _ in range(1 if options.quick else options.rounds):
            found["alone"].append(once(path, THREADS // 2))
            for name, threads in (("together", THREADS), ("one thread each", 1)):
                found[name] += pool.map(lambda _, k=threads: once(path, k), range(PROCESSES))
    return found


def slowest_of(times: list[float]) -> list[float]:
    """The slowest process of every round."""
    return [max(times[k : k + PROCESSES]) for k in range(0, len(times), PROCESSES)]


def computing(path: Path, *options: str) -> float:
    """Seconds that `veckm normals` reports, without reading and writing."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["normals", str(path), "-o", f"{folder}/out.ply", "--json", *options]
        run = "import sys; from veckm.cli import main; sys.exit(main(sys.argv[1:]))"
        shown = subprocess.run(
            [sys.executable, "-c", run, *command], capture_output=True, text=True
        )
    if shown.returncode:
        raise SystemExit(shown.stderr)
    return float(json.loads(shown.stdout)["seconds"])


def measure_defaults(path: Path, rounds: int) -> dict[str, Any]:
    """The defaults beside the normals alone, in turns; the ratio of their medians."""
    alone, defaults = [], []
    for _ in range(rounds):
        alone.append(computing(path, "--orient", "none", "--no-curvature"))
        defaults.append(computing(path))
    ratio = statistics.median(defaults) / statistics.median(alone)
    return {"cloud": path.name, "alone": alone, "defaults": defaults, "ratio": ratio}


def main(options: Options) -> int:
    """Measure, save and print."""
    found: dict[str, Any] = {**measure(options)}
    alone = statistics.median(found["alone"])
    slowest = statistics.median(slowest_of(found["together"]))
    control = statistics.median(slowest_of(found["one thread each"])) / alone
    ratio = slowest / alone
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"together-{time.strftime('%Y%m%d-%H%M%S')}{'-quick' if options.quick else ''}.json"
    path = options.out / name
    found |= {"meta": metadata(), "ratio": ratio, "control": control}
    if options.cloud is not None:
        found["defaults"] = measure_defaults(options.cloud, options.rounds)
    path.write_text(json.dumps(found, indent=1) + "\n")
    log(f"saved in {path}")
    print(together_page(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
