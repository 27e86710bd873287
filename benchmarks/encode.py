"""Compare all engines of the encoder side by side, in one run.

    python -m benchmarks.encode --quick                 a small matrix, two minutes
    python -m benchmarks.encode                         everything, an hour or more
    python -m benchmarks.encode --cloud x.npy           with your own (N, 3) cloud as well
    python -m benchmarks.encode --parts headline batches

Each run writes one JSON file with all raw times into --out, and beside it the page and the plots.
The published page is made by `python -m experiments.pages`.
The contract is in benchmarks/README.md.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

import tyro

from benchmarks import plots, report
from benchmarks.cases import Config
from benchmarks.harness import Results, log, metadata

ROOT = Path(__file__).resolve().parents[1]
Part = Literal[
    "headline", "plans", "batches", "counts", "gradients", "accuracy", "scaling", "matrix"
]


@dataclass(frozen=True)
class Options:
    """Compare all engines of the encoder side by side, in one run."""

    quick: bool = False
    """A small matrix, to see that it runs."""
    full: bool = False
    """The whole matrix; this is the default."""
    cloud: Path | None = None
    """An (N, 3) .npy file to measure as well; it is scaled to the unit ball."""
    out: Path = ROOT / "benchmarks" / "results"
    """Folder for the results, the page and the plots."""
    parts: tuple[Part, ...] = get_args(Part)
    """What to measure."""
    budget: float = 60.0
    """Seconds: in the matrix, engines that expect to take longer are not run."""
    sizes: tuple[int, ...] = ()
    """Points of the clouds of the matrix; 1,000 to 1,000,000 unless said otherwise."""
    betas: tuple[float, ...] = ()
    """Windows of the matrix; 10 to 80 unless said otherwise."""


def main(options: Options) -> int:
    """Measure, save, print the page."""
    if options.quick and options.full:
        print("encode.py: error: --quick or --full, not both", file=sys.stderr)
        return 2
    if options.cloud is not None and not options.cloud.is_file():
        print(f"encode.py: error: {options.cloud}: no such file", file=sys.stderr)
        return 2
    results, path = measure(options)
    drawn = plots.draw(results, path.parent)
    text = report.page(results, drawn, images=".")
    path.with_suffix(".md").write_text(text)
    print(text)
    log(f"results: {path}")
    return 0


def measure(options: Options) -> tuple[Results, Path]:
    """All parts, saved after each row's case so that nothing is lost."""
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"encode-{time.strftime('%Y%m%d-%H%M%S')}" + ("-quick" if options.quick else "")
    path = options.out / f"{name}.json"
    settings = {key: str(value) for key, value in asdict(options).items() if key != "out"}
    results = Results(metadata(), {**settings, "quick": options.quick})
    if (results.meta["load"] or 0) > 0.5:
        log(f"the machine is busy (load {results.meta['load']:.1f}): times will not mean much")
    budget = min(options.budget, 3.0) if options.quick else options.budget
    config = Config(options.quick, budget, options.cloud, options.sizes, options.betas)
    begin = time.perf_counter()
    for part in [p for p in report.PARTS.values() if p.NAME in options.parts]:
        start = time.perf_counter()
        for row in part.measure(config):
            results.rows.append(row)
            results.save(path)
        log(f"{part.NAME} done in {time.perf_counter() - start:.0f} s; saved in {path}")
    results.meta["minutes"] = round((time.perf_counter() - begin) / 60, 1)
    results.save(path)
    return results, path


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, config=(tyro.conf.FlagCreatePairsOff,))))
