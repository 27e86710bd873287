"""`veckm evaluate normals`: the table, the report for programs, and its errors."""

import json

import numpy as np
import pytest
from releases import write_pcpnet
from verbs import fails, run

from veckm.data import shapes
from veckm.data.primitives import Torus
from veckm.data.protocol import make_cloud
from veckm.tasks.normals import save
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.evaluate import angle_error, rmse
from veckm.tasks.normals.network import NormalNet


@pytest.fixture
def weights(tmp_path):
    """Weights of a small network in a file."""
    path = tmp_path / "normals.safetensors"
    save(NormalNet(stages=1, hidden=8, context=8, seed=0), path, {})
    return path


@pytest.fixture
def release(tmp_path):
    """Two shapes in two sets, in the layout of PCPNet."""
    for seed, name in enumerate(("ring", "tire")):
        for key in ("high", "none"):
            cloud = make_cloud(Torus(0.4), key, seed, n=300, evaluated=40, name=name)
            write_pcpnet(tmp_path / "pclouds", cloud)
    return tmp_path / "pclouds"


def test_the_sets_of_a_release_are_columns_in_the_order_of_the_tables(release, weights, capsys):
    code, text, err = run(capsys, "evaluate", "normals", release, "--weights", weights)
    assert (code, err) == (0, "")
    assert "ring_high, high: 300 points" in text
    head, *rows = text[text.index("RMSE") :].splitlines()
    assert head.split() == ["RMSE,", "degrees", "none", "high", "mean"]
    assert [row[:12].strip() for row in rows] == ["veckm", "PCA, k = 18", "PCA, k = 122"]


def test_a_score_is_the_mean_over_clouds_then_over_sets(release, weights, capsys):
    args = ["evaluate", "normals", release, "--weights", weights, "--json"]
    found = json.loads(run(capsys, *args)[1])["rmse_degrees"]["PCA, k = 18"]
    expected = {}
    for key in ("none", "high"):
        errors = []
        for seed, name in enumerate(("ring", "tire")):
            cloud = make_cloud(Torus(0.4), key, seed, n=300, evaluated=40, name=name)
            normal = pca_normals(cloud.pos, 18)[cloud.subset]
            errors.append(rmse(angle_error(normal, cloud.normal[cloud.subset])))
        expected[key] = sum(errors) / 2
    expected["mean"] = (expected["none"] + expected["high"]) / 2
    assert found == pytest.approx(expected, abs=1e-3)


def test_a_cloud_with_known_normals_is_evaluated_at_every_point(tmp_path, weights, capsys):
    shape = shapes.torus(300)
    path = tmp_path / "ring.npz"
    np.savez(path, xyz=shape.pos.numpy(), normal=shape.normal.numpy())
    args = ["evaluate", "normals", path, "--weights", weights, "--json"]
    found = json.loads(run(capsys, *args)[1])["rmse_degrees"]
    error = rmse(angle_error(pca_normals(shape.pos, 18), shape.normal))
    assert found["PCA, k = 18"] == pytest.approx({"cloud": error, "mean": error}, abs=1e-6)


def test_quiet_prints_no_table(release, weights, capsys):
    args = ["evaluate", "normals", release, "--weights", weights, "--limit", 1, "--quiet"]
    assert run(capsys, *args) == (0, "", "")


def test_without_a_path_the_sample_scan_is_evaluated(capsys):
    report = json.loads(run(capsys, "evaluate", "normals", "--json")[1])
    errors = {method: row["mean"] for method, row in report["rmse_degrees"].items()}
    assert errors["veckm"] < min(errors["PCA, k = 18"], errors["PCA, k = 122"])


def test_what_cannot_be_evaluated_takes_one_line(tmp_path, weights, capsys):
    verb = ("evaluate", "normals")
    assert "at least 1" in fails(capsys, *verb, "--limit", 0)
    assert "has no testset_*.txt" in fails(capsys, *verb, tmp_path, "--weights", weights)
    np.save(tmp_path / "points.npy", shapes.torus(50).pos.numpy())
    assert "has no normals" in fails(capsys, *verb, tmp_path / "points.npy", "--weights", weights)
    assert "nothing.safetensors" in fails(
        capsys, *verb, "--weights", tmp_path / "nothing.safetensors"
    )
