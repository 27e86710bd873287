"""Table 1, the runtime figure and the layers ablation of the VecKM paper, at a machine's scale.

    python -m experiments.table1_normals --quick           does it run? under a minute
    python -m experiments.table1_normals                   one row an encoder, about 20 minutes
    python -m experiments.table1_normals --every-row       all ten rows of the paper
    python -m experiments.table1_normals --meshes FOLDER   train on FOLDER/train, test on FOLDER/val
    python -m experiments.table1_normals --part runtime    time against points and neighbors
    python -m experiments.table1_normals --part layers     VecKM with one to four layers

A stopped run is resumed by the same command with the same options. The test clouds are evaluated
once, after the last step. What the numbers mean: experiments/README.md.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import get_args

import torch
import tyro
from torch import Tensor

from experiments.common import Results, header, log
from experiments.table1.pages import page, save
from experiments.table1.paper import LocalEncoder, unit_ball
from experiments.table1.rows import QUICK, Options, Row, RowName, contenders, layers_row, row_of
from experiments.table1.training import evaluate, train
from veckm.data.meshes import Mesh, load_meshes
from veckm.data.protocol import SETS, LabeledCloud, make_cloud
from veckm.data.random_solids import random_surface
from veckm.data.sampling import Surface
from veckm.data.shapes import statue

NOISY = ("none", "low", "med", "high")  # PCPNet trains on these four, never on uneven density


def sources(options: Options) -> tuple[Sequence[Surface], Sequence[Surface]]:
    """Shapes to train on and others to test on."""
    folder = options.meshes
    if folder is None:
        made = [random_surface(1000 + k) for k in range(options.shapes + options.tests)]
        return made[: options.shapes], made[options.shapes :]
    if (folder / "train").is_dir():
        train_on, test_on = (list(load_meshes(folder / p).values()) for p in ("train", "val"))
    else:
        every = list(load_meshes(folder).values())
        train_on, test_on = [m for k, m in enumerate(every) if k % 3], every[::3]
    if not train_on:
        raise ValueError(f"{folder}: has one mesh only; give at least two, one to test on")
    return some(train_on, options.shapes), some(test_on, options.tests)


def some(meshes: Sequence[Mesh], count: int) -> Sequence[Mesh]:
    """``count`` of them, evenly along the list, for names in a folder come in families."""
    if count >= len(meshes):
        return meshes
    return [meshes[k * len(meshes) // count] for k in range(count)]


def make_clouds(options: Options) -> tuple[list[LabeledCloud], list[LabeledCloud]]:
    """The training clouds, in the unit ball already, and the test clouds as they come."""
    train_on, test_on = sources(options)

    def made(shapes: Iterable[Surface], sets: Sequence[str], seed: int) -> list[LabeledCloud]:
        return [
            make_cloud(shape, name, seed + k, options.points, options.evaluated)
            for k, shape in enumerate(shapes)
            for name in sets
        ]

    learn = [replace(c, pos=unit_ball(c.pos)) for c in made(train_on, NOISY, 0)]
    return learn, made(test_on, SETS, 500)


def run_rows(rows: Sequence[Row], options: Options, name: str) -> Results:
    """Train and test every row, each saved when it is done."""
    log(f"making clouds of {options.points:,} points")
    learn, test = make_clouds(options)
    # What the folder had, which may be less than was asked for.
    options = replace(options, shapes=len(learn) // len(NOISY), tests=len(test) // len(SETS))
    results = header(asdict(options))
    for row in rows:
        for seed in range(options.seeds):
            net, done = train(row, seed, learn, options)
            start = time.perf_counter()
            error = evaluate(net, test)
            results["rows"].append(
                {
                    "row": row.name,
                    "title": row.title,
                    "seed": seed,
                    "rmse": error,
                    "training": done,
                    "points": row.points,
                    "batch": row.batch,
                    "parameters": sum(p.numel() for p in net.parameters()),
                    "test_seconds": time.perf_counter() - start,
                }
            )
            save(results, options, name)
            log(f"{row.title}, seed {seed}: {error['mean']:.2f} degrees")
    return results


def runtime(options: Options) -> Results:
    """Seconds of each encoder for a whole cloud, against its size and its neighbors."""
    results = header(asdict(options))
    middle = options.sizes[min(1, len(options.sizes) - 1)]
    cases = [("points", n, 500) for n in options.sizes]
    cases += [("neighbors", middle, k) for k in options.neighbors]
    pace: dict[str, tuple[float, int]] = {}  # seconds a point with so many neighbors, so far
    for against, n, k in cases:
        pos = unit_ball(statue(n).pos)
        encoders = contenders(k)
        likely = {}
        for title, encoder in encoders.items():
            seconds, before = pace.get(title, (0.0, k))
            likely[title] = seconds * n * (k / before if hasattr(encoder, "k") else 1.0)
        times = race({t: e for t, e in encoders.items() if likely[t] <= options.budget}, pos)
        for title in encoders:
            found = times.get(title, [])
            if found:
                pace[title] = statistics.median(found) / n, k
            about = {"against": against, "points": n, "neighbors": k, "title": title}
            results["rows"].append({**about, "seconds": found, "estimate": likely[title]})
        log(f"{n:,} points, {k} neighbors: done")
        save(results, options, "runtime")
    return results


@torch.no_grad()
def race(encoders: Mapping[str, LocalEncoder], pos: Tensor) -> dict[str, list[float]]:
    """Seconds of three calls each, in turns; of one where a call takes long."""
    times: dict[str, list[float]] = {title: [] for title in encoders}
    for encoder in encoders.values():
        encoder.eval()(pos[:500])  # what libraries set up once is no part of it
    for turn in range(3):
        for title, encoder in encoders.items():
            if turn and times[title][0] > 5:
                continue
            start = time.perf_counter()
            encoder(pos)
            times[title].append(time.perf_counter() - start)
    return times


def main(options: Options) -> int:
    """Run a part; print its page."""
    if options.quick:
        options = replace(options, **QUICK)
    try:
        if options.part == "runtime":
            results = runtime(options)
        elif options.part == "layers":
            results = run_rows([layers_row(n) for n in options.layers], options, "layers")
        else:
            names = get_args(RowName) if options.every_row else options.rows
            results = run_rows([row_of(name, options) for name in names], options, "table1")
    except (OSError, ValueError) as error:
        print(f"table1_normals.py: error: {error}", file=sys.stderr)
        return 2
    print(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, config=(tyro.conf.FlagCreatePairsOff,))))
