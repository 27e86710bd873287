"""`veckm register` and `veckm find`: what they write and print, and their errors."""

import json
from dataclasses import replace

import numpy as np
import pytest
from verbs import fails, run

import veckm
from veckm.cloud import PointCloud
from veckm.data import shapes

TURN = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A statue, and another sampling of it turned and moved, with a field and normals."""
    folder = tmp_path_factory.mktemp("clouds")
    a, b = (shapes.statue(4000, seed) for seed in (1, 2))
    source = PointCloud(a.pos.double().numpy() @ TURN.T + 3).with_fields(
        intensity=np.arange(4000, dtype=np.uint16)
    )
    source = source.with_normals((a.normal.double().numpy() @ TURN.T).astype(np.float32))
    veckm.write(folder / "source.ply", source)
    veckm.write(folder / "target.ply", PointCloud(b.pos.double().numpy()))
    veckm.write(folder / "other.ply", PointCloud(shapes.box(4000).pos.double().numpy()))
    return folder


def test_the_source_comes_into_the_frame_of_the_target(files, tmp_path, capsys):
    out = tmp_path / "aligned.ply"
    code, text, err = run(capsys, "register", files / "source.ply", files / "target.ply", "-o", out)
    assert (code, err) == (0, "")
    assert "aligned, confidence" in text
    true = shapes.statue(4000, 1)
    found = veckm.read(out)
    np.testing.assert_allclose(found.xyz, true.pos.numpy(), atol=0.05)
    np.testing.assert_allclose(found.normals, true.normal.numpy(), atol=0.1)
    np.testing.assert_array_equal(found.fields["intensity"], np.arange(4000))


def test_las_keeps_its_fields_far_from_where_it_was(files, tmp_path, capsys):
    far = np.array([500_000.0, 5_200_000.0, 100.0])
    source, target, out = (tmp_path / name for name in ("source.las", "target.laz", "out.laz"))
    veckm.write(source, veckm.read(files / "source.ply"))
    veckm.write(target, PointCloud(shapes.statue(4000, 2).pos.double().numpy(), origin=far))
    assert run(capsys, "register", source, target, "-o", out, "--quiet") == (0, "", "")
    found = veckm.read(out)
    np.testing.assert_allclose(found.xyz - far, shapes.statue(4000, 1).pos.numpy(), atol=0.05)
    np.testing.assert_array_equal(found.fields["intensity"], np.arange(4000))


def test_the_crs_of_the_output_is_that_of_the_target_or_else_of_the_source(tmp_path, capsys):
    source, target, out = (tmp_path / name for name in ("source.las", "target.las", "out.las"))
    clouds = [PointCloud(shapes.statue(4000, k).pos.double().numpy()) for k in (1, 2)]
    here, there = ('PROJCS["a",UNIT["metre",1]]', 'PROJCS["b",UNIT["metre",1]]')
    for mine, theirs, expected in ((here, there, there), (here, None, here), (None, None, None)):
        veckm.write(source, replace(clouds[0], crs=mine))
        veckm.write(target, replace(clouds[1], crs=theirs))
        assert run(capsys, "register", source, target, "-o", out, "--quiet") == (0, "", "")
        assert veckm.read(out).crs == expected


def test_several_sources_go_to_a_folder_and_nothing_is_written_without_overlap(
    files, tmp_path, capsys
):
    out = tmp_path / "aligned"
    clouds = [files / name for name in ("source.ply", "other.ply", "target.ply")]
    code, text, err = run(capsys, "register", *clouds, "-o", out, "--json")
    assert (code, err) == (0, "")
    first, second = json.loads(text)["sources"]
    assert first["aligned"]
    assert not second["aligned"]
    assert second["note"]
    R = np.array(first["transform"])[:3, :3]
    np.testing.assert_allclose(R, TURN.T, atol=0.03)
    assert [path.name for path in out.iterdir()] == ["source.ply"]


def test_a_part_is_found_with_its_pose(files, tmp_path, capsys):
    out = tmp_path / "poses.json"
    code, text, err = run(capsys, "find", files / "source.ply", files / "target.ply", "-o", out)
    assert (code, err) == (0, "")
    assert "1 instance" in text
    (found,) = json.loads(out.read_text())["instances"]
    assert found["score"] > 0.8
    np.testing.assert_allclose(np.array(found["transform"])[:3, :3], TURN.T, atol=0.05)


def test_errors_are_one_line(files, tmp_path, capsys):
    assert "give the clouds to move" in fails(capsys, "register", files / "source.ply")
    source, target = files / "source.ply", files / "target.ply"
    assert "another name" in fails(capsys, "register", source, target, "-o", target)
    assert "another name" in fails(capsys, "register", source, target, "-o", source)
    assert ".json" in fails(capsys, "find", source, target, "-o", tmp_path / "poses.txt")
    assert "most must be at least 1" in fails(capsys, "find", source, target, "--most", 0)
