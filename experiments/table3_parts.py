"""Table 3 of the VecKM paper, part segmentation of ShapeNetPart, at a machine's scale.

    python -m experiments.table3_parts FOLDER --budget page
    python -m experiments.table3_parts FOLDER --limit 800 --epochs 15 --points 1024
    python -m experiments.table3_parts FOLDER --part times

FOLDER holds ShapeNetPart in one of the layouts of veckm.data.shapenetpart. Runs go on where they
were when they are started again, and rows of other settings stay in the table, each with its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import tyro

from experiments.networks.cases import TABLE3
from experiments.networks.program import Options, Table, limited, main
from experiments.networks.runs import Sets
from veckm.data.shapenetpart import read_shapenetpart
from veckm.tasks.labeling import PartSegmentation


@dataclass(frozen=True)
class PartOptions(Options):
    """Options with the paper's sizes for parts."""

    batch: int = 16
    """Clouds of a step."""
    points: int = 2048
    """Points of a cloud."""


def sets(options: Options) -> Sets:
    """Trained on train and validation as the paper does, tested on test."""
    learn = limited(
        read_shapenetpart(options.data, "trainval", points=options.points, repeat=True),
        options.limit,
    )
    test = limited(
        read_shapenetpart(options.data, "test", points=options.points, repeat=True),
        options.test_limit,
    )
    task = PartSegmentation(options.points)
    return Sets(task, learn, test, task.augment(), {"points": options.points})


#: All but PointMLP.
PAIRS = tuple(case.key for case in TABLE3 if case.network != "pointmlp")

TABLE = Table(
    3,
    TABLE3,
    sets,
    ("instance mIoU", "class mIoU"),
    "ShapeNetPart with the paper's augmentation, Adam at its rate with a cosine, and batches of "
    "its size; tested once, after the last epoch. Objects, points and epochs stand in the rows.",
    budget=({"epochs": 20, "points": 1024, "rows": PAIRS},),
)

if __name__ == "__main__":
    config = (tyro.conf.FlagCreatePairsOff,)
    sys.exit(main(TABLE, tyro.cli(PartOptions, description=__doc__, config=config)))
