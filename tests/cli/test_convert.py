"""`veckm convert` and `veckm info`: clouds from format to format, and what is in them."""

import json

import numpy as np
import pytest
from verbs import fails, run

import veckm
from veckm.cli import convert, info
from veckm.cloud import PointCloud
from veckm.data import shapes


@pytest.fixture
def cloud(tmp_path):
    """A torus far from zero, with two fields."""
    pos = shapes.torus(500).pos.double().numpy() + np.array([5e5, 4e6, 100])
    fields = {"intensity": np.arange(500, dtype=np.uint16), "quality": np.linspace(0, 1, 500)}
    path = tmp_path / "cloud.ply"
    veckm.write(path, PointCloud(pos, fields=fields))
    return path


@pytest.mark.parametrize("ending", [".las", ".laz", ".npy", ".npz", ".csv", ".pcd"])
def test_fields_and_coordinates_survive(ending, tmp_path, cloud, capsys):
    out = tmp_path / f"out{ending}"
    code, text, err = run(capsys, "convert", cloud, out)
    assert (code, err) == (0, "")
    assert "500 points" in text
    a, b = veckm.read(cloud), veckm.read(out)
    np.testing.assert_allclose(a.xyz, b.xyz, atol=1e-3)
    np.testing.assert_array_equal(a.fields["intensity"], b.fields["intensity"])


def test_pieces_give_what_the_whole_gives(tmp_path, cloud, capsys, monkeypatch):
    whole, pieces = tmp_path / "a.laz", tmp_path / "b.laz"
    assert run(capsys, "convert", cloud, whole, "--quiet") == (0, "", "")
    monkeypatch.setattr(convert, "_BLOCK", 128)
    assert run(capsys, "convert", cloud, pieces, "--quiet") == (0, "", "")
    a, b = veckm.read(whole), veckm.read(pieces)
    np.testing.assert_allclose(a.xyz, b.xyz, atol=1e-3)
    assert list(a.fields) == list(b.fields)


def test_a_mesh_is_sampled(tmp_path, capsys):
    mesh, out = tmp_path / "mesh.obj", tmp_path / "points.ply"
    mesh.write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    assert "samples" in fails(capsys, "convert", mesh, out)
    code, text, _ = run(capsys, "convert", mesh, out, "--samples", 50, "--json")
    assert (code, json.loads(text)["points"]) == (0, 50)
    assert not out.with_name("points.ply.part").exists()


def test_info_tells_what_is_there(cloud, capsys):
    code, text, err = run(capsys, "info", cloud)
    assert (code, err) == (0, "")
    for word in ("500", "intensity uint16", "quality float64", "suggested", "normals", "encode"):
        assert word in text
    report = json.loads(run(capsys, "info", cloud, "--json")[1])
    assert report["points"] == 500
    assert report["low"][0] == pytest.approx(5e5, abs=2)
    assert 0 < report["spacing"] < report["radius"] < 2
    assert [cost["verb"] for cost in report["costs"]] == ["normals", "encode"]


def test_a_large_cloud_is_looked_at_in_places(tmp_path, capsys, monkeypatch):
    path = tmp_path / "large.npy"
    np.save(path, shapes.statue(20_000).pos.double().numpy())
    whole = json.loads(run(capsys, "info", path, "--json")[1])
    monkeypatch.setattr(info, "LARGE", 10_000)
    places = json.loads(run(capsys, "info", path, "--json")[1])
    assert places["costs"][0]["tiles"]
    assert places["spacing"] == pytest.approx(whole["spacing"], rel=0.2)


def test_quick_info_tries_nothing(cloud, capsys):
    report = json.loads(run(capsys, "info", cloud, "--quick", "--json")[1])
    assert (report["costs"], report["radius"]) == ([], None)


def test_bad_files_are_one_line(tmp_path, capsys):
    broken = tmp_path / "broken.las"
    broken.write_bytes(b"LASF" + bytes(50))
    assert str(broken) in fails(capsys, "info", broken)
    assert str(broken) in fails(capsys, "convert", broken, tmp_path / "out.ply")
    assert not (tmp_path / "out.ply").exists()
    assert "supported" in fails(capsys, "info", tmp_path / "cloud.doc")


def test_a_ply_in_text_goes_through_every_verb(tmp_path, capsys):
    path = tmp_path / "text.ply"
    veckm.write(path, PointCloud(shapes.torus(300).pos.numpy()), format="ascii")
    for call in (
        ("info", path),
        ("normals", path, "-o", tmp_path / "out.ply"),
        ("encode", path, "-o", tmp_path / "out.npy", "--dim", 4),
        ("convert", path, tmp_path / "out.laz"),
    ):
        code, _, err = run(capsys, *call)
        assert (code, err) == (0, "")
    assert len(veckm.read(tmp_path / "out.ply")) == len(veckm.read(tmp_path / "out.laz")) == 300
    assert "in text" in fails(
        capsys, "encode", path, "-o", tmp_path / "b.npy", "--tile", 1000, "--radius", 1
    )
