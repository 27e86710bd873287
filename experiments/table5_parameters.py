"""Table 5 of the VecKM paper: alpha and beta of VecKM -> PN on ModelNet40, at a machine's scale.

    python -m experiments.table5_parameters FOLDER
    python -m experiments.table5_parameters FOLDER --budget page
    python -m experiments.table5_parameters FOLDER --alphas 20 30 --betas 6 9 --seeds 0 1 2

FOLDER holds ModelNet40 in one of the layouts of veckm.data.modelnet. Runs go on where they were
when they are started again.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import tyro

from experiments.common import header, markdown, mean, save, where
from experiments.networks.cases import ALPHAS, BETAS, TABLE5
from experiments.networks.program import recipe_of
from experiments.networks.runs import run
from experiments.table2_classification import ObjectOptions, sets
from veckm.memory import keep_freed_memory
from veckm.models import create_model, default_encoding


@dataclass(frozen=True)
class GridOptions(ObjectOptions):
    """Options of the grid; 16 trainings, so a small budget each."""

    epochs: int = 10
    """Passes over the training set; the paper has 250."""
    points: int = 512
    """Points of a cloud; the paper has 1,024."""
    limit: int | None = 1000
    """Train on so many objects, chosen by seed 0."""
    alphas: tuple[float, ...] = ALPHAS
    """Levels of detail."""
    betas: tuple[float, ...] = BETAS
    """Inverse sizes of the window."""


def grid(options: GridOptions) -> dict[str, Any]:
    """Every pair, every seed; saved after each."""
    results = header(asdict(options))
    about = sets(options)
    for seed in options.seeds:
        for beta in options.betas:
            for alpha in options.alphas:
                row = run(
                    f"alpha{alpha:g}-beta{beta:g}",
                    lambda a=alpha, b=beta, s=seed: create_model(
                        "pointnet",
                        veckm=True,
                        num_classes=len(about.learn.classes),
                        seed=s,
                        encoding=default_encoding("pointnet", alpha=float(a), beta=float(b)),
                    ),
                    about,
                    recipe_of(options, seed),
                    options.out,
                )
                results["rows"].append({**row, "alpha": alpha, "beta": beta})
                save(results, options.out / "table5.json")
    return results


def page(results: dict[str, Any]) -> str:
    """Rows of beta, columns of alpha: ours, and the paper's in brackets."""
    s, rows = results["settings"], results["rows"]
    lines = []
    for beta in s["betas"]:
        cells = []
        for alpha in s["alphas"]:
            mine = [r for r in rows if (r["alpha"], r["beta"]) == (alpha, beta)]
            scores = [100 * row["scores"]["instance accuracy"] for row in mine]
            printed = TABLE5.get((alpha, beta))
            paper = "" if printed is None else f" ({printed:.2f})"
            cells.append(f"{mean(scores)}{paper}" if scores else "")
        lines.append([f"beta = {beta:g}", *cells])
    of = f"{rows[0]['set']}, " if "set" in rows[0] else ""
    spent = statistics.fmean(row["train_seconds"] for row in rows) / 60
    how = (
        f"Instance accuracy of VecKM → PN in per cent, in brackets as printed. Each trained on "
        f"{of}{rows[0]['objects']:,} objects of {s['points']:,} points for {s['epochs']} epochs "
        f"({spent:.1f} min), tested once on {rows[0]['tested']:,}; seeds: {len(s['seeds'])}."
    )
    head = ["", *(f"alpha = {alpha:g}" for alpha in s["alphas"])]
    return f"{where(results)}\n{how}\n\n{markdown(head, lines)}\n"


def main(options: GridOptions) -> int:
    """Run the grid; print its page."""
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    if options.budget == "page":
        options = replace(options, classes="modelnet10", epochs=10, points=1024, limit=None)
    try:
        print(page(grid(options)))
    except (OSError, ValueError) as error:
        print(f"table5: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    config = (tyro.conf.FlagCreatePairsOff,)
    sys.exit(main(tyro.cli(GridOptions, description=__doc__, config=config)))
