"""The generated pages are what the committed results make, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'veckm[bench]'")

from benchmarks import scan
from benchmarks.normals_parts.cases import Results, Row
from benchmarks.normals_parts.page import page as normals_page
from experiments import pages
from experiments.networks import curves, program
from experiments.networks import pages as networks


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    return pages.make(pages.ROOT, tmp_path_factory.mktemp("images"))


def test_the_committed_pages_are_what_the_command_makes(made: dict[Path, str]) -> None:
    for path, text in made.items():
        assert (pages.ROOT / path).read_text() == text, f"{path}: run python -m experiments.pages"


def test_every_generated_page_is_made_by_the_command(made: dict[Path, str]) -> None:
    there = {path.relative_to(pages.ROOT) for path in (pages.ROOT / pages.GENERATED).glob("*.md")}
    assert there == set(made) - {Path("README.md")}


def test_the_images_of_the_pages_exist(made: dict[Path, str]) -> None:
    docs = pages.ROOT / "docs"
    images = [name for text in made.values() for name in re.findall(r"\]\((_static/\S+)\)", text)]
    assert len(images) >= 5
    assert [name for name in images if not (docs / name).is_file()] == []


def test_a_new_row_joins_the_rows_that_were_read_from_a_page() -> None:
    table = pages.TABLES[0][1]
    path = pages.ROOT / "experiments" / "results" / "table2.json"
    results = json.loads(path.read_text())
    before = program.page(table, results)
    row = {"key": "pct", "seed": 0, "date": "2030-01-01", "epochs": 9, "objects": 10, "points": 16}
    scores = {"instance accuracy": 0.5, "class accuracy": 0.25}
    more = {"batch": 4, "rate": 1e-3, "parameters": 10**6, "train_seconds": 60.0, "scores": scores}
    results["rows"].append(row | more)
    after = program.page(table, results)
    assert " and 2030-01-01, " in after
    added = set(after.splitlines()) - set(before.splitlines())
    assert "| PCT | 50.00 | 25.00 | 1.00M | 10 x 16 points, 9 epochs, 1 min | 1 |" in added
    assert len(added) == 2  # the row, and the line with the dates


NEW = {"epochs": 9, "objects": 10, "points": 16, "batch": 4, "rate": 1e-3, "parameters": 10**6,
       "train_seconds": 60.0, "set": "the ten", "precision": "bfloat16", "tested": 5}  # fmt: skip


def test_rows_read_from_a_page_leave_when_both_sides_were_trained_again() -> None:
    cases = pages.TABLES[0][1].cases
    old = [
        {"key": key, "seeds": 1, "scores": {}}
        for key in ("pct", "veckm-pct", "pointnet", "veckm-pointnet")
    ]
    plain = {**NEW, "key": "pct", "seed": 0}
    assert networks.current(cases, [*old, plain]) == [*old, plain]
    both = [plain, {**NEW, "key": "veckm-pct", "seed": 0}]
    assert networks.current(cases, [*old, *both]) == [*old[2:], *both]


def test_the_short_table_has_the_longest_training_of_every_pair_and_set() -> None:
    table = pages.TABLES[0][1]
    rows = [
        {**NEW, "key": key, "seed": seed, "scores": {"instance accuracy": score}, "epochs": epochs}
        for key, score in (("pct", 0.5), ("veckm-pct", 0.75))
        for seed, epochs in ((0, 9), (1, 9), (0, 3))
    ]
    times = [{"key": key, "seconds": [0.1, s]} for key, s in (("pct", 0.3), ("veckm-pct", 0.1))]
    text = networks.short([("objects", table.cases, "instance accuracy", rows, times)])
    (line,) = text.splitlines()[2:]
    assert line == (
        "| VecKM ⇌ PCT | objects, the ten | 50.00 ± 0.00 | 75.00 ± 0.00 | **+25.00 ± 0.00** | 2 | "
        "10 x 16 points, 9 epochs, bfloat16, 1 min | 200 → 100 |"
    )


def test_rows_that_were_made_elsewhere_are_taken_over(tmp_path: Path, monkeypatch) -> None:
    home, there = tmp_path / "experiments" / "results", tmp_path / "there"
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    kept, new = ({**NEW, "key": "pct", "seed": seed} for seed in (0, 1))
    for folder, rows in ((home, [kept]), (there, [new, {**kept, "scores": "later"}])):
        folder.mkdir(parents=True)
        results = {"meta": folder.name, "rows": rows, "times": []}
        (folder / "table2.json").write_text(json.dumps(results))
    (there / "table5.json").write_text(json.dumps({"rows": [{}]}))  # not yet all cells
    pages.take(there)
    results = json.loads((home / "table2.json").read_text())
    assert results["meta"] == "there"
    assert results["rows"] == [{**kept, "scores": "later"}, new]
    assert not (home / "table5.json").exists()


def test_curves_of_a_pair_with_one_budget_are_drawn(tmp_path: Path) -> None:
    table = pages.TABLES[0][1]
    budget = {"epochs": 3, "objects": 10, "points": 16, "batch": 4, "rate": 1e-3}
    rows = [
        {**budget, "key": key, "seed": seed, "curve": [3.0, 2.0, 1.0 + seed],
         "scores": {"instance accuracy": 0.5, "class accuracy": 0.25}}
        for key, seed in (("pct", 0), ("pct", 1), ("veckm-pct", 0), ("pointnet", 0))
    ]  # fmt: skip
    rows.append({**rows[2], "set": "the ten", "key": "veckm-pointnet"})  # no plain run alike
    (found,) = curves.pairs("Table 2", table.cases, rows)
    assert found[0] == "Table 2"
    assert [(case.key, len(mine)) for case, mine in found[1]] == [("pct", 2), ("veckm-pct", 1)]
    ten = [{**row, "set": "the ten", "precision": "bfloat16"} for row in rows[:4]]
    assert [title for title, _ in curves.pairs("Table 2", table.cases, ten)] == ["Table 2: the ten"]
    other = [{**row, "smoothing": 0.2} for row in rows]
    more = [{**row, "seed": 7} for row in rows]
    (again,) = curves.pairs("Table 2", table.cases, [*rows, *other, *more])
    drawn = [row for _, mine in again[1] for row in mine]
    assert not any("smoothing" in row for row in drawn)  # of two as long, that of more seeds
    assert sum(row["seed"] == 7 for row in drawn) == 3
    text = curves.draw([found], {"Table 2": "instance accuracy"}, tmp_path)
    assert "(_static/networks_curves.png)" in text
    first = (tmp_path / "networks_curves.png").read_bytes()
    curves.draw([found], {"Table 2": "instance accuracy"}, tmp_path)
    assert (tmp_path / "networks_curves.png").read_bytes() == first
    assert curves.draw([], {}, tmp_path) == ""


def test_a_new_run_replaces_its_part_of_the_normals_and_the_rest_stays() -> None:
    folder = pages.ROOT / "benchmarks" / "results"
    old = Results.load(min(folder.glob("normals-*.json")))
    rows = [Row("pcpnet", "ring", 300, m, "none", {"rmse": 1.5})
            for m in ("veckm", "PCA, k = 18", "PCA, k = 122")]  # fmt: skip
    text = normals_page(Results.merged([old, Results(old.meta, {}, rows)]), [])
    assert "Shapes: ring." in text
    assert "bunny100k" not in text
    assert "17 shapes, 102 clouds" in text


def test_a_readme_without_the_comments_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no <!-- table:start -->"):
        pages._replaced("nothing", "table", "x")


def test_a_page_of_several_scan_runs_says_which_part_is_of_when() -> None:
    meta = {"cpu": "c", "cores": 2, "threads": 2, "torch": "t", "python": "p", "veckm": "v"}
    kills = {"same": 20, "kills": 20, "survived": 10, "deaths": 10}
    fuzz = {"counts": {"inputs": 5, "failures": 0}}
    old = {"meta": {**meta, "date": "Monday", "commit": "a"}, "quick": False}
    new = {"meta": {**meta, "date": "Tuesday", "commit": "b"}, "quick": False}
    both = scan.merged(
        [{**old, "parts": {"kills": kills, "fuzz": fuzz}}, {**new, "parts": {"fuzz": fuzz}}]
    )
    assert both["meta"]["date"] == "Monday (kills) and Tuesday (fuzz)"
    assert both["meta"]["commit"] == "a and b"
