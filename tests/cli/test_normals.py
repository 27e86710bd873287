"""`veckm normals`: its text, the files it writes, and its errors."""

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
    out = tmp_path / "normals.ply"
    code, text, err = run(capsys, "normals", cloud, "-o", out, "--orient", "up")
    assert (code, err) == (0, "")
    assert str(out) in text
    pos = torch.from_numpy(np.load(cloud))
    found = veckm.read(out)
    expected = veckm.estimate_normals(pos, orient="up")
    np.testing.assert_allclose(found.normals, expected.numpy(), atol=1e-6)
    np.testing.assert_array_equal(found.xyz, pos.double().numpy())


def test_errors_and_curvature_go_along(tmp_path, cloud, capsys):
    out = tmp_path / "found.npz"
    assert run(capsys, "normals", cloud, "-o", out, "--quiet") == (0, "", "")
    found = veckm.read(out)
    assert set(found.fields) == {
        "nx", "ny", "nz", "normal_error", "curvature_1", "curvature_2",
    }  # fmt: skip
    assert (found.fields["curvature_1"] >= found.fields["curvature_2"]).all()


def test_tiles_give_what_the_whole_cloud_gives(tmp_path, cloud, capsys):
    whole, tiles = tmp_path / "whole.ply", tmp_path / "tiles.ply"
    asked = ("--orient", "up", "--quiet")
    np.save(cloud, shapes.statue(3000).pos.double().numpy())
    assert run(capsys, "normals", cloud, "-o", whole, *asked) == (0, "", "")
    code, text, err = run(capsys, "normals", cloud, "-o", tiles, "--tile", 1000, *asked[:2])
    assert (code, err) == (0, "")
    assert "in tiles" in text
    a, b = veckm.read(whole), veckm.read(tiles)
    assert list(a.fields) == list(b.fields)
    np.testing.assert_array_equal(a.xyz, b.xyz)
    np.testing.assert_allclose(a.normals, b.normals, atol=1e-3)
    assert not (tmp_path / "tiles.ply.parts").exists()


@pytest.mark.parametrize("tiles", [(), ("--tile", 1000)])
def test_the_text_says_that_a_copc_comes_out_as_plain_laz(tmp_path, cloud, capsys, tiles):
    source = tmp_path / "cloud.copc.laz"  # the name is what counts
    veckm.write(tmp_path / "cloud.laz", veckm.read(cloud))
    (tmp_path / "cloud.laz").rename(source)
    code, text, err = run(capsys, "normals", source, "-o", tmp_path / "out.laz", *tiles)
    assert (code, err) == (0, "")
    assert "the octree of the COPC is not kept" in text


def test_what_tiles_cannot_do_is_one_line(cloud, capsys):
    assert "to a file" in fails(capsys, "normals", cloud, "--tile", 1000, "--quiet")


def test_the_default_orientation_is_the_same_in_tiles(tmp_path, cloud, capsys):
    whole, tiles = tmp_path / "whole.ply", tmp_path / "tiles.ply"
    np.save(cloud, shapes.sphere(4000).pos.double().numpy())
    assert run(capsys, "normals", cloud, "-o", whole, "--quiet") == (0, "", "")
    assert run(capsys, "normals", cloud, "-o", tiles, "--tile", 1000, "--quiet") == (0, "", "")
    a, b = veckm.read(whole), veckm.read(tiles)
    assert list(a.fields) == list(b.fields)
    assert ((a.normals * b.normals).sum(1) > 0.99).all()


def test_the_error_on_the_sample_is_that_of_its_known_normals(capsys):
    code, text, err = run(capsys, "normals")
    assert (code, err) == (0, "")
    sample = shapes.house(30_000, meters=True)
    cosine = (veckm.estimate_normals(sample.pos) * sample.normal).sum(1).abs().clamp(max=1)
    expected = float(cosine.double().acos().rad2deg().square().mean().sqrt())
    table = [line for line in text.splitlines() if line.startswith(("veckm,", "PCA,"))]
    mine, usual, best = (float(line[44:].split()[0]) for line in table)
    assert mine == pytest.approx(expected, abs=0.006)
    assert mine < best <= usual


def test_json(cloud, capsys):
    code, text, _ = run(capsys, "normals", cloud, "--json", "--method", "moments")
    report = json.loads(text)
    assert code == 0
    assert report["points"] == 600
    assert report["method"] == "moments"
    assert report["true_error_degrees"] is None


def test_viewpoint(tmp_path, cloud, capsys):
    out = tmp_path / "n.npy"
    assert run(capsys, "normals", cloud, "-o", out, "--viewpoint", 0, 0, 9, "--quiet")[0] == 0
    pos = np.load(cloud)
    assert ((np.array([0, 0, 9]) - pos) * veckm.read(out).normals).sum(1).min() >= 0


def test_what_is_wrong_is_said_in_one_line(tmp_path, cloud, capsys):
    assert "no.npy" in fails(capsys, "normals", tmp_path / "no.npy")
    assert ".ply or" in fails(capsys, "normals", cloud, "-o", tmp_path / "x.doc")
    assert "cloud itself" in fails(capsys, "normals", cloud, "-o", cloud)
    flat = tmp_path / "flat.npy"
    np.save(flat, np.zeros((4, 2), np.float32))
    assert "(N, 3)" in fails(capsys, "normals", flat)


def test_normals_point_to_where_a_moving_scanner_was(tmp_path, capsys):
    """A wall seen first from one side and then from the other."""
    rng = np.random.default_rng(0)
    wall = rng.random((2000, 3)) * [10.0, 1e-3, 5.0]
    time = np.repeat([100.0, 200.0], 1000)
    scan, track, out = tmp_path / "wall.laz", tmp_path / "track.csv", tmp_path / "out.laz"
    veckm.write(scan, veckm.PointCloud(wall, fields={"gps_time": time}))
    track.write_text("time,x,y,z\n90,5,-20,2\n110,5,-20,2\n190,5,20,2\n210,5,20,2\n")
    asked = ("normals", scan, "--trajectory", track)
    code, text, err = run(capsys, *asked, "-o", out)
    assert (code, err) == (0, "")
    assert "towards the sensor" in text
    across = veckm.read(out).normals[:, 1]
    assert (across[:1000] < -0.9).all()
    assert (across[1000:] > 0.9).all()
    assert "exclude each other" in fails(capsys, *asked, "--orient", "up")
    assert "in memory" in fails(capsys, *asked, "--tile", 1000, "-o", tmp_path / "tiles.laz")
    track.write_text("0 5 -20 2\n50 5 -20 2\n")
    assert "has times 0 to 50, the points 100 to 200" in fails(capsys, *asked)
    track.write_text("0 5 -20\n")
    assert "must have columns time, x, y, z" in fails(capsys, *asked)
