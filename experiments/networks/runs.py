"""Training and testing of one row of a table: once, in a folder of its own, killed or not.

The test set is evaluated once, after the last epoch. Nothing is selected on it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from experiments.common import log, today, write
from veckm.data.augment import Augment
from veckm.data.samples import Samples
from veckm.models import PointModel, parameter_count
from veckm.training import Recipe, Task, evaluate, train
from veckm.training.checkpoint import describe
from veckm.training.log import read_log
from veckm.training.precision import Precision


@dataclass(frozen=True)
class Sets:
    """What a table trains on and tests on, with the task that reads it."""

    task: Task
    learn: Samples
    test: Samples
    augment: Augment | None
    about: dict[str, Any]  # settings that the page tells: points, objects, ...


def run(
    key: str,
    make: Callable[[], PointModel],
    sets: Sets,
    recipe: Recipe,
    folder: Path,
) -> dict[str, Any]:
    """The row of a network after its last epoch; what is finished is not done again."""
    model = make()
    home = folder / "runs" / f"{key}-seed{recipe.seed}-{_mark(model, sets, recipe)}"
    done = home / "row.json"
    if done.exists():
        row: dict[str, Any] = json.loads(done.read_text())
        return row
    train(
        model,
        sets.task,
        sets.learn,
        recipe,
        home,
        augment=sets.augment,
        note=lambda line: log(f"{key}, seed {recipe.seed}: {line}"),
    )
    lines, start = read_log(home), time.perf_counter()
    scores = evaluate(model, sets.task, sets.test, batch=recipe.batch, label=None)
    row = {
        "key": key,
        "seed": recipe.seed,
        "date": today(),
        "scores": scores,
        "epochs": recipe.epochs,
        "batch": recipe.batch,
        "rate": recipe.rate,
        "objects": len(sets.learn),
        "tested": len(sets.test),
        **sets.about,
        "parameters": parameter_count(model),
        "train_seconds": sum(line["seconds"] for line in lines),
        "threads": torch.get_num_threads(),
        **_precision(recipe),
        "curve": [round(line["loss"], 5) for line in lines],
        "test_seconds": time.perf_counter() - start,
    }
    write(done, lambda part: part.write_text(json.dumps(row, indent=1) + "\n"))
    text = ", ".join(f"{name} {100 * value:.2f} %" for name, value in scores.items())
    log(f"{key}, seed {recipe.seed}: {text}")
    return row


#: Fields that recipes have got since: at these values earlier runs are still found.
LATER = {"momentum": 0.9, "amp_cpu": False}


def _precision(recipe: Recipe) -> dict[str, str]:
    """The precision of the products, where it is not float32."""
    products = Precision.of(recipe, torch.device("cpu")).products
    return {} if products == torch.float32 else {"precision": str(products).removeprefix("torch.")}


def _mark(model: PointModel, sets: Sets, recipe: Recipe) -> str:
    """Other settings or data have another folder."""
    settings = {
        "model": describe(model),
        "task": describe(sets.task),
        "learn": sets.learn.checksum,
        "test": sets.test.checksum,
        "augment": None if sets.augment is None else asdict(sets.augment),
        "recipe": {k: v for k, v in asdict(recipe).items() if LATER.get(k) != v},
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[
        :10
    ]
