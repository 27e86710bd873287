"""Every verb on files as their own projects ship them: a right answer, or one line that helps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from verbs import fails, run

import veckm
from veckm.io import FileWarning

pytestmark = [pytest.mark.data, pytest.mark.filterwarnings("ignore::veckm.io.FileWarning")]

SMALL = (
    "files/1_4_w_evlr.laz",  # LAS 1.4 with records at its end
    "files/b9.ply",  # in text
    "files/bad_points_1.1.las",  # one point, whose class does not exist
    "files/bunny5000.pts",  # promises 1,500 points and has 35,947
    "files/diamond_ascii.ply",
    "files/diamond_with_bool.ply",  # a type that PLY does not have
    "files/extrabytes.las",  # fields of its own
    "files/file_with_both_wkt_and_geotiff_vlrs.las",
    "files/hippo1.ply",  # a mesh, whose points count
    "files/kitten.xyz",
    "files/lamppost.pcd",
    "files/lots_of_vlr.las",  # one point
    "files/sample_c.las",
    "files/simple.copc.laz",
    "files/simple.laz",
    "files/simple1_1.las",
    "files/simple1_3.las",  # with waveforms
    "files/sphere_20k_normal.xyz",  # with normals
)
LARGE = (
    "files/autzen_trim.laz",
    "files/bun0.pcd",
    "files/lone-star.copc.laz",
    "files/region_growing_rgb_tutorial.pcd",  # organized, with NaN
    "lidar/3dmatch_redkitchen_000.npy",
    "lidar/kitti_obj_000001.bin",
    "lidar/kitti_odo00_000000.bin",
    "lidar/kitti_odo00_000001.bin",
    "lidar/las_autzen_trim.npz",
)
FILES = (*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE))
#: What cannot be done, and the words of the line that helps.
REFUSED = {
    ("encode", "bad_points_1.1.las"): "give --radius",
    ("encode", "lots_of_vlr.las"): "give --radius",
    ("convert.laz", "region_growing_rgb_tutorial.pcd"): "LAS cannot hold points with NaN",
}
#: Files of one point, which has no density to suggest a radius by.
ALONE = ("bad_points_1.1.las", "lots_of_vlr.las")
NOTED = {
    "bunny5000.pts": "promises 1500 points, but 35947 follow",
    "region_growing_rgb_tutorial.pcd": "47,353 of 307,200 points have no coordinates",
}


@pytest.fixture(params=FILES)
def path(request, shared_data: Path) -> Path:
    found = shared_data / request.param
    if not found.exists():
        pytest.skip(f"{request.param} is not in {shared_data}")
    return found


def succeeds(capsys, what, *args):
    """The text of a verb that works; None where it is refused in one line that helps."""
    path = next(arg for arg in args[1:] if isinstance(arg, Path))
    if (what, path.name) in REFUSED:
        assert REFUSED[what, path.name] in fails(capsys, *args)
        return None
    code, out, err = run(capsys, *args)
    assert (code, err) == (0, "")
    assert "--quiet" in args or NOTED.get(path.name, "") in out
    return out


def same_places(after, before):
    np.testing.assert_allclose(after.xyz, before.xyz, atol=2e-3, rtol=1e-6)


def level_ground(path: Path, cloud: veckm.PointCloud) -> np.ndarray:
    """Points of class 2 of a LAS; of a KITTI frame, flat ones that are lowest in their cell."""
    if "classification" in cloud.fields:
        return cloud.fields["classification"] == 2
    if path.suffix != ".bin":
        return np.zeros(len(cloud), bool)
    cells = np.floor(cloud.xyz[:, :2]).astype(int)
    _, inverse = np.unique(cells, axis=0, return_inverse=True)
    low = np.full(len(cloud), np.inf)
    np.minimum.at(low, inverse.reshape(-1), cloud.xyz[:, 2])
    near = cloud.xyz[:, 2] < np.minimum(low[inverse.reshape(-1)] + 0.1, -1.2)  # below the sensor
    return near & (np.abs(cloud.normals[:, 2]) > 0.7)


def test_every_file_is_listed(shared_data: Path):
    found = {
        f"{p.parent.name}/{p.name}" for k in ("files", "lidar") for p in (shared_data / k).iterdir()
    }
    assert found <= {*SMALL, *LARGE}


def test_info_counts_what_the_reader_reads(path, capsys):
    cloud = veckm.read(path)
    found = json.loads(succeeds(capsys, "info", "info", path, "--json"))
    assert found["points"] == len(cloud)
    np.testing.assert_allclose(found["low"], np.nanmin(cloud.xyz, 0), rtol=1e-6, atol=1e-3)
    np.testing.assert_allclose(found["high"], np.nanmax(cloud.xyz, 0), rtol=1e-6, atol=1e-3)
    assert set(found["ranges"]) == set(found["fields"]) == set(cloud.fields)


def test_normals_come_beside_what_was_there(path, tmp_path, capsys):
    out = tmp_path / f"out{'.npz' if path.suffix in ('.bin', '.pts') else path.suffix}"
    out = out.with_name("out.laz") if path.name.endswith(".copc.laz") else out
    if succeeds(capsys, "normals", "normals", path, "-o", out) is None:
        return
    before, after = veckm.read(path), veckm.read(out)
    same_places(after, before)
    good = np.isfinite(before.pos).all(1)
    np.testing.assert_allclose(np.linalg.norm(after.normals[good], axis=1), 1, atol=1e-2)
    assert np.isnan(after.normals[~good]).all()
    assert after.fields["normal_error"][good].max() <= 90
    if before.normals is not None:
        old = np.stack([v for k, v in after.fields.items() if k.endswith("_before")], 1)
        np.testing.assert_array_equal(old, before.normals)
    if before.viewpoint is not None:
        ray = (before.viewpoint - before.xyz)[good]
        cosine = (ray * after.normals[good]).sum(1) / np.linalg.norm(ray, axis=1).clip(1e-9)
        assert (cosine > -0.25).all()  # ground that is seen at a grazing angle is turned up
    ground = level_ground(path, after)
    assert (after.normals[ground, 2] > 0).mean() >= 0.99 if ground.any() else True


def test_features_come_beside_what_was_there(path, tmp_path, capsys):
    out = tmp_path / "out.npz"
    radius = "2" if path.name in ALONE else ""
    asked = ("--radii", radius) if radius else ()
    if succeeds(capsys, "features", "features", path, "-o", out, "--no-height", *asked) is None:
        return
    before, after = veckm.read(path), veckm.read(out)
    same_places(after, before)
    new = [name for name in after.fields if name not in before.fields]
    assert len(new) == (1 if radius else 3) * 22
    good = np.isfinite(before.pos).all(1)
    for name in new:
        np.testing.assert_array_equal(np.isfinite(after.fields[name]), good)


def test_encodings_have_a_row_a_point(path, tmp_path, capsys):
    out = tmp_path / "out.npy"
    if succeeds(capsys, "encode", "encode", path, "-o", out, "--dim", 8) is None:
        return
    G, good = np.load(out), np.isfinite(veckm.read(path).pos).all(1)
    assert len(G) == len(good)
    np.testing.assert_array_equal(np.isfinite(G).all(1), good)


@pytest.mark.parametrize("kind", [".ply", ".laz", ".pcd", ".npz"])
def test_it_is_converted_and_stays_where_it_is(path, tmp_path, capsys, kind):
    out = tmp_path / f"out{kind}"
    shown = run(capsys, "convert", path, out)
    words = REFUSED.get((f"convert{kind}", path.name))
    if words is not None:
        assert shown[0] == 2
        assert words in shown[2]
        return
    assert (shown[0], shown[2]) == (0, "")
    same_places(veckm.read(out), veckm.read(path))


def test_it_is_shown(path, tmp_path, capsys):
    pytest.importorskip("viser", reason="needs the extra viewer")
    out = tmp_path / "out.html"
    code, _, err = run(capsys, "view", path, "--save", out, "--points", 5000)
    assert (code, err) in ((0, ""), (2, err))
    assert err.count("\n") == (code == 2)
    assert out.exists() == (code == 0)


def test_normals_of_a_file_are_evaluated(shared_data: Path, tmp_path, capsys):
    path, out = shared_data / "files" / "sphere_20k_normal.xyz", tmp_path / "out.xyz"
    text = succeeds(capsys, "evaluate", "evaluate", "normals", path, "--json")
    assert json.loads(text)["rmse_degrees"]["veckm"]["cloud"] < 30  # its own are 27 degrees off
    succeeds(capsys, "normals", "normals", path, "-o", out, "--quiet")
    cloud = veckm.read(out)
    radial = cloud.xyz - cloud.xyz.mean(0)
    cosine = (radial * cloud.normals).sum(1) / np.linalg.norm(radial, axis=1)
    assert np.degrees(np.arccos(cosine.clip(-1, 1))).mean() < 4  # outwards, of a noisy sphere


def test_the_warning_is_one_of_python_too(shared_data: Path):
    with pytest.warns(FileWarning, match="bunny5000"):
        veckm.read(shared_data / "files" / "bunny5000.pts")
