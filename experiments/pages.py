"""Make every generated page from the committed results: one command, no table by hand.

    python -m experiments.pages            docs/_generated/*.md, the plots, the README's tables
    python -m experiments.pages --check    write nothing; fails if a page is not up to date
    python -m experiments.pages --take DIR adds the rows of DIR first, the --out of a table

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
from benchmarks.scan_parts import pages as real

from experiments import (
    normals_ablation,
    table2_classification,
    table3_parts,
    table4_scenes,
    table5_parameters,
)
from experiments.common import save
from experiments.descriptors import compare
from experiments.networks import confusions, curves, program
from experiments.networks import pages as networks
from experiments.networks.cases import TABLE5
from experiments.table1 import pages as table1

ROOT = Path(__file__).resolve().parents[1]
GENERATED = Path("docs", "_generated")
TABLES = (
    ("objects", table2_classification.TABLE),
    ("parts", table3_parts.TABLE),
    ("scenes", table4_scenes.TABLE),
)


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
    lines = []
    for (about, table), results in ((item, load(f"table{item[1].number}")) for item in TABLES):
        parts = (results["rows"], results["times"])
        lines.append((f"{about} ({table.metrics[0]})", table.cases, table.metrics[0], *parts))
        drawn += curves.pairs(f"Table {table.number}", table.cases, results["rows"])
        yield f"table{table.number}", program.page(table, results)
    yield "networks_short", networks.short(lines) + "\n"
    metric = {f"Table {table.number}": table.metrics[0] for _, table in TABLES}
    yield "networks_curves", curves.draw(drawn, metric, images)
    if (folder / f"{confusions.NAME}.json").exists():
        yield confusions.NAME, confusions.page(load(confusions.NAME))
    if (folder / "descriptors.json").exists():
        yield "descriptors", compare.page(load("descriptors"))
    yield "table5", table5_parameters.page(load("table5"))


def _benchmarks(folder: Path, images: Path) -> dict[str, str]:
    def runs(name: str) -> list[Path]:
        return [p for p in sorted(folder.glob(f"{name}-*.json")) if not p.stem.endswith("-quick")]

    encode = Results.merged([Results.load(path) for path in runs("encode")])
    own = NormalsResults.merged([NormalsResults.load(path) for path in runs("normals")])
    aligned = [json.loads(p.read_text()) for p in runs("register")]
    made = {}
    if found := runs("features"):
        made["features"] = real.features_page([json.loads(p.read_text()) for p in found])
    if found := runs("together"):
        made["together"] = real.together_page(json.loads(found[-1].read_text()))
    if found := runs("view"):
        made["view"] = real.view_page(json.loads(found[-1].read_text()))
    return made | {
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


def take(folder: Path) -> None:
    """Add the rows and times of another folder to the committed ones."""
    home = ROOT / "experiments" / "results"
    for path in sorted(folder.glob("table[234].json")):
        new, old = json.loads(path.read_text()), json.loads((home / path.name).read_text())
        rows = networks.merged(old["rows"], new["rows"], program.SAME)
        times = networks.merged(old["times"], new["times"], program.SAME_TIME)
        steps = networks.merged(old.get("steps", []), new.get("steps", []), program.SAME_STEP)
        parts = {"rows": rows, "times": times, "steps": steps}
        save({**old, "meta": new["meta"], **parts}, home / path.name)
    grid = folder / "table5.json"
    if grid.exists() and len(json.loads(grid.read_text())["rows"]) >= len(TABLE5):
        (home / grid.name).write_text(grid.read_text())


def main(args: list[str]) -> int:
    """Write what differs, or with --check only print it."""
    check = args == ["--check"]
    if args[:1] == ["--take"]:
        take(Path(args[1]))
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
