"""Public calls on a busy machine: alone, beside a spinning process, and beside another torch.

    python -m benchmarks.busy                        everything, about ten minutes
    python -m benchmarks.busy --quick                smaller clouds, one call each
    python -m benchmarks.busy --calls normals pca    only the calls whose names contain one of these

The other processes are started and ended here. They are paused while a call is timed alone, so that
quiet and busy calls take turns within one run. Needs an operating system with SIGSTOP.
"""

from __future__ import annotations

import gc
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import tyro
from experiments.jets import jet_normals

import veckm
from benchmarks import tables
from benchmarks.harness import log, metadata, seconds
from veckm.components import principal_components
from veckm.data import shapes
from veckm.models.clouds import Clouds
from veckm.tasks.normals import estimate
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.orient import orient

ROOT = Path(__file__).resolve().parents[1]
#: A busy call may take this many times as long as a quiet one.
TARGET = 3.0
#: Calls that take longer than this are not repeated.
LONG = 10.0
#: Seconds that another process runs before a call beside it is timed.
SETTLE = 0.2

_READY = "print('ready', flush=True)\n"
#: The other processes: what a user's machine does beside our calls.
OTHERS = {
    "spinning": _READY + "while True: pass",
    "torch": (
        "import torch\ntorch.set_num_threads(2)\n"
        "a, b = torch.rand(800, 800), torch.rand(800, 800)\na @ b\n"
        f"{_READY}while True: a @ b"
    ),
}


@dataclass(frozen=True)
class Options:
    """Public calls alone, beside a spinning process, and beside another torch."""

    quick: bool = False
    """Small clouds and one call each: to see that it runs."""
    calls: tuple[str, ...] = ()
    """Only calls whose names contain one of these."""
    repeats: int = 5
    """Calls of each kind."""
    out: Path = ROOT / "benchmarks" / "results"
    """Folder for the results."""


@dataclass(frozen=True)
class Row:
    """One call with all its raw times, in seconds."""

    call: str
    seconds: dict[str, list[float]] = field(default_factory=dict)  # by process beside it

    def median(self, beside: str) -> float:
        """Of the calls beside one of the processes."""
        return statistics.median(self.seconds[beside])

    def ratio(self, beside: str) -> float:
        """Times the quiet call."""
        return self.median(beside) / self.median("alone")


@contextmanager
def other_process(program: str) -> Iterator[subprocess.Popen[str]]:
    """A paused process that is busy whenever it is not; it ends with the block."""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        if not child.stdout.readline():
            raise SystemExit("the other process did not start")
        child.send_signal(signal.SIGSTOP)
        yield child
    finally:
        child.kill()
        child.wait()


@contextmanager
def running(child: subprocess.Popen[str] | None) -> Iterator[None]:
    """The process goes on inside the block; None is a quiet machine."""
    if child is None:
        time.sleep(SETTLE)
        yield
        return
    child.send_signal(signal.SIGCONT)
    try:
        time.sleep(SETTLE)
        yield
    finally:
        child.send_signal(signal.SIGSTOP)


def timed(call: Callable[[], Any], beside: subprocess.Popen[str] | None) -> float:
    """Seconds of one call."""
    gc.collect()
    with running(beside):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start


def compare(
    name: str,
    call: Callable[[], Any],
    others: dict[str, subprocess.Popen[str] | None],
    repeats: int,
) -> Row:
    """The same call alone and beside each of the others, in turns."""
    row = Row(name, {beside: [] for beside in others})
    call()
    for _ in range(repeats):
        for beside, child in others.items():
            mine = row.seconds[beside]
            if not mine or max(mine) < LONG:
                mine.append(timed(call, child))
    return row


