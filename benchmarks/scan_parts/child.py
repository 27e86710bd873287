"""`veckm` in a process of its own: its time, its peak memory, and killing it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CODE = "import sys; from veckm.cli import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True)
class Ran:
    """Outcome of a call."""

    seconds: float
    peak: int  # bytes, of the process itself
    code: int
    error: str


def veckm(*args: object, threads: int | None = None) -> Ran:
    """Run it to the end, sampling its memory."""
    start = time.perf_counter()
    process = _start(args, threads)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _resident(process.pid))
        time.sleep(0.02)
    error = process.stderr.read().decode() if process.stderr else ""
    return Ran(time.perf_counter() - start, peak, process.returncode, error)


def killed(args: Sequence[object], after: float) -> bool:
    """Run it and kill it after so many seconds; returns whether it was still running."""
    process = _start(args)
    try:
        process.wait(after)
        return False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True


def worker_killed(args: Sequence[object], after: float) -> tuple[Ran, bool]:
    """Run it on Dask and kill a worker after so many seconds; returns whether there was one."""
    start, killed = time.perf_counter(), False
    process = _start(args)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        workers = _workers(process.pid)
        if workers:
            os.kill(random.Random(after).choice(workers), signal.SIGKILL)
            killed = True
    _, error = process.communicate()
    return Ran(time.perf_counter() - start, 0, process.returncode, error.decode()), killed


def _start(args: Sequence[object], threads: int | None = None) -> subprocess.Popen[bytes]:
    limit = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, *map(str, args)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **limit},
        start_new_session=True,
    )


def _resident(pid: int) -> int:
    """Peak resident memory so far of a process and of those it started; 0 without /proc."""
    total = 0
    for one in [pid, *_children(pid)]:
        try:
            with open(f"/proc/{one}/status") as file:
                for line in file:
                    if line.startswith("VmHWM:"):
                        total += int(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def _children(pid: int) -> list[int]:
    """The processes that any of its threads started, recursively."""
    found = []
    with suppress(OSError):  # it may end meanwhile
        for thread in os.listdir(f"/proc/{pid}/task"):
            direct = Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
            for child in map(int, direct):
                found += [child, *_children(child)]
    return found


def _workers(pid: int) -> list[int]:
    """The processes of Dask workers: those that were spawned, not the tracker of resources."""
    out = []
    for child in _children(pid):
        try:
            with open(f"/proc/{child}/cmdline", "rb") as file:
                if b"spawn_main" in file.read():
                    out.append(child)
        except OSError:
            continue
    return out
