"""What every benchmark shares: rows of results, interleaved timing, metadata, one JSON file."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import veckm

Result = Any  # what a contender returns; only `keep` looks into it


@dataclass(frozen=True)
class Row:
    """One method on one case, with all its raw times."""

    part: str
    cloud: str
    n: int  # points, of all clouds together
    dim: int
    alpha: float
    beta: float
    method: str  # an engine, "auto", "floor", "paper"
    setting: str = ""  # for example "eps = 0.01"
    seconds: list[float] = field(default_factory=list)  # empty if it was not run
    estimate: float | None = None  # seconds that the engine expected
    mean_error: float | None = None
    max_error: float | None = None
    took: str | None = None  # the engine that auto chose
    memory: int | None = None  # peak bytes beyond inputs and output
    output: int | None = None  # bytes of the output
    operations: int | None = None  # that torch dispatched, where they were counted
    kernels: int | None = None  # of them those that are neither views nor fresh memory
    waits: int | None = None  # for the device
    note: str = ""

    @property
    def median(self) -> float:
        """Seconds; infinite if it was not run."""
        return statistics.median(self.seconds) if self.seconds else float("inf")

    @property
    def spread(self) -> float:
        """Interquartile range in seconds."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return high - low

    @property
    def case(self) -> tuple[str, int, float]:
        """What rows are compared within."""
        return self.cloud, self.n, self.beta


@dataclass(frozen=True)
class Contender:
    """Something to time against others."""

    name: str
    run: Callable[[], Result]
    repeats: int
    warm: Callable[[], Result] | None = None  # a smaller call, where a whole one takes too long
    keep: Callable[[Result], Any] | None = None  # what to take out of the last result


@dataclass
class Timed:
    """What a race found out about one contender."""

    seconds: list[float] = field(default_factory=list)
    kept: Any = None
    failure: str = ""


def race(contenders: Sequence[Contender]) -> dict[str, Timed]:
    """Time all contenders in turns, A B C A B C ..., so that noise hits all alike.

    Each is warmed up first. One that refuses (ValueError) is left out with its reason.
    """
    timed = {c.name: Timed() for c in contenders}
    for c in contenders:
        _attempt(timed[c.name], c.warm or c.run)
    for turn in range(max((c.repeats for c in contenders), default=0)):
        for c in contenders:
            mine = timed[c.name]
            if turn >= c.repeats or mine.failure:
                continue
            gc.collect()
            start = time.perf_counter()
            result = _attempt(mine, c.run)
            seconds = time.perf_counter() - start
            if not mine.failure:
                mine.seconds.append(seconds)
                if turn == c.repeats - 1 and c.keep is not None:
                    mine.kept = c.keep(result)
            del result
    return timed


def _attempt(mine: Timed, run: Callable[[], Result]) -> Result:
    try:
        return run()
    except (ValueError, RuntimeError, MemoryError) as error:
        mine.failure = " ".join(str(error).split()) or type(error).__name__
        return None


def repeats(estimate: float, quick: bool) -> int:
    """More for what is short and noisy."""
    if estimate > 10:
        return 1
    if quick:
        return 3 if estimate < 1 else 1
    return 15 if estimate < 0.1 else 7 if estimate < 1 else 5 if estimate < 3 else 3


def log(text: str) -> None:
    """A line for who is waiting."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def seconds(value: float) -> str:
    """A time as text."""
    if value == float("inf"):
        return "-"
    if value < 0.1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s"


def count(n: int) -> str:
    """A number of points as text."""
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if n >= size and n % (size // 10) == 0:
            return f"{n / size:g}{unit}"
    return str(n)


@dataclass
class Results:
    """Everything that one run measured."""

    meta: dict[str, Any]
    options: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    def of(self, part: str) -> list[Row]:
        """The rows of one part."""
        return [row for row in self.rows if row.part == part]

    def save(self, path: Path) -> None:
        """As JSON, whole or not at all."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1) + "\n")
        os.replace(part, path)

    @classmethod
    def load(cls, path: Path) -> Results:
        """From JSON."""
        data = json.loads(path.read_text())
        return cls(data["meta"], data["options"], [Row(**row) for row in data["rows"]])

    @classmethod
    def merged(cls, runs: Sequence[Results]) -> Results:
        """One result with each case from the last run that has it."""
        last = {(row.part, row.case): k for k, run in enumerate(runs) for row in run.rows}
        rows = [
            row for k, run in enumerate(runs) for row in run.rows if last[row.part, row.case] == k
        ]
        meta = dict(runs[-1].meta)
        for key in ("date", "commit"):  # the page must not say that all came from one of them
            meta[key] = " and ".join(dict.fromkeys(str(run.meta[key]) for run in runs))
        return cls(meta, runs[-1].options, rows)


def metadata() -> dict[str, Any]:
    """Where and with what this was measured."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "veckm": veckm.__version__,
        "commit": _commit(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    def git(*args: str) -> str:
        root = Path(__file__).parent
        done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    return commit + (" with changes" if git("status", "--porcelain", "--", "../src") else "")


def groups(rows: Sequence[Row]) -> Iterator[tuple[tuple[str, int, float], dict[str, Row]]]:
    """The rows of each case, by method, in the order they were measured."""
    cases: dict[tuple[str, int, float], dict[str, Row]] = {}
    for row in rows:
        cases.setdefault(row.case, {})[row.method] = row
    yield from cases.items()
