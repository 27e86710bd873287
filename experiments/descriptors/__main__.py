"""Train the projection of descriptors that `veckm.register` uses, or see what it wins.

    python -m experiments.descriptors train --meshes meshes/train --out runs/descriptors
    python -m experiments.descriptors compare --meshes meshes/val

Training has two views of every mesh at three noises, of random solids, and simulated scans of rooms
and streets; its steps are fixed, and nothing is chosen by what comes out. It writes
descriptors.safetensors and .json, which go to src/veckm/weights. The comparison has views of other
meshes, and rooms and streets of other seeds. Real pairs are for `benchmarks.register` alone.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import tyro
from benchmarks.harness import log
from safetensors.torch import save_file
from tyro.conf import OmitArgPrefixes

from experiments import common
from experiments.descriptors import compare
from experiments.descriptors.learn import (
    Budget,
    Counts,
    Example,
    discriminant,
    example,
    pairs,
    train,
)
from veckm.descriptors import DEGREE
from veckm.tasks.registration.matching import RADIUS, SHELLS

RESULTS = Path(__file__).resolve().parents[1] / "results"


@dataclass(frozen=True)
class Train:
    """Train the projection on views of meshes and simulated scans."""

    meshes: Path
    """Folder of meshes to learn from."""
    out: Path = Path("runs/descriptors")
    """Folder for the weights."""
    size: int = 112
    """Numbers of a projected descriptor."""
    counts: OmitArgPrefixes[Counts] = field(default_factory=Counts)
    budget: OmitArgPrefixes[Budget] = field(default_factory=Budget)
    threads: int = 1


@dataclass(frozen=True)
class Compare:
    """Right matches and alignments with the learnt projection and without."""

    meshes: Path
    """Folder of meshes that training has not seen."""
    counts: OmitArgPrefixes[Counts] = field(default_factory=lambda: Counts(0, 8, 4))
    seed: int = 100
    threads: int = 1
    out: Path = RESULTS
    """Folder for descriptors.json."""


def run_training(options: Train) -> None:
    """Describe all pairs, train, save."""
    options.out.mkdir(parents=True, exist_ok=True)
    examples, described = _examples(options)
    start = time.process_time()
    log(f"{len(examples)} pairs described in {described:.0f} s of CPU time")
    P, losses = discriminant(examples, options.size), []
    for step, loss in train(examples, P, options.budget):
        losses.append((step, round(loss, 4)))
        log(f"step {step}: loss {loss:.4f}")
    spent = described + time.process_time() - start
    save_file({"projection": P.contiguous()}, options.out / "descriptors.safetensors")
    about = {
        "input": {"shells": SHELLS, "degree": DEGREE, "radius in voxels": RADIUS, "axis": "normal"},
        "size": options.size,
        "trained on": {
            kind: sum(e.kind == kind for e in examples)
            for kind in sorted({e.kind for e in examples})
        },
        "budget": asdict(options.budget),
        "losses": losses,
        "seconds": {"describe": round(described), "all": round(spent)},
        "torch": torch.__version__,
    }
    (options.out / "descriptors.json").write_text(json.dumps(about, indent=1) + "\n")
    log(f"{options.out}: {spent:.0f} s of CPU time")


def _examples(options: Train) -> tuple[list[Example], float]:
    """Those of an earlier run in the same folder, or new ones, and the seconds that they took."""
    path = options.out / "examples.pt"
    if path.exists():
        log(f"{path} is used again")
        kept = torch.load(path)
        return [Example(**values) for values in kept["examples"]], kept["seconds"]
    made, start = [], time.process_time()
    for kind, pair in pairs(options.meshes, options.counts, options.budget.seed):
        one = example(kind, pair, options.budget.seed)
        made += [] if one is None else [one]
        if len(made) % 20 == 0:
            log(f"{len(made)} pairs, {pair.name}")
    spent = time.process_time() - start
    torch.save({"examples": [vars(each) for each in made], "seconds": spent}, path)
    return made, spent


def run_comparison(options: Compare) -> None:
    """One row per pair, saved after each."""
    results = common.header(asdict(options))
    for kind, pair in pairs(options.meshes, options.counts, options.seed):
        row = compare.row(kind, pair)
        results["rows"].append(row)
        log(f"{pair.name}: {json.dumps(row['methods'])}")
        common.save(results, options.out / "descriptors.json")
    print(compare.page(results))


def main(options: Train | Compare) -> int:
    """Train or compare."""
    torch.set_num_threads(options.threads)
    if isinstance(options, Train):
        run_training(options)
    else:
        run_comparison(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.extras.subcommand_cli_from_dict({"train": Train, "compare": Compare})))
