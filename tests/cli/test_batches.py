"""Several clouds, a folder or a pattern: `--out-dir`, what fails, and what is there already."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from verbs import fails, run

import veckm
from veckm.cli import batch
from veckm.cli.normals import Normals
from veckm.data import shapes
from veckm.tasks.normals.estimate import save, shipped

PLAIN = ("--method", "moments", "--no-curvature")


@pytest.fixture
def folder(tmp_path):
    """Two clouds, one broken file, and one that is no cloud."""
    clouds = tmp_path / "clouds"
    clouds.mkdir()
    np.save(clouds / "a.npy", shapes.torus(300).pos.numpy())
    np.save(clouds / "c.npy", shapes.sphere(400).pos.numpy())
    (clouds / "b.las").write_bytes(b"LASF" + bytes(50))
    (clouds / "notes.md").write_text("no cloud")
    return clouds


def lines_of(text, name):
    return [line for line in text.splitlines() if line.startswith(name)]


def test_a_failure_does_not_stop_the_rest_and_the_exit_code_says_so(folder, tmp_path, capsys):
    out = tmp_path / "new" / "normals"
    code, text, err = run(capsys, "normals", folder, "--out-dir", out, "--suffix", "ply", *PLAIN)
    assert (code, err) == (1, "")
    assert sorted(p.name for p in out.iterdir()) == ["a.ply", "c.ply"]
    assert veckm.read(out / "a.ply").normals is not None
    assert "300" in lines_of(text, "a.npy")[0]
    assert lines_of(text, "b.las")[0].endswith("failed")
    assert f"{folder / 'b.las'}: cannot be read as LAS" in text
    assert text.splitlines()[-1].startswith("3 files: 2 written, 1 failed; 700 points in ")


def test_a_pattern_and_several_files_are_clouds_too(folder, tmp_path, capsys):
    for number, names in enumerate([(folder / "*.npy",), (folder / "a.npy", folder / "c.npy")]):
        out = tmp_path / str(number)
        code, text, _ = run(capsys, "encode", *names, "--out-dir", out, "--dim", 4, "--radius", 1)
        assert code == 0
        assert "2 files: 2 written" in text
        assert np.load(out / "a.npy").shape == (300, 4)
    assert "no file matches" in fails(capsys, "encode", folder / "*.laz", "--out-dir", out)
    (empty := tmp_path / "empty").mkdir()
    assert "no file in this folder" in fails(capsys, "encode", empty, "--out-dir", out)


def test_existing_outputs_are_kept_unless_they_may_be_replaced(folder, tmp_path, capsys):
    out, names = tmp_path / "out", (folder / "a.npy", folder / "c.npy")
    out.mkdir()
    (out / "a.ply").write_text("mine")
    call = ("convert", *names, "--out-dir", out, "--suffix", ".ply")
    code, text, _ = run(capsys, *call)
    assert code == 0
    assert (out / "a.ply").read_text() == "mine"
    assert lines_of(text, "a.npy")[0].endswith("kept")
    assert "--overwrite" in text
    assert "1 written, 1 kept" in text
    assert "2 files: 2 written" in run(capsys, *call, "--overwrite")[1]
    assert len(veckm.read(out / "a.ply")) == 300


def test_one_existing_output_is_an_error(folder, tmp_path, capsys):
    out = tmp_path / "out.ply"
    out.write_text("mine")
    for verb in (("convert", folder / "a.npy", out), ("normals", folder / "a.npy", "-o", out)):
        assert "--overwrite" in fails(capsys, *verb)
        assert out.read_text() == "mine"
    assert run(capsys, "convert", folder / "a.npy", out, "--overwrite", "--quiet")[0] == 0


def test_several_clouds_need_a_folder_and_names_of_their_own(folder, tmp_path, capsys):
    assert "--out-dir" in fails(capsys, "normals", folder)
    assert "instead of -o" in fails(capsys, "normals", folder, "-o", tmp_path / "x.ply")
    assert "--out-dir" in fails(capsys, "convert", folder / "a.npy")
    veckm.write(folder / "a.ply", veckm.read(folder / "a.npy"))
    message = fails(capsys, "convert", folder, "--out-dir", tmp_path / "o", "--suffix", "laz")
    assert "would both be" in message
    assert not (tmp_path / "o").exists()
    assert "must be one of" in fails(
        capsys, "encode", folder, "--out-dir", tmp_path / "o", "--suffix", "obj"
    )


def test_frames_get_a_format_with_room_for_normals(tmp_path, capsys):
    frame = np.zeros((200, 4), "<f4")
    frame[:, :3] = shapes.sphere(200).pos.numpy()
    frame.tofile(tmp_path / "000000.bin")
    code, _, _ = run(
        capsys, "normals", tmp_path / "000000.bin", "--out-dir", tmp_path / "o", *PLAIN
    )
    assert code == 0
    assert veckm.read(tmp_path / "o" / "000000.ply").normals is not None


def test_json_is_one_object_for_all(folder, tmp_path, capsys):
    out = tmp_path / "o"
    code, text, _ = run(capsys, "normals", folder, "--out-dir", out, "--json", *PLAIN)
    found = json.loads(text)
    assert (code, found["written"], found["failed"]) == (1, 2, 1)
    assert [row["status"] for row in found["files"]] == ["written", "failed", "written"]
    assert "LASF" in found["files"][1]["error"] or "LAS" in found["files"][1]["error"]


def test_an_interrupt_tells_how_to_go_on(folder, tmp_path, capsys, monkeypatch):
    def stop(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Normals, "process", stop)
    code, _, err = run(capsys, "normals", folder, "--out-dir", tmp_path / "o")
    assert code == 130
    assert err == "veckm: interrupted after 0 of 3 files; run the same command again for the rest\n"


def test_threads_are_those_that_were_asked_for(folder, tmp_path, capsys, monkeypatch):
    seen, before = [], torch.get_num_threads()
    monkeypatch.setattr(Normals, "process", lambda self: seen.append(torch.get_num_threads()))
    assert run(capsys, "normals", folder / "a.npy", "--threads", 3)[0] == 0
    assert (seen, torch.get_num_threads()) == ([3], before)
    assert "--threads" in fails(capsys, "normals", folder / "a.npy", "--threads", 0)


def test_what_has_no_room_for_normals_is_refused_before_the_work(
    folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("veckm.cli.normals.estimate", lambda *_, **__: pytest.fail("computed"))
    monkeypatch.setattr("veckm.cli.tiles.run", lambda *_, **__: pytest.fail("computed"))
    for more in ((), ("--tile", 1000)):
        message = fails(capsys, "normals", folder / "a.npy", "-o", tmp_path / "o.bin", *more)
        assert "a .bin cannot store" in message
    assert not (tmp_path / "o.bin").exists()


def test_weights_of_the_user_are_used_in_memory_and_in_tiles(tmp_path, capsys):
    path, weights = tmp_path / "cloud.npy", tmp_path / "mine.safetensors"
    np.save(path, shapes.statue(2500).pos.double().numpy())
    net = shipped()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    mine = type(net)(**net.settings)
    mine.load_state_dict({k: v * 1.1 if v.is_floating_point() else v for k, v in state.items()})
    save(mine, weights, {})
    asked = ("--orient", "up", "--no-curvature", "--quiet")
    for name, more in {
        "shipped": (),
        "mine": ("--weights", weights),
        "tiles": ("--weights", weights, "--tile", 1000),
    }.items():
        assert run(capsys, "normals", path, "-o", tmp_path / f"{name}.ply", *asked, *more)[0] == 0
    found = {n: veckm.read(tmp_path / f"{n}.ply").normals for n in ("shipped", "mine", "tiles")}
    assert np.abs(found["mine"] - found["shipped"]).max() > 1e-3
    close = np.abs(found["tiles"] - found["mine"]).max(1) < 1e-3
    assert close.mean() > 0.998  # others have no clear plane
    missing = fails(capsys, "normals", path, "--weights", tmp_path / "none.safetensors")
    assert "none.safetensors" in missing
    weights.write_bytes(b"nothing")
    assert "weights of a normal network" in fails(capsys, "normals", path, "--weights", weights)


def test_patterns_and_folders_give_each_file_once(folder):
    some = [folder, folder / "*.npy", folder / "a.npy"]
    assert [p.name for p in batch.expand(some)] == ["a.npy", "b.las", "c.npy"]
