"""Which classes the networks of Table 2 take for each other, from their finished runs.

    python -m experiments.networks.confusions FOLDER --runs RESULTS/runs/pointnet-seed2-* ...

FOLDER is that of Table 2, and RESULTS its --out. It tells what a network could still win: objects
of two classes whose difference is their size look alike in the unit ball.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro

from experiments import common
from experiments.networks.cases import TABLE2
from veckm.data.modelnet import read_modelnet
from veckm.data.samples import Samples, collate
from veckm.models import PointModel
from veckm.tasks.labeling import Classification
from veckm.training import load_model
from veckm.training.evaluation import predict

NAME = "confusions"
_SHOWN = 2  # pairs of classes in a table


@dataclass(frozen=True)
class Options:
    """Which classes the networks of Table 2 take for each other."""

    data: tyro.conf.Positional[Path]
    """Folder with ModelNet40."""
    runs: tuple[Path, ...]
    """Folders of finished runs, in the --out of Table 2."""
    classes: Literal["modelnet40", "modelnet10"] = "modelnet10"
    """What they were trained on."""
    points: int = 1024
    """Points of an object."""
    out: Path = Path("experiments/results")
    """Folder for the results."""


def tally_of(model: PointModel, test: Samples, points: int, batch: int = 32) -> torch.Tensor:
    """How often each true class (row) was predicted as each (column)."""
    task = Classification(len(test.classes), points)
    total = torch.zeros(len(test.classes), len(test.classes), dtype=torch.int64)
    with torch.no_grad():
        for some in torch.arange(len(test)).split(batch):
            joint = collate([test.draw(int(i)) for i in some])
            total += task.tally(predict(model.eval(), joint)[0], joint)
    return total


def confused(tally: torch.Tensor, classes: Sequence[str]) -> list[tuple[str, str, int]]:
    """Pairs of classes with the number of objects of one taken for the other, most first."""
    both = (tally + tally.T).triu(1)
    found = [(classes[i], classes[j], int(both[i, j])) for i, j in both.nonzero().tolist()]
    return sorted(found, key=lambda pair: -pair[2])


def page(results: common.Results) -> str:
    """A row a run: what it got wrong, and how much of that is between two classes."""
    title = {case.key: case.title for case in TABLE2}
    names = [pair[:2] for pair in results["rows"][0]["pairs"][:_SHOWN]]
    lines = []
    for row in results["rows"]:
        count = {tuple(pair[:2]): pair[2] for pair in row["pairs"]}
        shown = [count.get(tuple(name), 0) for name in names]
        wrong = sum(count.values())
        numbers = [f"{wrong} of {row['tested']}", *map(str, shown), str(wrong - sum(shown))]
        lines.append([title[row["key"]], str(row["seed"]), *numbers])
    pairs = [" and ".join(name).replace("_", " ") for name in names]
    return common.markdown(["network", "seed", "wrong", *pairs, "others"], lines) + "\n"


def main(options: Options) -> None:
    """Run the networks on the test set, write the JSON."""
    count = 10 if options.classes == "modelnet10" else 40
    test = read_modelnet(options.data, "test", points=options.points, classes=count)
    results = common.header({"classes": options.classes, "points": options.points})
    for run in options.runs:
        row = json.loads((run / "row.json").read_text())
        pairs = confused(tally_of(load_model(run), test, options.points), test.classes)
        about = {"key": row["key"], "seed": row["seed"], "scores": row["scores"]}
        results["rows"].append(about | {"tested": len(test), "pairs": pairs})
    common.save(results, options.out / f"{NAME}.json")
    print(page(results))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
