"""Tables 2 to 5 run on small data in the true formats, and put ours beside the paper's."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import releases
import torch

from veckm.data import modelnet

TINY: dict[str, Any] = {"epochs": 1, "batch": 4, "points": 16, "turns": 1}


def program(name: str) -> ModuleType:
    return importlib.import_module(f"experiments.{name}")


def found(folder: Path, number: int) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((folder / f"table{number}.json").read_text())
    return results


def test_a_pair_is_trained_timed_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table2 = program("table2_classification")
    data = releases.modelnet_arrays(tmp_path / "data")
    options = table2.ObjectOptions(
        data, rows=("pointnet", "veckm-pointnet"), seeds=(0, 1), out=tmp_path, **TINY
    )
    assert table2.main(table2.TABLE, options) == 0
    text = capsys.readouterr().out
    assert "| PointNet, as printed | 90.8 | 87.1 | 1.61M |" in text
    assert text.count("| difference | **") == 1
    assert "±" in text
    assert "PCT" not in text  # was not run
    results = found(tmp_path, 2)
    assert [(row["key"], row["seed"]) for row in results["rows"]] == [
        ("pointnet", 0), ("veckm-pointnet", 0), ("pointnet", 1), ("veckm-pointnet", 1),
    ]  # fmt: skip
    assert all(0 <= row["scores"]["instance accuracy"] <= 1 for row in results["rows"])
    assert [len(row["seconds"]) for row in results["times"]] == [1, 1]


def test_confusions_are_those_of_the_scores_of_the_run(tmp_path: Path) -> None:
    table2, confusions = program("table2_classification"), program("networks.confusions")
    data = releases.modelnet_arrays(tmp_path / "data")
    table2.main(table2.TABLE, table2.ObjectOptions(data, rows=("pointnet",), out=tmp_path, **TINY))
    run = next((tmp_path / "runs").glob("pointnet-seed0-*"))
    confusions.main(confusions.Options(data, (run,), "modelnet40", TINY["points"], tmp_path))
    (row,) = json.loads((tmp_path / "confusions.json").read_text())["rows"]
    wrong = sum(count for *_, count in row["pairs"])
    assert wrong == round((1 - row["scores"]["instance accuracy"]) * row["tested"])
    tally = torch.tensor([[5, 1, 0], [2, 7, 0], [0, 4, 3]])
    assert confusions.confused(tally, "abc") == [("b", "c", 4), ("a", "b", 3)]


def test_training_in_bfloat16_is_a_budget_of_its_own_and_its_steps_are_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veckm.training.precision.native_bfloat16", lambda: True)
    table2 = program("table2_classification")
    data = releases.modelnet_arrays(tmp_path / "data")
    given = {"rows": ("veckm-pointnet-128",), "out": tmp_path, **TINY}
    for part, mixed in (("accuracy", False), ("accuracy", True), ("steps", False)):
        options = table2.ObjectOptions(data, part=part, bfloat16=mixed, **given)
        assert table2.main(table2.TABLE, options) == 0
    results = found(tmp_path, 2)
    assert [row.get("precision") for row in results["rows"]] == [None, "bfloat16"]
    assert [row["precision"] for row in results["steps"]] == ["float32", "bfloat16"]
    assert "1 epochs, bfloat16, 0 min" in capsys.readouterr().out


def test_what_the_authors_do_beyond_the_text_is_a_budget_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table2 = program("table2_classification")
    data = releases.modelnet_arrays(tmp_path / "data")
    for more in ({}, {"smoothing": 0.2, "drop": 0.875}):
        options = table2.ObjectOptions(
            data, part="accuracy", rows=("pointnet",), out=tmp_path, **TINY, **more
        )
        assert table2.main(table2.TABLE, options) == 0
    text = capsys.readouterr().out
    assert len(found(tmp_path, 2)["rows"]) == 2
    assert "1 epochs, smoothing 0.2, drop 0.875, 0 min" in text


def test_the_budget_of_the_page_is_of_the_table_and_keeps_the_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table2, runs = program("table2_classification"), program("networks.runs")
    data = releases.modelnet_arrays(tmp_path / "data", count=20, names=(*modelnet.TEN, "lamp"))
    budgets = [dict(budget) for budget in table2.TABLE.budget]
    assert {b["epochs"] for b in budgets} == {25, 40, 1}
    for budget in budgets:
        budget["epochs"] = 2
    table = replace(table2.TABLE, budget=tuple(budgets))
    options = table2.ObjectOptions(
        data, part="accuracy", budget="page", rows=("pointnet",), out=tmp_path, **TINY
    )
    assert table2.main(table, options) == 0
    rows = found(tmp_path, 2)["rows"]
    assert [(row["seed"], row.get("set", "all")[:7], row["objects"]) for row in rows] == [
        (0, "the ten", 19), (1, "the ten", 19), (2, "the ten", 19), (0, "all", 20),
    ]  # fmt: skip
    assert all(len(row["curve"]) == row["epochs"] == 2 for row in rows)
    text = capsys.readouterr().out
    ten, whole = text.split("On the ten classes of ModelNet10:")[1].split("\n\n| network")[1:]
    assert "as printed" not in ten
    assert "as printed" in whole
    monkeypatch.setattr(runs, "train", lambda *_, **__: pytest.fail("was done before"))
    (tmp_path / "table2.json").unlink()
    assert table2.main(table, options) == 0
    assert found(tmp_path, 2)["rows"] == rows


def test_what_is_done_is_not_done_again_and_other_budgets_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table2, runs = program("table2_classification"), program("networks.runs")
    data = releases.modelnet_arrays(tmp_path / "data")
    options = table2.ObjectOptions(data, part="accuracy", rows=("pointnet",), out=tmp_path, **TINY)
    assert table2.main(table2.TABLE, options) == 0
    assert table2.main(table2.TABLE, replace(options, epochs=2)) == 0
    before = found(tmp_path, 2)["rows"]
    assert [row["epochs"] for row in before] == [1, 2]

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("was done before")

    monkeypatch.setattr(runs, "train", never)
    assert table2.main(table2.TABLE, options) == 0
    assert found(tmp_path, 2)["rows"] == before


def test_the_difference_is_that_of_equal_budgets_seed_by_seed() -> None:
    pages, cases = program("networks.pages"), program("networks.cases")

    def row(key: str, seed: int, score: float, epochs: int = 3) -> dict[str, Any]:
        scores = {"instance accuracy": score, "class accuracy": score}
        return {
            "key": key, "seed": seed, "scores": scores, "epochs": epochs, "objects": 10,
            "points": 16, "batch": 4, "rate": 1e-3, "parameters": 1, "train_seconds": 60.0,
        }  # fmt: skip

    rows = [
        row("pointnet", 0, 0.80), row("pointnet", 1, 0.90), row("pointnet", 0, 0.10, epochs=9),
        row("veckm-pointnet", 0, 0.84), row("veckm-pointnet", 1, 0.92),
    ]  # fmt: skip
    text = pages.accuracy(cases.TABLE2, rows, ("instance accuracy", "class accuracy"))
    assert "| difference | **+3.00 ± 1.41** |" in text
    assert "| VecKM → PN | 88.00 ± 5.66 |" in text


def test_parts_of_objects(tmp_path: Path) -> None:
    table3 = program("table3_parts")
    data = releases.shapenet_arrays(tmp_path / "data")
    options = table3.PartOptions(data, rows=("veckm-pointnet",), out=tmp_path, **TINY)
    assert table3.main(table3.TABLE, options) == 0
    (row,) = found(tmp_path, 3)["rows"]
    assert set(row["scores"]) == {"instance mIoU", "class mIoU"}


def test_scenes_are_segmented_timed_and_weighed(tmp_path: Path) -> None:
    table4 = program("table4_scenes")
    data = releases.s3dis_prepared(tmp_path / "data")
    options = table4.SceneOptions(
        data, rows=("pointnet2",), sizes=(200,), out=tmp_path, **{**TINY, "points": 64}
    )
    assert table4.main(table4.TABLE, options) == 0
    results = found(tmp_path, 4)
    assert set(results["rows"][0]["scores"]) == {"mIoU", "class accuracy", "overall accuracy"}
    (timed,) = results["times"]
    assert (timed["clouds"], timed["points"]) == (1, 200)
    assert 0.05 < timed["peak"] < 8
    assert " GB" in program("networks.program").page(table4.TABLE, results)


def test_the_grid_of_alpha_and_beta(tmp_path: Path) -> None:
    table5 = program("table5_parameters")
    data = releases.modelnet_arrays(tmp_path / "data")
    options = table5.GridOptions(data, alphas=(30,), betas=(6, 9), out=tmp_path, **TINY)
    assert table5.main(options) == 0
    text = table5.page(found(tmp_path, 5))
    assert "(92.87)" in text
    assert "(92.95)" in text
    assert len(found(tmp_path, 5)["rows"]) == 2


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table2, table4 = program("table2_classification"), program("table4_scenes")
    data = releases.modelnet_arrays(tmp_path / "data")
    assert table2.main(table2.TABLE, table2.ObjectOptions(data, rows=("pn",), out=tmp_path)) == 2
    assert "no row is called 'pn'" in capsys.readouterr().err
    assert table2.main(table2.TABLE, table2.ObjectOptions(tmp_path / "no", out=tmp_path)) == 2
    assert "has no CLASS/train" in capsys.readouterr().err
    rooms = releases.s3dis_prepared(tmp_path / "rooms")
    options = table4.SceneOptions(rooms, part="times", sizes=(10**6,), out=tmp_path)
    assert table4.main(table4.TABLE, options) == 2
    assert "fewer than the 1,000,000" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.json"))
