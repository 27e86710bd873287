"""`veckm encode`: its text, the files it writes, and its errors."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from verbs import fails, run

import veckm
from veckm.cli import VERBS, main
from veckm.cli.verb import save_array
from veckm.data import shapes

FAR = np.array([5e5, 5e6, 300.0])  # where surveys are


@pytest.fixture
def cloud(tmp_path):
    """A small cloud in a file."""
    path = tmp_path / "cloud.npy"
    np.save(path, shapes.torus(300).pos.numpy())
    return path


def test_it_writes_the_encodings_that_the_library_gives(tmp_path, cloud, capsys):
    out = tmp_path / "features.npy"
    code, text, err = run(
        capsys, "encode", cloud, "-o", out, "--dim", 16, "--radius", 0.4, "--seed", 3
    )
    assert (code, err) == (0, "")
    assert str(out) in text
    pos = torch.from_numpy(np.load(cloud))
    G = np.load(out)
    assert G.dtype == np.complex64
    exact = veckm.VecKM(16, radius=0.4, detail=6, seed=3, engine="dense")(pos.double())
    error = np.linalg.norm(G - exact.numpy(), axis=1) / 4  # the rows have norm sqrt(16)
    assert error.mean() < 1e-2


def test_the_paper_s_parameters_mean_the_same_as_radius_and_detail(tmp_path, cloud, capsys):
    a, b = tmp_path / "a.npy", tmp_path / "b.npy"
    run(capsys, "encode", cloud, "-o", a, "--dim", 8, "--radius", 0.18, "--detail", 10.8, "--quiet")
    run(capsys, "encode", cloud, "-o", b, "--dim", 8, "--beta", 10, "--alpha", 60, "--quiet")
    np.testing.assert_allclose(np.load(a), np.load(b), atol=1e-4)


def test_the_report_says_what_was_done(cloud, capsys):
    code, text, err = run(capsys, "encode", cloud, "--dim", 16)
    assert (code, err) == (0, "")
    for word in ("300 points", "suggested", "16 complex numbers", "chosen by auto", "points/s"):
        assert word in text


def test_the_json_report_is_one_object(cloud, capsys):
    code, text, _ = run(capsys, "encode", cloud, "--dim", 16, "--json")
    report = json.loads(text)
    assert code == 0
    assert report["veckm"] == veckm.__version__
    assert report["cloud"]["points"] == 300
    assert report["result"]["shape"] == [300, 16]
    assert report["setting"]["suggested"]
    assert set(report["engine"]["expected"]) == {"dense", "neighbors", "random", "grid"}


@pytest.mark.parametrize("engine", ["dense", "neighbors", "random", "grid"])
def test_every_engine_can_be_asked_for(cloud, capsys, engine):
    code, text, _ = run(capsys, "encode", cloud, "--dim", 8, "--engine", engine, "--json")
    assert code == 0
    assert json.loads(text)["engine"]["engine"] == engine


def test_a_ball_window_is_exact(tmp_path, cloud, capsys):
    out = tmp_path / "ball.npy"
    options = ("--dim", 8, "--window", "ball", "--radius", 0.4)
    assert run(capsys, "encode", cloud, "-o", out, *options, "--quiet") == (0, "", "")
    pos = torch.from_numpy(np.load(cloud)).double()
    exact = veckm.VecKM(8, radius=0.4, detail=6, window="ball", engine="dense")(pos)
    np.testing.assert_allclose(np.load(out), exact.numpy(), atol=1e-4)


def test_quiet_says_nothing(tmp_path, cloud, capsys):
    out = tmp_path / "f.npy"
    assert run(capsys, "encode", cloud, "-o", out, "--dim", 8, "--quiet") == (0, "", "")
    assert out.exists()


def test_large_coordinates_in_float64_lose_nothing(tmp_path, capsys):
    x = shapes.torus(300).pos.double().numpy()
    near, far = tmp_path / "near.npy", tmp_path / "far.npy"
    np.save(near, x)
    np.save(far, x + FAR)
    for path in (near, far):
        run(capsys, "encode", path, "-o", path.with_suffix(".out.npy"), "--dim", 8, "--radius", 0.4)
    a, b = (np.load(path.with_suffix(".out.npy")) for path in (near, far))
    np.testing.assert_allclose(a, b, atol=1e-4)


def test_coordinates_that_float32_has_rounded_away_are_pointed_out(tmp_path, capsys):
    path = tmp_path / "far.npy"
    np.save(path, (shapes.torus(300).pos.numpy() + FAR).astype(np.float32))
    _, text, _ = run(capsys, "encode", path, "--dim", 8, "--radius", 0.4)
    assert "save them as float64" in text


def test_an_accuracy_beyond_float32_is_computed_in_float64(tmp_path, cloud, capsys):
    out = tmp_path / "exact.npy"
    options = ("--dim", 8, "--eps", 1e-7, "--engine", "grid", "--radius", 0.4)
    _, text, _ = run(capsys, "encode", cloud, "-o", out, *options, "--json")
    assert json.loads(text)["cloud"]["computed_in"] == "float64"
    pos = torch.from_numpy(np.load(cloud)).double()
    exact = veckm.VecKM(8, radius=0.4, detail=6, engine="dense")(pos).numpy()
    error = np.linalg.norm(np.load(out) - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert error.mean() < 2e-7  # stored as complex64, whose rounding is all that is left


@pytest.mark.parametrize("order", ["<", ">"])
def test_an_npz_with_xyz_is_read_whatever_its_byte_order(tmp_path, cloud, capsys, order):
    path = tmp_path / "cloud.npz"
    x = np.load(cloud)
    np.savez(path, xyz=x.astype(f"{order}f4"), rgb=x)
    code, text, _ = run(capsys, "encode", path, "--dim", 8)
    assert code == 0
    assert "300 points, float32" in text


x = np.ones((10, 3))
BAD_ARRAYS = {
    "holds an array of shape (3,)": np.ones(3),
    "holds an array of shape (2, 10, 3)": np.ones((2, 10, 3)),
    "holds int64 numbers": x.astype(np.int64),
    "holds complex128 numbers": x.astype(complex),
    "has no points": x[:0],
    "give --radius": x[:1],
    "coincide": x,
}


@pytest.mark.parametrize("message", BAD_ARRAYS)
def test_an_array_that_is_no_cloud_is_refused_in_one_line(tmp_path, capsys, message):
    path = tmp_path / "bad.npy"
    np.save(path, BAD_ARRAYS[message])
    assert message in fails(capsys, "encode", path)


BAD_FILES = {
    "text.npy": (b"hello", "is not a .npy file"),
    "empty.npz": (b"", "is not a .npz file"),
    "cut.npy": (b"\x93NUMPY\x01\x00v\x00{'descr'", "cannot be read"),
    "cut.npz": (b"PK\x03\x04", "cannot be read"),
    "cloud.ply": (b"ply\n", "cannot be read as PLY: it has no PLY header"),
    "cloud.obj": (b"v 0 0 0\n", "is a mesh: give samples="),
    "cloud.doc": (b"", "cannot read .doc files; supported: .ply .las"),
    "cloud": (b"", "supported: .ply .las"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_holds_no_array_is_refused_in_one_line(tmp_path, capsys, name):
    content, message = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    assert message in fails(capsys, "encode", tmp_path / name)


def test_a_pickle_is_never_run(tmp_path, capsys):
    np.save(tmp_path / "objects.npy", np.array([print], dtype=object), allow_pickle=True)
    assert "cannot be read" in fails(capsys, "encode", tmp_path / "objects.npy")


def test_a_missing_file_is_named(tmp_path, capsys):
    assert "nowhere.npy: No such file" in fails(capsys, "encode", tmp_path / "nowhere.npy")


def test_an_archive_without_xyz_lists_what_it_has(tmp_path, capsys):
    np.savez(tmp_path / "two.npz", a=x, b=x)
    assert "['a', 'b']" in fails(capsys, "encode", tmp_path / "two.npz")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--radius", "0.3", "--beta", "2"], "either beta or radius"),
        (["--alpha", "3", "--detail", "2"], "either alpha or detail"),
        (["--radius", "-1"], "radius must be positive"),
        (["--radius", "nan"], "radius must be positive"),
        (["--dim", "0"], "at least 1"),
        (["--eps", "2"], "at most 0.5"),
        (["--eps", "1e-12"], "below what"),
    ],
)
def test_options_that_make_no_sense_are_refused(cloud, capsys, options, message):
    assert message in fails(capsys, "encode", cloud, *options)


def test_tiles_refuse_two_sizes_of_the_window_too(cloud, capsys):
    options = ("--tile", 1000, "--radius", 0.3, "--beta", 2)
    assert "either beta or radius" in fails(capsys, "encode", cloud, *options)


def test_the_report_is_of_what_is_written(tmp_path, cloud, capsys):
    out = tmp_path / "few.npy"
    text = run(capsys, "encode", cloud, "-o", out, "--dim", 8, "--components", 3, "--json")[1]
    assert json.loads(text)["result"]["shape"] == list(np.load(out).shape) == [300, 3]


@pytest.mark.parametrize("args", [["--radios", "3"], ["--radius", "x"], ["--engine", "fast"]])
def test_options_that_do_not_parse_exit_with_two(cloud, capsys, args):
    with pytest.raises(SystemExit) as stop:
        main(["encode", str(cloud), *args])
    assert stop.value.code == 2
    assert args[0] in capsys.readouterr().err


def test_outputs_that_cannot_be_written_are_refused_before_the_work(tmp_path, cloud, capsys):
    (tmp_path / "folder.npy").mkdir()
    assert "written as .ply or" in fails(capsys, "encode", cloud, "-o", tmp_path / "f.pdf")
    assert "there is no folder" in fails(capsys, "encode", cloud, "-o", tmp_path / "no" / "f.npy")
    assert "is a folder" in fails(capsys, "encode", cloud, "-o", tmp_path / "folder.npy")
    assert "is the cloud itself" in fails(capsys, "encode", cloud, "-o", cloud)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused_before_the_work(tmp_path, cloud, capsys):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert "cannot write in" in fails(capsys, "encode", cloud, "-o", locked / "f.npy")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "f.npy"
    np.save(path, np.arange(3))

    def half(file, array, **_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", half)
    with pytest.raises(OSError, match="No space left"):
        save_array(path, np.zeros(5))
    assert [p.name for p in tmp_path.iterdir()] == ["f.npy"]
    np.testing.assert_array_equal(np.load(path), np.arange(3))


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "f.npy"
    np.save(path, np.arange(3))
    path.chmod(0o640)
    reader = path.open("rb")  # whoever reads the old file goes on reading the old file
    save_array(path, np.zeros(5))
    with reader:
        np.testing.assert_array_equal(np.load(reader), np.arange(3))
    np.testing.assert_array_equal(np.load(path), np.zeros(5))
    assert path.stat().st_mode & 0o777 == 0o640


def test_an_output_through_a_link_goes_where_the_link_points(tmp_path):
    target, link = tmp_path / "target.npy", tmp_path / "link.npy"
    link.symlink_to(target)
    save_array(link, np.zeros(5))
    assert link.is_symlink()
    assert target.exists()


def test_a_failed_encoding_writes_nothing(tmp_path, cloud, capsys):
    out = tmp_path / "f.npy"
    code = main(["encode", str(cloud), "-o", str(out), "--window", "ball", "--engine", "grid"])
    assert code == 2
    assert "cannot compute the ball" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cloud.npy"]


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["encode", str(tmp_path / "nowhere.npy"), "--debug"])


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"veckm {veckm.__version__}\n"


def test_without_a_verb_the_help_lists_them(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == text
    for name, entry in VERBS.items():
        assert f"  {name} " in text
        assert entry.about in text
    assert len(text.splitlines()) <= 24  # a screen
    assert max(map(len, text.splitlines())) <= 100


def test_a_group_of_verbs_has_a_help_of_its_own(capsys):
    assert main(["train"]) == 0
    text = capsys.readouterr().out
    assert "part-segmentation" in text
    assert "convert" not in text


@pytest.mark.parametrize("args", [["encoed"], ["train", "everything"], ["--quiet"]])
def test_a_verb_that_does_not_exist_exits_with_two(capsys, args):
    assert main(args) == 2
    assert args[-1] in capsys.readouterr().err


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_the_common_options(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*name.split(), "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"veckm {name}" in text
    for option in ("--quiet", "--json", "--debug"):
        assert option in text


def test_as_a_process_it_needs_no_file_and_leaves_stderr_clean():
    command = "import sys; from veckm.cli import main; sys.exit(main())"
    args = [sys.executable, "-c", command, "encode", "--dim", "8", "--json"]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["cloud"]["points"] == 30_000
    assert report["result"]["shape"] == [30_000, 8]


@pytest.mark.parametrize("more", [("--components", 4), ("--dim", 4), ("--dtype", "float16")])
def test_encodings_become_fields_of_a_cloud_in_memory_and_in_tiles(tmp_path, capsys, more):
    source, whole, tiles = (tmp_path / f"{name}.laz" for name in ("in", "whole", "tiles"))
    pos = shapes.statue(3000).pos.double().numpy()
    veckm.write(source, veckm.PointCloud(pos, fields={"gps_time": np.arange(3000.0)}))
    asked = ("encode", source, "--radius", 0.2, "--engine", "neighbors", "--dim", 8, *more)
    assert run(capsys, *asked, "-o", whole, "--quiet") == (0, "", "")
    assert run(capsys, *asked, "-o", tiles, "--tile", 1000, "--quiet") == (0, "", "")
    a, b, before = veckm.read(whole), veckm.read(tiles), veckm.read(source)
    new = [name for name in a.fields if name not in before.fields]
    assert len(new) == {"--components": 4, "--dim": 8, "--dtype": 16}[more[0]]
    assert list(a.fields) == list(b.fields)
    np.testing.assert_array_equal(a.fields["gps_time"], before.fields["gps_time"])
    for name in new:
        assert a.fields[name].std() > 1e-3
        np.testing.assert_allclose(a.fields[name], b.fields[name], atol=5e-3)


def test_too_many_fields_are_refused_before_encoding(tmp_path, cloud, capsys):
    assert "give --components 16" in fails(capsys, "encode", cloud, "-o", tmp_path / "out.laz")
    assert not (tmp_path / "out.laz").exists()
