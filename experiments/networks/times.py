"""Seconds of a whole forward pass, encoder included, all networks in turns; and its memory."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.common import log, today
from experiments.networks.cases import Case
from veckm.data.samples import Batch
from veckm.models import Task
from veckm.training.evaluation import predict


def race(
    cases: Sequence[Case],
    task: Task,
    classes: int,
    batch: Batch,
    turns: int,
) -> list[dict[str, Any]]:
    """Seconds of each network for the batch, as medians over turns; weights at random."""
    channels = 0 if batch.features is None else batch.features.shape[-1]
    models = {case.key: case.make(task, classes, channels).eval() for case in cases}
    times: dict[str, list[float]] = {key: [] for key in models}
    with torch.inference_mode():
        for model in models.values():
            predict(model, batch)  # what is set up once is no part of it
        for _ in range(turns):
            for key, model in models.items():
                start = time.perf_counter()
                predict(model, batch)
                times[key].append(time.perf_counter() - start)
    clouds, points = batch.pos.shape[:2]
    size = {"clouds": clouds, "points": points, "date": today()}
    rows = [{"key": key, **size, "seconds": seconds} for key, seconds in times.items()]
    text = ", ".join(f"{row['key']} {statistics.median(row['seconds']):.3f} s" for row in rows)
    log(f"{clouds} x {points:,} points: {text}")
    return rows


def peak_gigabytes(
    case: Case, task: Task, classes: int, make_batch: Callable[[], Batch]
) -> tuple[float, float]:
    """Memory of a process before and at the most during one forward pass; in a process apart.

    ``make_batch`` is pickled: a partial of a function of a module.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (case, task, classes, make_batch))


def _measure(
    case: Case, task: Task, classes: int, make_batch: Callable[[], Batch]
) -> tuple[float, float]:
    batch = make_batch()
    channels = 0 if batch.features is None else batch.features.shape[-1]
    model = case.make(task, classes, channels).eval()
    before = _peak()
    with torch.inference_mode():
        predict(model, batch)
    return before, _peak()


def _peak() -> float:
    try:  # ru_maxrss is handed down by the process that started this one
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