def calls(quick: bool) -> dict[str, Callable[[], Any]]:
    """Every public call that takes a while, on clouds made by formula."""
    n, large, clouds = (3000, 5000, 4) if quick else (33_000, 100_000, 32)
    some, many = shapes.statue(n), shapes.statue(large).pos
    pos, normal = some.pos, some.normal
    batch = torch.stack([shapes.statue(1024, seed=k).pos for k in range(clouds)])
    one, two = veckm.VecKM(alpha=60, beta=10), veckm.VecKM(alpha=30, beta=6)
    encoded = one(pos)
    points, few = Clouds.of(batch), Clouds.of(batch[:, ::4])
    features = few.pos.repeat(1, 32)
    return {
        f"VecKM, {large:,} points": lambda: one(many),
        f"VecKM, {clouds} x 1,024 points": lambda: two(batch),
        f"VecKM with gradient, {clouds} x 1,024": lambda: _gradient(two, batch),
        f"moments, {large:,}": lambda: veckm.moments(many, radius=0.1),
        f"suggest_radius, {large:,}": lambda: veckm.suggest_radius(many),
        f"estimate_normals, {n:,}": lambda: veckm.estimate_normals(pos),
        f"estimate_normals, consistent, {n:,}": lambda: veckm.estimate_normals(
            pos, orient="consistent"
        ),
        f"estimate with curvature, {n:,}": lambda: estimate(pos, curvature=True),
        f"estimate, untrained, {n:,}": lambda: estimate(pos, method="moments"),
        f"estimate_normals, {clouds} x 1,024": lambda: veckm.estimate_normals(batch),
        f"orient, {n:,}": lambda: orient(pos, normal),
        f"pca_normals, {n:,}": lambda: pca_normals(pos, 32),
        f"jet_normals, {n:,}": lambda: jet_normals(pos, 32),
        f"principal_components, {n:,}": lambda: principal_components([encoded], 3),
        f"Clouds.sample, {clouds} x 1,024": lambda: points.sample(lambda n: n // 4),
        f"Clouds.knn, {clouds} x 1,024": lambda: points.knn(16),
        f"Clouds.ball, {clouds} x 1,024": lambda: points.ball(0.2, 32, few),
        f"Clouds.interpolate, {clouds} x 1,024": lambda: few.interpolate(features, points),
    }


def _gradient(encoder: veckm.VecKM, pos: torch.Tensor) -> None:
    leaf = pos.clone().requires_grad_()
    encoder(leaf).abs().sum().backward()


def measure(options: Options) -> dict[str, Any]:
    """All calls, saved after each."""
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"busy-{time.strftime('%Y%m%d-%H%M%S')}" + ("-quick" if options.quick else "")
    path = options.out / f"{name}.json"
    results: dict[str, Any] = {"meta": metadata(), "quick": options.quick, "rows": []}
    wanted = {
        name: call
        for name, call in calls(options.quick).items()
        if not options.calls or any(part in name for part in options.calls)
    }
    with ExitStack() as stack:
        others: dict[str, subprocess.Popen[str] | None] = {"alone": None}
        for beside, program in OTHERS.items():
            others[beside] = stack.enter_context(other_process(program))
        for name, call in wanted.items():
            row = compare(name, call, others, 1 if options.quick else options.repeats)
            results["rows"].append(asdict(row))
            path.write_text(json.dumps(results, indent=1) + "\n")
            log(f"{name}: " + ", ".join(f"{b} {seconds(row.median(b))}" for b in others))
    log(f"saved in {path}")
    return results


def table(rows: Sequence[Row]) -> str:
    """Medians and ratios; calls that are too slow on a busy machine say MISS."""
    lines = []
    for row in rows:
        line = [row.call, seconds(row.median("alone"))]
        for beside in OTHERS:
            line += [seconds(row.median(beside)), f"{row.ratio(beside):.2f}x"]
        holds = all(row.ratio(beside) <= TARGET for beside in OTHERS)
        lines.append([*line, "PASS" if holds else "**MISS**"])
    header = ["call", "alone", *(text for beside in OTHERS for text in (f"beside {beside}", ""))]
    return tables.table([*header, f"at most {TARGET:g}x"], lines)


def main(options: Options) -> int:
    """Measure and print."""
    results = measure(options)
    m = results["meta"]
    print(
        f"{m['date']}, commit {m['commit']}, {m['cpu']}, {m['cores']} cores, torch {m['torch']}\n"
    )
    print(table([Row(**row) for row in results["rows"]]))
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
