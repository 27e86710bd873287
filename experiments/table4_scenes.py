"""Table 4 of the VecKM paper, segmentation of scenes, at a machine's scale.

    python -m experiments.table4_scenes FOLDER --test-area 5
    python -m experiments.table4_scenes FOLDER --budget page
    python -m experiments.table4_scenes FOLDER --scale 0.1 --classes ground tree
    python -m experiments.table4_scenes FOLDER --part times --sizes 10000 100000

FOLDER holds S3DIS, or other scenes in areas, in one of the layouts of veckm.data.s3dis. Networks
are trained on blocks of one meter, and timed on whole scenes. Runs go on where they were when they
are started again, and rows of other settings stay in the table, each with its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import tyro

from experiments.networks.cases import TABLE4, Case
from experiments.networks.program import Options, Table, limited, main
from experiments.networks.runs import Sets
from experiments.networks.times import peak_gigabytes, race
from veckm.data.s3dis import CLASSES, Blocks, Scenes, read_s3dis
from veckm.data.samples import Batch
from veckm.tasks.labeling import SemanticSegmentation


@dataclass(frozen=True)
class SceneOptions(Options):
    """Options for scenes."""

    batch: int = 8
    """Blocks of a step."""
    points: int = 2048
    """Points of a block."""
    test_area: int = 5
    """The area that is tested on."""
    classes: tuple[str, ...] = CLASSES
    """Names of the labels, in their order."""
    scale: float = 1.0
    """All coordinates times this: networks expect rooms in meters."""
    sizes: tuple[int, ...] = (10_000, 30_000, 100_000)
    """Points of the scenes that are timed."""
    turns: int = 3
    """Forward passes of each network that are timed."""


def sets(options: SceneOptions) -> Sets:
    """All areas but one, and that one."""
    where = {"test_area": options.test_area, "classes": options.classes, "scale": options.scale}
    learn, test = (read_s3dis(options.data, split, **where) for split in ("train", "test"))  # type: ignore[arg-type]
    task = SemanticSegmentation(len(options.classes), options.points)
    return Sets(
        task,
        limited(Blocks(learn, points=options.points, stride=0.5), options.limit),
        limited(Blocks(test, points=options.points, every=True), options.test_limit),
        task.augment(),
        {"points": options.points},
    )


def scene(options: SceneOptions, points: int) -> Batch:
    """The largest scene of the test area, thinned at random to so many points."""
    rooms = read_s3dis(
        options.data,
        "test",
        test_area=options.test_area,
        classes=options.classes,
        scale=options.scale,
    )
    whole = max(Scenes(rooms), key=lambda s: len(s.pos))
    if len(whole.pos) < points:
        raise ValueError(
            f"{whole.name}: the largest scene of area {options.test_area} has {len(whole.pos):,} "
            f"points, fewer than the {points:,} to be timed; give other --sizes"
        )
    rows = torch.randperm(len(whole.pos), generator=torch.Generator().manual_seed(0))[:points]
    assert whole.features is not None
    pos, rgb = whole.pos[rows], whole.features[rows]
    # Blocks have where a point is in its room beside its color: the same six features here.
    low, high = pos.amin(0), pos.amax(0)
    features = torch.cat((rgb, (pos - low) / (high - low)), 1)
    return Batch(pos[None], whole.label[rows][None], features[None])


def times(cases: Sequence[Case], options: Options) -> list[dict[str, object]]:
    """Whole scenes of growing size, and the memory of a process that segments one."""
    assert isinstance(options, SceneOptions)
    rows, classes = [], len(options.classes)
    for points in options.sizes:
        batch = scene(options, points)
        for row in race(cases, "semantic-segmentation", classes, batch, options.turns):
            case = next(case for case in cases if case.key == row["key"])
            make = partial(scene, replace(options, rows=()), points)
            _, peak = peak_gigabytes(case, "semantic-segmentation", classes, make)
            rows.append({**row, "peak": peak})
    return rows


TABLE = Table(
    4,
    TABLE4,
    sets,  # type: ignore[arg-type]
    ("mIoU", "class accuracy", "overall accuracy"),
    "Scenes in areas, one area held out; blocks of one meter, Adam with a cosine; tested once on "
    "every point of that area, after the last epoch. The paper's numbers are of S3DIS, Area 5, on "
    "whole scenes, trained as Point Transformer is.",
    times,
    # Five scans of parks and forests in three areas, in meters.
    budget=(
        {
            "epochs": 20,
            "seeds": (0, 1, 2),
            "test_area": 3,
            "scale": 0.1,
            "classes": ("ground", "tree", "clutter"),
        },
    ),
)

if __name__ == "__main__":
    config = (tyro.conf.FlagCreatePairsOff,)
    sys.exit(main(TABLE, tyro.cli(SceneOptions, description=__doc__, config=config)))
