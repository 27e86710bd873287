"""What a user is told: while it runs, when it stops, and about the file."""

from __future__ import annotations

import errno
import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from test_progress import Terminal
from verbs import fails, run

import veckm
from veckm.cloud import PointCloud
from veckm.data import shapes


@pytest.fixture
def cloud(tmp_path):
    """A small cloud in a file."""
    path = tmp_path / "cloud.npy"
    np.save(path, shapes.statue(3000).pos.double().numpy())
    return path


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["train"], ["nothing"]])
def test_help_and_version_do_not_wait_for_torch(args):
    code = "import sys; from veckm.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True
    )
    assert not {"torch", "numpy", "tyro", "laspy"} & set(done.stdout.splitlines()[-1].split())


def test_public_names_are_there_without_being_asked_for():
    code = (
        "import veckm.planning, veckm.tasks.normals, veckm;"
        "assert set(veckm.__all__) <= set(dir(veckm));"
        "assert all(callable(getattr(veckm, n)) for n in veckm.__all__ if n != '__version__')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("more", [(), ("--tile", "1000")])
def test_one_bar_names_the_passes(tmp_path, cloud, capsys, monkeypatch, more):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("tqdm.std.time", itertools.count(1.0).__next__)
    code, _, _ = run(capsys, "normals", cloud, "-o", tmp_path / "o.ply", *more)
    assert code == 0
    named = ["of 5: normals", "of 5: curvature"] if more else ["2 of 5: normals", "4 of 5: curv"]
    for words in named:
        assert words in screen.getvalue()
    assert "\n" not in screen.getvalue()  # one line


def test_the_bar_of_several_clouds_names_the_cloud(tmp_path, cloud, capsys, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("tqdm.std.time", itertools.count(1.0).__next__)
    assert run(capsys, "normals", cloud, "--out-dir", tmp_path / "o")[0] == 0
    assert "1 of 1, cloud.npy: 2 of 5: normals" in screen.getvalue()


def test_ctrl_c_says_interrupted(cloud, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("veckm.cli.normals.estimate", stop)
    assert run(capsys, "normals", cloud)[0] == 130
    monkeypatch.setattr("veckm.cli._parse", stop)
    assert run(capsys, "normals", cloud) == (130, "", "veckm: interrupted\n")


@pytest.mark.parametrize("more", [(), ("--tile", "1000")])
def test_a_full_disk_names_the_file_and_what_to_do(tmp_path, cloud, capsys, monkeypatch, more):
    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    out = tmp_path / "o.ply"
    code, _, err = run(capsys, "normals", cloud, "-o", out, *more, "--quiet")
    assert code == 2
    assert str(out) in err
    assert "No space left on device; free some space" in err
    assert not out.exists()


@pytest.mark.parametrize(
    "error",
    [MemoryError("Unable to allocate 9 TiB"), RuntimeError("alloc_cpu: can't allocate memory")],
)
def test_a_lack_of_memory_names_the_cloud_and_what_to_do(cloud, capsys, monkeypatch, error):
    def lack(*_, **__):
        raise error

    monkeypatch.setattr("veckm.cli.normals.estimate", lack)
    code, _, err = run(capsys, "normals", cloud, "--quiet")
    assert code == 2
    assert str(cloud) in err
    assert "--tile" in err


def test_normals_that_were_there_are_kept_under_another_name(tmp_path, capsys):
    pos, old = shapes.sphere(300).pos.numpy(), np.tile(np.float32([0, 0, 1]), (300, 1))
    for ending, names in {
        ".ply": ("nx", "ny", "nz"),
        ".laz": ("NormalX", "NormalY", "NormalZ"),
        ".pcd": ("normal_x", "normal_y", "normal_z"),
    }.items():
        for more in ((), ("--tile", "1000")) if ending != ".pcd" else ((),):
            path, out = tmp_path / f"in{ending}", tmp_path / f"out{len(more)}{ending}"
            veckm.write(path, PointCloud(pos).with_normals(old))
            code, text, err = run(capsys, "normals", path, "-o", out, *more)
            assert (code, err) == (0, "")
            assert f"are kept as {' '.join(f'{n}_before' for n in names)}" in text
            found = veckm.read(out)
            for name, column in zip(names, old.T, strict=True):
                np.testing.assert_array_equal(found.fields[f"{name}_before"], column)
            assert np.abs(found.normals - old).max() > 0.5
            again = tmp_path / f"again{len(more)}{ending}"
            text = run(capsys, "normals", out, "-o", again, *more)[1]
            assert "the normals that the file had are replaced" in text
            assert "normal_error curvature_1 curvature_2 that the file had are replaced" in text


def test_expected_errors_are_at_most_90_degrees(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "noise.npy", rng.normal(size=(3000, 3)))
    for method in ("network", "moments"):
        out = tmp_path / f"{method}.npz"
        call = ("normals", tmp_path / "noise.npy", "-o", out, "--method", method, "--quiet")
        assert run(capsys, *call)[0] == 0
        assert veckm.read(out).fields["normal_error"].max() <= 90


def test_points_without_coordinates_keep_their_rows(tmp_path, capsys):
    pos = shapes.statue(3000).pos.numpy().copy()
    bad = np.random.default_rng(0).random(3000) < 0.3
    pos[bad] = np.nan
    pos[:700] = np.nan  # whole blocks too
    bad[:700] = True
    path = tmp_path / "organized.ply"
    veckm.write(path, PointCloud(pos, fields={"row": np.arange(3000, dtype=np.int32)}))
    results = {}
    for name, more in {"whole": (), "tiles": ("--tile", "1000")}.items():
        out = tmp_path / f"{name}.ply"
        code, text, err = run(capsys, "normals", path, "-o", out, "--orient", "up", *more)
        assert (code, err) == (0, "")
        assert f"{bad.sum():,} of 3,000 points have no coordinates" in text
        found = results[name] = veckm.read(out)
        np.testing.assert_array_equal(found.fields["row"], np.arange(3000))
        np.testing.assert_array_equal(found.pos, pos)
        np.testing.assert_array_equal(np.isnan(found.normals).all(1), bad)
        alone = veckm.estimate_normals(__import__("torch").from_numpy(pos[~bad]), orient="up")
        np.testing.assert_allclose(found.normals[~bad], alone.numpy(), atol=2e-3)
        code, text, _ = run(
            capsys,
            "encode",
            path,
            "-o",
            tmp_path / f"{name}.npy",
            "--dim",
            4,
            "--radius",
            0.3,
            *more,
        )
        assert code == 0
        np.testing.assert_array_equal(np.isnan(np.load(tmp_path / f"{name}.npy")).all(1), bad)
        assert "LAS cannot hold" in fails(
            capsys, "normals", path, "-o", tmp_path / "o.laz", *more, "--quiet"
        )
    assert f"{bad.sum():,} of 3,000" in run(capsys, "info", path)[1]
    np.save(tmp_path / "none.npy", np.full((5, 3), np.nan))
    for call in (("info",), ("normals",), ("encode",)):
        assert "all 5 points are NaN" in fails(capsys, *call, tmp_path / "none.npy")


def test_copies_do_not_stop_info(tmp_path, capsys):
    path = tmp_path / "copies.npy"
    pos = shapes.sphere(500).pos.numpy()
    np.save(path, np.repeat(pos, 100, 0))
    code, text, err = run(capsys, "info", path)
    assert (code, err) == (0, "")
    assert "49,500 of 50,000 points are copies" in text
    report = json.loads(run(capsys, "info", path, "--json")[1])
    np.save(path, pos)
    assert report["radius"] == pytest.approx(
        json.loads(run(capsys, "info", path, "--json")[1])["radius"]
    )
    np.save(path, np.ones((500, 3)))
    assert run(capsys, "info", path)[0] == 0


def test_info_names_classes_the_system_and_the_density(tmp_path, capsys):
    rng = np.random.default_rng(0)
    feet = 10 / 0.3048
    pos = np.c_[rng.random((20_000, 2)) * [10 * feet, 20 * feet], np.zeros(20_000)]
    wkt = (
        'PROJCS["Somewhere (ft)",GEOGCS["G",DATUM["D",SPHEROID["S",6378137,298]],'
        'PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],'
        'UNIT["foot",0.3048]]'
    )
    classes = np.r_[np.full(15_000, 2), np.full(4000, 6), np.full(1000, 77)].astype(np.uint8)
    path = tmp_path / "a.laz"
    veckm.write(path, PointCloud(pos, fields={"classification": classes}, crs=wkt))
    code, text, _ = run(capsys, "info", path, "--quick")
    assert code == 0
    assert "Somewhere (ft)" in text
    assert "ground 15,000, building 4,000, class 77 1,000" in text
    assert "classification uint8, 2 to 77" in text
    found = json.loads(run(capsys, "info", path, "--quick", "--json")[1])
    assert found["density"] / 0.3048**2 == pytest.approx(1, rel=0.1)  # 20,000 on 100 m x 200 m


def test_what_changes_on_the_way_is_one_line(tmp_path, capsys):
    pos = shapes.sphere(300).pos.double().numpy()
    a, b, c, d = (tmp_path / n for n in ("a.laz", "b.ply", "c.laz", "d.laz"))
    import laspy

    header = laspy.LasHeader(version="1.2", point_format=3)
    header.scales = np.full(3, 0.001)
    las = laspy.LasData(header)
    las.x, las.y, las.z = pos.T
    las.write(a)
    assert "note       PLY has no scale (0.001)" in run(capsys, "convert", a, b)[1]
    assert "PLY has no scale: LAS 1.4, scale 1e-08" in run(capsys, "convert", b, c)[1]
    assert "version 1.2 became 1.4" in run(capsys, "normals", a, "-o", d)[1]
    assert "note" not in run(capsys, "convert", a, tmp_path / "e.laz")[1]
