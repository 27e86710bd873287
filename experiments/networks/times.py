"""Seconds of a whole forward pass, encoder included, all networks in turns; and its memory."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from experiments.common import log, today
from experiments.networks.cases import Case
from experiments.networks.runs import Sets
from veckm.data.samples import Batch
from veckm.models import Task
from veckm.training import Precision, Recipe
from veckm.training.evaluation import predict
from veckm.training.loop import Supervised


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


def race_steps(
    cases: Sequence[Case], sets: Sets, recipe: Recipe, turns: int
) -> list[dict[str, Any]]:
    """Processor seconds of training steps in float32, and in bfloat16 where there is one."""
    rows, cpu = [], torch.device("cpu")
    native = Precision.of(replace(recipe, amp_cpu=True), cpu)
    for case in cases:
        for precision in dict.fromkeys((Precision(), native)):
            model = case.make(sets.task.name, len(sets.learn.classes), sets.learn.in_channels)  # type: ignore[arg-type]
            work = Supervised(model, sets.task, sets.learn, recipe, sets.augment, cpu, precision)
            optimizer, seconds = recipe.optimizer_of(model.train().parameters()), []
            for step in range(turns + 1):
                start = time.process_time()  # of this process alone, whatever runs beside it
                optimizer.zero_grad()
                work(0, step, lambda loss: loss.backward())
                optimizer.step()
                seconds.append(time.process_time() - start)
            name = str(precision.products).removeprefix("torch.")
            size = {"clouds": recipe.batch, **sets.about, "threads": torch.get_num_threads()}
            rows.append({"key": case.key, "precision": name, **size, "date": today()})
            rows[-1]["seconds"] = seconds[1:]  # what is set up in the first is no part of it
            log(f"{case.key}, {name}: {statistics.median(seconds[1:]):.3f} s per step")
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
