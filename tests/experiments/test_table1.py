"""The experiments run, say what they did, and go on after a kill as if nothing had happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import tyro
from experiments import table1_normals as table1
from experiments.table1 import rows as table1_rows
from experiments.table1 import training

TINY: dict[str, Any] = {
    "points": 80, "evaluated": 20, "shapes": 2, "tests": 1, "visits": 3, "graph": 50,
}  # fmt: skip


def found(folder: Path, name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return results


def errors(folder: Path, name: str = "table1") -> list[dict[str, float]]:
    return [row["rmse"] for row in found(folder, name)["rows"]]


def test_the_table_has_every_encoder_beside_the_paper(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "NORM_CLOUDS", 1)
    rows = ("kpconv-16", "dgcnn-32", "pointnet-300", "veckm")
    options = table1.Options(**{**TINY, "visits": 1}, rows=rows, out=tmp_path)
    assert table1.main(options) == 0
    results = found(tmp_path, "table1")
    assert tuple(row["row"] for row in results["rows"]) == rows
    for row in results["rows"]:
        assert set(row["rmse"]) == {"none", "low", "med", "high", "stripe", "gradient", "mean"}
        assert all(0 < value < 90 for value in row["rmse"].values())
        assert row["training"]["visits"] == 1
    text = capsys.readouterr().out
    assert "| VecKM |" in text
    assert (
        "| as printed in the paper | 13.59 | 13.99 | 18.04 | 22.21 | 17.20 | 18.98 | 17.34 |"
        in text
    )
    assert "80 points" in text
    assert text.count("as printed") == 4


def test_all_ten_rows_of_the_paper_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def trained(row: Any, *_: Any) -> Any:
        asked.append(row.title)
        return row.make(), {"visits": 0, "steps": 0, "seconds": 0.0}

    monkeypatch.setattr(table1, "train", trained)
    monkeypatch.setattr(table1, "evaluate", lambda *_: dict.fromkeys((*table1.SETS, "mean"), 45.0))
    assert table1.main(table1.Options(**TINY, every_row=True, out=tmp_path)) == 0
    assert [row["row"] for row in found(tmp_path, "table1")["rows"]] == list(table1_rows.PAPER)
    assert len(set(asked)) == 10
    assert "KPConv, 32 kernel points" in asked
    assert "PointNet, 700 neighbors" in asked


def test_the_rows_of_the_paper_average_to_what_it_prints() -> None:
    for *columns, mean in table1_rows.PAPER.values():
        assert len(columns) == 6
        assert sum(columns) / 6 == pytest.approx(mean, abs=0.011)


@pytest.mark.parametrize("row", ["veckm", "dgcnn-32"])
def test_a_killed_run_goes_on_and_ends_as_if_it_had_not_been(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "NORM_CLOUDS", 2)
    monkeypatch.setattr(training, "ROUND", 1)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert table1.main(table1.Options(**TINY, rows=(row,), out=whole)) == 0
    learn, calls = training.learn_round, []

    def killed(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return learn(*args)

    monkeypatch.setattr(training, "learn_round", killed)
    options = table1.Options(**TINY, rows=(row,), out=broken)
    with pytest.raises(KeyboardInterrupt):
        table1.main(options)
    assert not (broken / "table1.json").exists()
    assert table1.main(options) == 0
    assert len(calls) == 4  # two, the one that was killed, and the one that was missing
    assert errors(broken) == errors(whole)
    assert table1.main(options) == 0  # all is there: nothing is trained again
    assert len(calls) == 4


def test_the_batch_norms_end_with_the_average_over_many_rotated_clouds(tmp_path: Path) -> None:
    options = table1.Options(**TINY, out=tmp_path)
    clouds, _ = table1.make_clouds(options)
    net, _ = training.train(table1_rows.row_of("dgcnn-32", options), 0, clouds, options)
    norms = [layer for layer in net.modules() if isinstance(layer, torch.nn.BatchNorm1d)]
    assert len(norms) == 4 + 1 + 2
    assert all(int(norm.num_batches_tracked) == training.NORM_CLOUDS for norm in norms)
    net.eval()
    inputs, _ = training.gather_inputs(net, clouds[0], 50, torch.Generator().manual_seed(0))
    inside = net.head[:2](net.encoder.features(inputs))  # the first layer of the head, normed
    assert 0.5 < float(inside.detach().std(0).mean()) < 2


def test_other_settings_do_not_go_on_from_the_same_checkpoint(tmp_path: Path) -> None:
    for visits in (1, 2):
        options = table1.Options(**{**TINY, "visits": visits}, rows=("veckm",), out=tmp_path)
        assert table1.main(options) == 0
        assert found(tmp_path, "table1")["rows"][0]["training"]["visits"] == visits
    assert len(list((tmp_path / "checkpoints").glob("*.pt"))) == 2


def test_a_budget_of_minutes_ends_the_training_instead_of_a_number_of_visits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "ROUND", 2)
    options = table1.Options(**TINY, minutes=0.005, rows=("veckm",), out=tmp_path)
    assert table1.main(options) == 0
    (row,) = found(tmp_path, "table1")["rows"]
    spent = [seconds for seconds, _ in row["training"]["losses"]]
    assert spent == sorted(spent)
    assert row["training"]["seconds"] >= 0.3
    assert all(seconds <= 0.3 for seconds in spent[:-1])
    assert row["training"]["visits"] == 2 * len(spent)


def test_the_ablation_has_a_row_for_each_number_of_layers(tmp_path: Path) -> None:
    options = table1.Options(**TINY, part="layers", layers=(1, 3), seeds=2, out=tmp_path)
    assert table1.main(options) == 0
    rows = found(tmp_path, "layers")["rows"]
    assert [row["title"] for row in rows] == ["VecKM, 1 layer"] * 2 + ["VecKM, 3 layers"] * 2
    assert [row["seed"] for row in rows] == [0, 1, 0, 1]
    assert rows[0]["parameters"] == 3 * 1024 + 3
    assert rows[0]["rmse"] != rows[1]["rmse"]
    text = table1.page(found(tmp_path, "layers"))
    assert "±" in text
    assert "as printed" not in text  # the paper's figure has no numbers
    # That with three layers is the network of the table.
    table1.main(table1.Options(**TINY, rows=("veckm",), seeds=2, out=tmp_path))
    assert errors(tmp_path) == [row["rmse"] for row in rows[2:]]


def test_the_runtime_part_times_every_encoder_or_says_that_it_did_not(tmp_path: Path) -> None:
    options = table1.Options(
        part="runtime", sizes=(100, 120), neighbors=(8,), budget=0.0, out=tmp_path
    )
    assert table1.main(options) == 0
    rows = found(tmp_path, "runtime")["rows"]
    assert len(rows) == 3 * 5
    assert all(len(row["seconds"]) == 3 for row in rows[:5])  # nothing was known of these before
    assert all(not row["seconds"] and row["estimate"] > 0 for row in rows[5:10])
    text = table1.page(found(tmp_path, "runtime"))
    assert "(1.0x)" in text
    assert "not run (est." in text


def test_meshes_of_a_folder_are_split_and_a_folder_without_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corners = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 {}\n"
    faces = "f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
    meshes = tmp_path / "meshes"
    meshes.mkdir()
    for k in range(4):
        (meshes / f"{k}.obj").write_text(corners.format(k + 1) + faces)
    options = table1.Options(**TINY, meshes=meshes, out=tmp_path)
    train_on, test_on = table1.sources(options)
    assert (len(train_on), len(test_on)) == (2, 1)
    heights = [
        float(m.vertices[:, 2].max() / m.vertices[:, 0].max()) for m in (*train_on, *test_on)
    ]
    assert heights == pytest.approx([2, 3, 1])
    empty = tmp_path / "empty"
    empty.mkdir()
    assert table1.main(table1.Options(**TINY, meshes=empty, out=tmp_path)) == 2
    assert "has no meshes" in capsys.readouterr().err


def test_the_command_line_knows_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    options = tyro.cli(table1.Options, args=["--rows", "veckm", "dgcnn-32", "--points", "500"])
    assert (options.rows, options.points) == (("veckm", "dgcnn-32"), 500)
    with pytest.raises(SystemExit, match="2"):
        tyro.cli(table1.Options, args=["--rows", "veckm-9"])
    assert "pointnet-700" in capsys.readouterr().err
