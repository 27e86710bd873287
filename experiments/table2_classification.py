"""Table 2 of the VecKM paper, classification of ModelNet40, at a machine's scale.

    python -m experiments.table2_classification FOLDER --budget page
    python -m experiments.table2_classification FOLDER --rows pointnet veckm-pointnet
    python -m experiments.table2_classification FOLDER --classes modelnet10 --epochs 25
    python -m experiments.table2_classification FOLDER --limit 2000 --epochs 20 --seeds 0 1 2
    python -m experiments.table2_classification FOLDER --smoothing 0.2 --drop 0.875
    python -m experiments.table2_classification FOLDER --part times

FOLDER holds ModelNet40 in one of the layouts of veckm.data.modelnet. Runs go on where they were
when they are started again, and rows of other settings stay in the table, each with its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Literal

import tyro

from experiments.networks.cases import TABLE2
from experiments.networks.program import Options, Table, limited, main
from experiments.networks.runs import Sets
from veckm.data.modelnet import Split, read_modelnet
from veckm.tasks.labeling import Classification


@dataclass(frozen=True)
class ObjectOptions(Options):
    """And the classes, and what the authors' program does beyond the paper's text."""

    classes: Literal["modelnet40", "modelnet10"] = "modelnet40"
    """All classes, or the ten of ModelNet10."""
    smoothing: float = 0.0
    """Of the labels; the authors' program has 0.2."""
    drop: float = 0.0
    """Share of the points that are dropped at most; the authors' program has 0.875."""


SPLITS: tuple[Split, ...] = ("train", "test")
TEN_CLASSES = "the ten classes of ModelNet10"


def sets(options: ObjectOptions) -> Sets:
    """The official split, or a part of it."""
    ten = options.classes == "modelnet10"
    learn, test = (
        read_modelnet(options.data, split, points=options.points, classes=10 if ten else 40)
        for split in SPLITS
    )
    learn, test = limited(learn, options.limit), limited(test, options.test_limit)
    task = Classification(len(learn.classes), options.points, options.smoothing)
    about = {"points": options.points, "smoothing": options.smoothing, "drop": options.drop}
    about |= {"set": TEN_CLASSES} if ten else {}
    return Sets(task, learn, test, replace(task.augment(), drop=options.drop), about)


def _pair(network: str) -> tuple[str, str]:
    return network, f"veckm-{network}"


TABLE = Table(
    2,
    TABLE2,
    sets,
    ("instance accuracy", "class accuracy"),
    "ModelNet40 with the paper's split, augmentation, Adam at its rate with a cosine, and batches "
    "of its size; tested once, after the last epoch. Objects, points and epochs stand in the rows.",
    budget=(
        {"classes": "modelnet10", "rows": _pair("pointnet"), "epochs": 25, "seeds": (0, 1, 2)},
        {"rows": _pair("pointnet"), "epochs": 40},
        {"classes": "modelnet10", "rows": _pair("pointnet2"), "epochs": 25, "seeds": (0, 1)},
        {"classes": "modelnet10", "rows": _pair("pct"), "epochs": 25, "seeds": (0, 1)},
        # About an hour: a step is half a minute to two minutes of one core.
        {"classes": "modelnet10", "rows": ("pointmlp",), "epochs": 1, "limit": 1600},
    ),
)

if __name__ == "__main__":
    config = (tyro.conf.FlagCreatePairsOff,)
    sys.exit(main(TABLE, tyro.cli(ObjectOptions, description=__doc__, config=config)))
