"""Compare estimators of normals side by side, on the same clouds, in one run.

    python -m benchmarks.normals --quick                    small clouds, a minute or two
    python -m benchmarks.normals --meshes FOLDER            everything, on the meshes of a folder
    python -m benchmarks.normals --pcpnet FOLDER            on shapes of PCPNet as well
    python -m benchmarks.normals --frames FILE FILE         frames of a spinning scanner as well
    python -m benchmarks.normals --lenssen FOLDER           a published network beside ours
    python -m benchmarks.normals --parts time
    python -m benchmarks.normals --resume RESULTS.json ...  go on with a run that was stopped, with
                                                            the same options; where the weights of
                                                            ours are others, only ours again

Without --meshes the shapes are procedural surfaces that training has not seen. Each run writes one
JSON file with all figures into --out, after every cloud, and beside it the page and the plots.
The published page is made by `python -m experiments.pages`.
The contract is in benchmarks/README.md.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import tyro
from experiments.evaluation import BEST, OURS, fingerprint

from benchmarks.harness import log, metadata
from benchmarks.normals_parts import charts, orientation, page
from benchmarks.normals_parts.cases import Config, Results, Row

ROOT = Path(__file__).resolve().parents[1]
Part = Literal["accuracy", "pcpnet", "time", "confidence", "curvature", "orientation", "lidar"]


@dataclass(frozen=True)
class Options:
    """Compare estimators of normals side by side, on the same clouds, in one run."""

    quick: bool = False
    """Small clouds of few shapes, to see that it runs."""
    meshes: Path | None = None
    """Folder with meshes to make clouds from: the validation ones, that training has not seen."""
    pcpnet: Path | None = None
    """Folder with the PCPNet release, or with shapes of it as .npz (xyz, normal)."""
    weights: Path | None = None
    """Weights of ours (.safetensors); those of the package by default."""
    paper: Path | None = None
    """Weights of the paper's network: .safetensors, or a checkpoint of
    experiments.table1_normals. Without them it has no row."""
    frames: tuple[Path, ...] = ()
    """Frames of a spinning scanner: SemanticKITTI's with labels (.npz with xyzi and label), or
    clouds without (.bin)."""
    lenssen: Path | None = None
    """Checkout of nnaisense/deep-iterative-surface-normal-estimation, to run beside."""
    points: int = 100_000
    """Points of a cloud; growth is measured at ten times as many."""
    limit: int | None = None
    """Take so many shapes at most."""
    parts: tuple[Part, ...] = get_args(Part)
    """What to measure."""
    out: Path = ROOT / "benchmarks" / "results"
    """Folder for the results, the page and the plots."""
    resume: Path | None = None
    """Go on with these results: what they have is not measured again."""


def main(options: Options) -> int:
    """Measure, save, print the page."""
    try:
        results, path = measure(options)
    except (OSError, ValueError) as error:
        print(f"normals.py: error: {error}", file=sys.stderr)
        return 2
    drawn = charts.draw(results, path.parent)
    text = page.page(results, drawn, images=".")
    path.with_suffix(".md").write_text(text)
    print(text)
    log(f"results: {path}")
    return 0


def measure(options: Options) -> tuple[Results, Path]:
    """All parts, saved after every cloud so that nothing is lost."""
    config = configure(options)
    results, path = begin(options, config)
    if (results.meta["load"] or 0) > 0.5:
        log(f"the machine is busy (load {results.meta['load']:.1f}): times will not mean much")
    for part in [p for p in page.PARTS.values() if p.NAME in options.parts]:
        start = time.perf_counter()
        known = {row.key for row in results.of(part.NAME)}
        for rows in part.measure(config, known):
            results.rows += rows
            results.save(path)
        log(f"{part.NAME} done in {time.perf_counter() - start:.0f} s; saved in {path}")
    results.save(path)
    return results, path


def configure(options: Options) -> Config:
    """What the parts are told; a quick run is smaller in every way."""
    points, limit = options.points, options.limit
    if options.quick:
        points, limit = min(points, 5_000), min(limit or 2, 2)
    return Config(
        options.quick,
        options.meshes,
        options.pcpnet,
        options.weights,
        options.paper,
        points,
        limit,
        options.frames,
        options.lenssen,
    )


def begin(options: Options, config: Config) -> tuple[Results, Path]:
    """New results, or those to go on with, which must be about the same things."""
    said = about(options, config)
    if options.resume is None:
        options.out.mkdir(parents=True, exist_ok=True)
        name = f"normals-{time.strftime('%Y%m%d-%H%M%S')}" + ("-quick" if options.quick else "")
        return Results(metadata(), said), options.out / f"{name}.json"
    results = Results.load(options.resume)
    # May come later, and be left out of a run for other parts.
    for key in ("pcpnet", "paper", "frames", "lenssen"):
        then = results.options.get(key)
        said[key] = said[key] or then
        results.options[key] = then or said[key]
    if results.options.get("weights") != said["weights"]:  # the others' answers are the same
        results.options["weights"] = said["weights"]
        results.rows = [row for row in results.rows if not depends(row)]
        results.meta |= {key: metadata()[key] for key in ("date", "commit")}
    other = [key for key in said if results.options.get(key) != said[key]]
    if other:
        raise ValueError(
            f"{options.resume}: was measured with another {', '.join(other)}; "
            "give the same options, or begin anew without --resume"
        )
    results.meta["resumed"] = metadata()["date"]
    return results, options.resume


def depends(row: Row) -> bool:
    """Whether a row has to be measured again with other weights of ours.

    Parts whose figures are times are races: they are measured together or not at all.
    """
    return row.part in ("time", "lidar") or row.method in (OURS, BEST, orientation.TILES)


def about(options: Options, config: Config) -> dict[str, Any]:
    """All that the figures depend on."""
    asked = asdict(options)
    said = {key: None if asked[key] is None else str(asked[key]) for key in ("meshes", "pcpnet")}
    return {
        **said,
        "quick": options.quick,
        "points": config.points,
        "limit": config.limit,
        "weights": fingerprint(config.net),
        "paper": None if options.paper is None else options.paper.name,
        "frames": [path.name for path in options.frames] or None,
        "lenssen": options.lenssen and "a checkout",
    }


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, config=(tyro.conf.FlagCreatePairsOff,))))
