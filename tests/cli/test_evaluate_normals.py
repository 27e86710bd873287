"""`veckm evaluate normals`: the table, the report for programs, and what it says when it cannot."""

import json

import numpy as np
import pytest
import tyro

from veckm.cli.evaluate import EvaluateNormals
from veckm.data import shapes
from veckm.data.protocol import SETS
from veckm.tasks.normals import save
from veckm.tasks.normals.evaluate import FREE, OURS
from veckm.tasks.normals.network import NormalNet

TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def network(seed):
    """Small, with random weights."""
    return NormalNet(stages=1, hidden=8, context=8, seed=seed)


@pytest.fixture
def weights(tmp_path):
    """Weights in a file."""
    path = tmp_path / "normals.safetensors"
    save(network(0), path, {})
    return path


@pytest.fixture
def meshes(tmp_path):
    """A folder with two meshes."""
    folder = tmp_path / "meshes"
    folder.mkdir()
    for name in ("first", "second"):
        (folder / f"{name}.obj").write_text(TETRAHEDRON)
    return folder


def run(capsys, *args):
    """What `veckm evaluate normals ...` prints."""
    tyro.cli(EvaluateNormals, args=[*map(str, args)]).run()
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_meshes_are_put_into_the_six_sets_and_compared_in_a_table(meshes, weights, capsys):
    text = run(capsys, "--meshes", meshes, "--weights", weights, "--points", 100, "--limit", 1)
    assert text.count("cloud ") == len(SETS)
    for key in SETS:
        assert f"first, {key}, 100 points" in text
    assert "second" not in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    names = [line.split("|")[1].strip() for line in table[2:]]
    assert names == [
        OURS, FREE,
        "PCA, k = 18", "PCA, k = 122", "PCA, k = 450", "PCA, best k per set",
        "Jet, k = 18", "Jet, k = 122", "Jet, k = 450", "Jet, best k per set",
    ]  # fmt: skip
    assert [cell.strip() for cell in table[0].split("|")[2:-1]] == [*SETS, "mean"]
    assert "6 clouds. veckm is " in text


def test_the_report_for_programs_is_one_object(meshes, weights, capsys):
    text = run(
        capsys, "--meshes", meshes, "--weights", weights, "--points", 300, "--json", "--limit", 1
    )
    report = json.loads(text)
    assert (report["clouds"], report["points"], report["shapes"]) == (6, 300, str(meshes))
    rows = report["rows"]
    assert all(list(row) == [*SETS, "mean"] for row in rows.values())
    # On flat faces few neighbors are right, and all points of the cloud are not.
    assert rows["PCA, k = 18"]["none"] < rows["PCA, k = 450"]["none"] < 90
    best = rows["PCA, best k per set"]
    assert all(best[key] <= rows[f"PCA, k = {k}"][key] for key in best for k in (18, 122, 450))


def test_without_a_folder_the_shapes_are_procedural(weights, capsys):
    text = run(capsys, "--weights", weights, "--points", 100, "--limit", 1)
    assert "surface 10000, none, 100 points" in text
    assert text.count("cloud ") == len(SETS)


def test_shapes_with_normals_have_their_own_number_of_points(tmp_path, weights, capsys):
    shape = shapes.torus(300)
    np.savez(tmp_path / "ring.npz", xyz=shape.pos.numpy(), normal=shape.normal.numpy())
    text = run(capsys, "--pcpnet", tmp_path, "--weights", weights)
    assert "ring, none, 300 points" in text
    assert "ring, stripe, 120 points" in text


def test_scores_are_saved_and_not_computed_again(tmp_path, meshes, weights, capsys, monkeypatch):
    args = ["--meshes", meshes, "--weights", weights, "--points", 100, "-o", tmp_path / "s.jsonl"]
    run(capsys, *args, "--limit", 1)
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 1 + 6 * 8
    first = run(capsys, *args, "--quiet")
    assert first.startswith("| RMSE in degrees ")
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 1 + 12 * 8
    monkeypatch.setattr("veckm.tasks.normals.evaluate.estimate", None)  # would fail if called
    assert run(capsys, *args, "--quiet") == first


def test_scores_of_other_weights_are_not_taken_for_these(tmp_path, meshes, weights, capsys):
    args = ["--meshes", meshes, "--points", 100, "--limit", 1, "-o", tmp_path / "s.jsonl"]
    run(capsys, *args, "--weights", weights)
    save(network(1), weights, {})
    with pytest.raises(ValueError, match="of another run, with other weights"):
        run(capsys, *args, "--weights", weights)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--meshes", "a", "--pcpnet", "b"], "give one of them"),
        (["--points", "0"], "at least 1"),
        (["--limit", "0"], "at least 1"),
        (["-o", "scores.csv"], "scores are written as .jsonl"),
    ],
)
def test_bad_options_are_named_before_any_work(args, message):
    with pytest.raises(ValueError, match=message):
        tyro.cli(EvaluateNormals, args=args).run()


def test_missing_files_are_named(tmp_path, weights):
    with pytest.raises(FileNotFoundError, match=r"nothing\.json"):
        tyro.cli(EvaluateNormals, args=["--weights", str(tmp_path / "nothing.safetensors")]).run()
    args = ["--weights", str(weights), "--meshes", str(tmp_path)]
    with pytest.raises(FileNotFoundError, match="has no meshes"):
        tyro.cli(EvaluateNormals, args=args).run()
