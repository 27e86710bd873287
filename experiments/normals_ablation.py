"""What the normal network gains from its parts: planes only, encodings only, both.

    python -m experiments.normals_ablation --train meshes/train --val meshes/val

The same network, clouds, steps and seeds; what a row lacks is blanked in its input. Without
encodings they are zero. Without planes every neighbor is the point itself, and the normals of all
levels are that of the wider window's encoding. Fewer and smaller clouds than those of the shipped
network, and fewer steps.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tyro
from torch import Tensor

from experiments import common
from experiments.evaluation import (
    Estimator,
    Score,
    Scores,
    best_of,
    classical,
    in_all_sets,
    score,
)
from veckm.data.meshes import load_meshes
from veckm.tasks.normals.encodings import peaks
from veckm.tasks.normals.examples import CloudCounts, clouds
from veckm.tasks.normals.network import NormalNet
from veckm.tasks.normals.pyramid import (
    HEIGHT,
    LEVELS,
    NEIGHBORS,
    NORMAL,
    POSITION,
    ROUGHNESS,
    Pyramid,
    make_pyramid,
)
from veckm.tasks.normals.train import Budget, Example, train

NAME = "normals_ablation"
PARTS = ("planes only", "encodings only", "both")


@dataclass(frozen=True)
class Options:
    """What the normal network gains from its parts: planes only, encodings only, both."""

    train: Path
    """Folder with meshes to learn from."""
    val: Path
    """Folder with meshes to compare on."""
    steps: int = 2000
    """Steps of every stage."""
    points: int = 30_000
    """Points of a cloud to compare on."""
    every: int = 1
    """Compare on every so many of the meshes only."""
    quick: bool = False
    """Few small clouds and steps, to see that it runs."""
    out: Path = Path("experiments/results")
    """Folder for the results."""


def masked(pyramid: Pyramid, part: str) -> Pyramid:
    """The input of a row: without what it is not made of."""
    if part == "planes only":
        return replace(pyramid, encoding=torch.zeros(()).expand_as(pyramid.encoding).half())
    if part == "both":
        return pyramid
    table = pyramid.table.clone()
    for some in (slice(i, i + 4096) for i in range(0, len(table), 4096)):
        table[some, :, NORMAL] = peaks(pyramid.encoding[some].float())[0][:, -1].t()[:, None]
    table[..., ROUGHNESS] = table[..., HEIGHT] = 0
    table[..., POSITION] = table[:, :1, POSITION]
    own = torch.arange(len(table), dtype=torch.int32)[:, None, None]
    index = own.expand(-1, LEVELS, NEIGHBORS).contiguous()
    one = torch.ones_like(pyramid.radius)
    return Pyramid(index, one, table, one, pyramid.encoding)


def trained(
    part: str, examples: Sequence[tuple[Pyramid, Tensor, Tensor]], options: Options
) -> NormalNet:
    """The network of a row."""
    net = NormalNet()
    budget = Budget(steps=options.steps)
    own = [Example(masked(pyramid, part), *truth) for pyramid, *truth in examples]
    with tempfile.TemporaryDirectory() as folder:
        train(net, own, budget, Path(folder), lambda line: print(f"{part}: {line}", flush=True))
    return net


def main(options: Options) -> None:
    """Train the rows, compare them on the same clouds, write the JSON."""
    counts = CloudCounts(1, 16, 12, sizes=(60_000, 30_000, 12_000, 5_000))
    meshes, val = load_meshes(options.train), load_meshes(options.val)
    val = dict(list(val.items())[:: options.every])
    if options.quick:
        options = replace(options, steps=10, points=2000)
        counts, val = CloudCounts(0, 2, 0, sizes=(2000,)), dict(list(val.items())[:1])
    examples = [(make_pyramid(pos), *truth) for _, pos, *truth in clouds(meshes, counts)]
    nets = {part: trained(part, examples, options) for part in PARTS}
    pca = {name: run for name, run in classical().items() if name.startswith("PCA")}
    scores: list[Score] = []
    for cloud in in_all_sets(val, options.points, 2000):
        pyramid = make_pyramid(cloud.pos)
        found = {part: net(masked(pyramid, part))[0][cloud.subset] for part, net in nets.items()}
        ours: dict[str, Estimator] = {part: lambda _, n=n: n for part, n in found.items()}  # type: ignore[misc]
        scores += score(ours | pca, cloud)
    results = common.header(vars(options))
    results["rows"] = [vars(row) for row in scores]
    common.save(results, options.out / f"{NAME}.json")
    print(page(results))


def page(results: common.Results) -> str:
    """The table: RMSE of every row and set, beside PCA with the best k for each set."""
    scores, s = Scores([Score(**row) for row in results["rows"]]), results["settings"]
    best = scores.table()[best_of("PCA")]
    ratios = [f"{part} {scores.table()[part]['mean'] / best['mean']:.3f}" for part in PARTS]
    return "\n".join(
        [
            f"{common.where(results)} {s['steps']:,} steps of every stage, "
            f"{len({c for c, _ in scores.clouds})} meshes, {s['points']:,} points each.",
            "",
            scores.markdown(),
            "",
            f"Of the mean of PCA with the best k: {', '.join(ratios)}.",
            "",
        ]
    )


if __name__ == "__main__":
    main(tyro.cli(Options))
