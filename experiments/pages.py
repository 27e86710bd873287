"""Make every generated page from the committed results: one command, no table by hand.

    python -m experiments.pages            docs/_generated/*.md, the plots, the README's tables
    python -m experiments.pages --check    write nothing; fails if a page is not up to date

The results are experiments/results/*.json and benchmarks/results/*.json; of several runs of a
benchmark the last that measured a case counts.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import plots, report, scan
from benchmarks.harness import Results
from benchmarks.normals_parts import charts
from benchmarks.normals_parts import page as normals
from benchmarks.normals_parts.cases import Results as NormalsResults
from benchmarks.register_parts import page as register

from experiments import (
    normals_ablation,
    table2_classification,
    table3_parts,
    table4_scenes,
    table5_parameters,
)
from experiments.networks import curves, program
from experiments.table1 import pages as table1

ROOT = Path(__file__).resolve().parents[1]
GENERATED = Path("docs", "_generated")
TABLES = (table2_classification.TABLE, table3_parts.TABLE, table4_scenes.TABLE)


def make(root: Path, images: Path) -> dict[Path, str]:
    """The text of every page by its path below the root; plots are written to ``images``."""
    found = dict(_experiments(root / "experiments" / "results", images))
    found |= _benchmarks(root / "benchmarks" / "results", images)
    out = {GENERATED / f"{name}.md": text for name, text in found.items()}
    readme = (root / "README.md").read_text()
    for mark, name in (("normals", "normals_short"), ("table", "encode_short")):
        readme = _replaced(readme, mark, found[name])
    return {**out, Path("README.md"): readme}


def _experiments(folder: Path, images: Path) -> Iterator[tuple[str, str]]:
    def load(name: str) -> dict[str, Any]:
        results: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
        return results

    for name in ("table1", "runtime", "layers"):
        if (folder / f"{name}.json").exists():
            yield name, table1.page(load(name))
    if (folder / f"{normals_ablation.NAME}.json").exists():
        yield normals_ablation.NAME, normals_ablation.page(load(normals_ablation.NAME))
    drawn: list[curves.Pair] = []
    for table in TABLES:
        results = load(f"table{table.number}")
        drawn += curves.pairs(f"Table {table.number}", table.cases, results["rows"])
        yield f"table{table.number}", program.page(table, results)
    metric = {f"Table {table.number}": table.metrics[0] for table in TABLES}
    if text := curves.draw(drawn, metric, images):
        yield "networks_curves", text
    yield "table5", table5_parameters.page(load("table5"))


def _benchmarks(folder: Path, images: Path) -> dict[str, str]:
    def runs(name: str) -> list[Path]:
        return [p for p in sorted(folder.glob(f"{name}-*.json")) if not p.stem.endswith("-quick")]

    encode = Results.merged([Results.load(path) for path in runs("encode")])
    own = NormalsResults.merged([NormalsResults.load(path) for path in runs("normals")])
    aligned = [json.loads(p.read_text()) for p in runs("register")]
    return {
        **({"register": register.page(register.merged(aligned))} if aligned else {}),
        "encode": report.page(encode, plots.draw(encode, images)),
        "encode_short": report.short(encode),
        "normals": normals.page(own, charts.draw(own, images)),
        "normals_short": normals.short(own),
        "scan": scan.page(scan.merged([json.loads(p.read_text()) for p in runs("scan")])),
    }


def _replaced(text: str, mark: str, table: str) -> str:
    """The text with a new table between two comments."""
    start, end = f"<!-- {mark}:start -->\n", f"<!-- {mark}:end -->"
    before, found, rest = text.partition(start)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"README.md: has no {start.strip()} ... {end}")
    return f"{before}{start}\n{table}\n{end}{after}"


def main(args: list[str]) -> int:
    """Write what differs, or with --check only print it."""
    check = args == ["--check"]
    with tempfile.TemporaryDirectory() as folder:
        made = make(ROOT, Path(folder) if check else ROOT / "docs" / "_static")
    stale = [path for path, text in made.items() if _read(ROOT / path) != text]
    for path in stale:
        print(f"{path} {'is not up to date' if check else 'written'}")
        if not check:
            (ROOT / path).write_text(made[path])
    return int(check and bool(stale))


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
