"""`veckm normals`: what it says, what it writes, and what it says when it cannot."""

import json

import numpy as np
import pytest
import torch
from verbs import fails, run

import veckm
from veckm.data import shapes


@pytest.fixture
def cloud(tmp_path):
    """A small cloud in a file."""
    path = tmp_path / "cloud.npy"
    np.save(path, shapes.torus(600).pos.numpy())
    return path


def test_it_writes_the_normals_that_the_library_gives(tmp_path, cloud, capsys):
    out = tmp_path / "normals.npy"
    code, text, err = run(capsys, "normals", cloud, "-o", out, "--orient", "up")
    assert (code, err) == (0, "")
    assert str(out) in text
    expected = veckm.estimate_normals(torch.from_numpy(np.load(cloud)), orient="up")
    np.testing.assert_allclose(np.load(out), expected.numpy(), atol=1e-6)


def test_npz_has_errors_and_curvature_as_well(tmp_path, cloud, capsys):
    out = tmp_path / "found.npz"
    assert run(capsys, "normals", cloud, "-o", out, "--curvature", "--quiet") == (0, "", "")
    found = np.load(out)
    assert found["normal"].shape == (600, 3)
    assert found["error"].shape == (600,)
    assert found["curvature"].shape == (600, 2)


def test_the_sample_shows_pca_beside(capsys):
    code, text, err = run(capsys, "normals")
    assert (code, err) == (0, "")
    rows = {
        line[:22].strip(): float(line.split()[-2])
        for line in text.splitlines()
        if "degrees" in line and line.startswith("  ")
    }
    assert set(rows) == {"veckm network", "PCA, k = 18", "PCA, k = 122"}
    assert rows["veckm network"] < min(rows["PCA, k = 18"], rows["PCA, k = 122"])


def test_json(cloud, capsys):
    code, text, _ = run(capsys, "normals", cloud, "--json", "--method", "moments")
    report = json.loads(text)
    assert code == 0
    assert report["points"] == 600
    assert report["method"] == "moments"
    assert report["compared"] == []


def test_viewpoint(tmp_path, cloud, capsys):
    out = tmp_path / "n.npy"
    assert run(capsys, "normals", cloud, "-o", out, "--viewpoint", 0, 0, 9, "--quiet")[0] == 0
    pos = np.load(cloud)
    assert ((np.array([0, 0, 9]) - pos) * np.load(out)).sum(1).min() >= 0


def test_what_is_wrong_is_said_in_one_line(tmp_path, cloud, capsys):
    assert "no.npy" in fails(capsys, "normals", tmp_path / "no.npy")
    assert ".npy or .npz" in fails(capsys, "normals", cloud, "-o", tmp_path / "x.ply")
    assert "cloud itself" in fails(capsys, "normals", cloud, "-o", cloud)
    flat = tmp_path / "flat.npy"
    np.save(flat, np.zeros((4, 2), np.float32))
    assert "(N, 3)" in fails(capsys, "normals", flat)
