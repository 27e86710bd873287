"""veckm train and veckm evaluate for the networks, on small data in the true formats."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from releases import meshes, modelnet_arrays, s3dis_prepared, shapenet_arrays, shapenet_text
from verbs import fails, run

from veckm import __version__
from veckm.training import load_checkpoint, load_model
from veckm.training.log import read_log

SHORT = ("--epochs", "1", "--batch", "4", "--device", "cpu")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("veckm", [(), ("--veckm",)])
def test_classification_is_trained_and_measured(capsys, tmp_path: Path, veckm) -> None:
    data, out = modelnet_arrays(tmp_path / "data", count=10), tmp_path / "run"
    code, said, _ = run(
        capsys, "train", "classification", data, "--out", out, "--points", 16, "--epochs", 2,
        "--batch", 4, "--val-share", 0.2, "--device", "cpu", "--cache", tmp_path / "c", *veckm,
    )  # fmt: skip
    assert code == 0
    assert "epoch 2/2: loss" in said
    assert "validation, last epoch" in said
    assert ("with VecKM" in said) == bool(veckm)
    saved = load_checkpoint(out)
    assert saved.epoch == 2
    assert saved.config["num_classes"] == 2
    assert saved.data["classes"] == ["chair", "night_stand"]
    assert json.loads((out / "metrics.json").read_text())["set"] == "validation"
    assert len(read_log(out)) == 2
    kept = tmp_path / "scores.json"
    code, said, _ = run(capsys, "evaluate", "classification", out, data, "-o", kept)
    assert code == 0
    assert "epoch 2 of 2; 10 samples of the test split" in said
    scores = json.loads(kept.read_text())
    assert set(scores["scores"]) == {"instance accuracy", "class accuracy"}
    assert scores["samples"] == 10
    again, said, _ = run(capsys, "evaluate", "classification", out / "last.pt", data, "--json")
    assert again == 0
    assert json.loads(said)["scores"] == scores["scores"]


def test_meshes_with_normals_are_trained_on(capsys, tmp_path: Path) -> None:
    data, out = meshes(tmp_path / "data"), tmp_path / "run"
    options = ("--out", out, "--points", 32, "--normals", *SHORT)
    code, _, err = run(capsys, "train", "classification", data, *options)
    assert (code, err) == (0, "")
    assert load_checkpoint(out).config["in_channels"] == 3
    assert run(capsys, "evaluate", "classification", out, data)[0] == 0


def test_a_run_that_was_stopped_goes_on_to_the_same_end(
    capsys, tmp_path: Path, monkeypatch
) -> None:
    data = modelnet_arrays(tmp_path / "data")
    options = ("--points", 16, "--epochs", 2, "--batch", 4, "--device", "cpu", "--quiet")

    def go(name: str) -> tuple[int, str, str]:
        return run(capsys, "train", "classification", data, "--out", tmp_path / name, *options)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("veckm.training.loop._summary", interrupt)
        assert go("parts")[0] == 130
    assert load_checkpoint(tmp_path / "parts").epoch == 1
    assert go("parts") == go("whole") == (0, "", "")
    first = load_checkpoint(tmp_path / "whole")
    second = load_checkpoint(tmp_path / "parts")
    assert all(torch.equal(v, second.model[k]) for k, v in first.model.items())
    before = (tmp_path / "parts" / "last.pt").read_bytes()
    err = fails(capsys, "train", "classification", data, "--out", tmp_path / "parts", *options,
                "--model", "pct")  # fmt: skip
    assert "its config differs: name is 'pointnet' there and 'pct' here" in err
    assert (tmp_path / "parts" / "last.pt").read_bytes() == before


def test_the_encoding_and_the_steps_are_options(capsys, tmp_path: Path) -> None:
    data, out = modelnet_arrays(tmp_path / "data"), tmp_path / "run"
    code, said, _ = run(
        capsys, "train", "classification", data, "--out", out, "--points", 16, *SHORT, "--veckm",
        "--alpha", 30, 20, "--radius", 0.3, 0.2, "--dim", 8, "--hidden", 12, "--position", 0.5,
        "--engine", "dense", "--eps", 0.02, "--norm", "none", "--optimizer", "sgd",
        "--momentum", 0.8, "--weight-decay", 0.0005, "--no-amp", "--log-every", 1e-6,
    )  # fmt: skip
    assert code == 0
    assert "SGD with momentum 0.8; rate 0.001" in said
    assert "weight decay 0.0005" in said
    assert "epoch 1/1 step 1/2: loss" in said
    config = load_model(out).config.encoding
    assert (config.alpha, config.dim, config.hidden) == ((30.0, 20.0), 8, 12)
    assert config.beta == pytest.approx((6.0, 9.0))
    assert (config.position, config.engine, config.eps, config.norm) == (0.5, "dense", 0.02, None)
    assert load_checkpoint(out).recipe["amp"] is False
    start = ("train", "classification", data, "--out", tmp_path / "other", "--points", 16)
    err = fails(capsys, *start, "--alpha", 30, "--dim", 8)
    assert "--alpha, --dim: without --veckm the network has no encoding; add --veckm" in err
    err = fails(capsys, *start, "--veckm", "--beta", 6, "--radius", 0.3)
    assert "--radius and --beta are the same thing: give one of them" in err
    err = fails(capsys, *start, "--veckm", "--alpha", 30, 20, 10, "--beta", 6, 9)
    assert "alpha" in err
    assert not (tmp_path / "other").exists()


def test_python_m_veckm_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "veckm", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"veckm {__version__}\n"


def test_the_authors_networks_are_trained_as_by_their_program(capsys, tmp_path: Path) -> None:
    data = modelnet_arrays(tmp_path / "data", count=10)
    options = ("--veckm", "--authors", "--points", 16, *SHORT)
    out = tmp_path / "objects"
    assert run(capsys, "train", "classification", data, "--out", out, *options)[0] == 0
    saved = load_checkpoint(out)
    assert saved.config["authors"]
    assert saved.config["encoding"]["hidden"] == 256
    given = {"optimizer": "sgd", "rate": 0.01, "weight_decay": 5e-4, "last_rate": 1e-4}
    assert {k: saved.recipe[k] for k in given} == given
    assert (saved.recipe["epochs"], saved.recipe["batch"]) == (1, 4)  # as asked
    assert saved.task["smoothing"] == pytest.approx(0.4)  # 0.2 to one wrong class of two
    assert "drop=0.875, keep_dropped=True" in str(saved.data["augment"])
    assert run(capsys, "evaluate", "classification", out, data)[0] == 0
    data, out = shapenet_arrays(tmp_path / "parts"), tmp_path / "segmented"
    options = (*options, "--repeat", "--out", out, "--model", "pct")
    assert run(capsys, "train", "part-segmentation", data, *options)[0] == 0
    saved = load_checkpoint(out)
    given = {"optimizer": "adam", "rate": 1e-3, "weight_decay": 1e-4, "halve_every": 20}
    assert {k: saved.recipe[k] for k in given} == given
    err = fails(capsys, "train", "classification", data, "--authors")
    assert "authors" in err


@pytest.mark.parametrize("write", [shapenet_arrays, shapenet_text])
def test_parts_are_trained_and_measured(capsys, tmp_path: Path, write) -> None:
    data, out = write(tmp_path / "data"), tmp_path / "run"
    options = ("--points", 30, "--repeat", "--limit", 4, "--out", out)
    assert run(capsys, "train", "part-segmentation", data, *options, *SHORT)[0] == 0
    code, said, _ = run(
        capsys, "evaluate", "part-segmentation", out, data, "--repeat", "--json", "--limit", 2
    )
    assert code == 0
    report = json.loads(said)
    assert report["samples"] == 2
    assert set(report["scores"]) == {"instance mIoU", "class mIoU"}


@pytest.mark.parametrize("scenes", [(), ("--scenes", "--voxel", "0.05")])
def test_scenes_are_trained_and_measured(capsys, tmp_path: Path, scenes) -> None:
    data, out = s3dis_prepared(tmp_path / "data", 900), tmp_path / "run"
    options = ("--points", 64, "--out", out, "--no-augment", *scenes)
    code, _, err = run(capsys, "train", "semantic-segmentation", data, *options, *SHORT)
    assert (code, err) == (0, "")
    if not scenes:  # the rooms are parted, not the blocks
        held = ("--val-share", 0.5, "--out", tmp_path / "held", "--points", 64)
        assert run(capsys, "train", "semantic-segmentation", data, *held, *SHORT)[0] == 0
        assert json.loads((tmp_path / "held" / "metrics.json").read_text())["mIoU"] >= 0
    assert load_checkpoint(out).config["in_channels"] == (3 if scenes else 6)
    code, said, _ = run(capsys, "evaluate", "semantic-segmentation", out, data, *scenes, "--json")
    assert code == 0
    assert set(json.loads(said)["scores"]) == {"mIoU", "class accuracy", "overall accuracy"}


def test_mistakes_are_said_in_one_line(capsys, tmp_path: Path) -> None:
    data, out = modelnet_arrays(tmp_path / "data"), tmp_path / "run"
    where = ("--out", out)
    err = fails(capsys, "train", "classification", data, *where, "--model", "resnet")
    assert "--model resnet: the networks for classification are pointnet, " in err
    err = fails(capsys, "train", "classification", data, *where)
    assert "20_train.npz: has 20 points, fewer than the 1024 asked for" in err
    err = fails(capsys, "train", "part-segmentation", tmp_path / "none", *where)
    assert "synsetoffset2category.txt: is not there" in err
    assert not out.exists()  # nothing half-written
    err = fails(capsys, "evaluate", "classification", out, data)
    assert "run does not exist; train first" in err
    options = ("--points", 20, "--quiet", *where, *SHORT)
    assert run(capsys, "train", "classification", data, *options)[0] == 0
    err = fails(capsys, "evaluate", "semantic-segmentation", out, data)
    assert "is of pointnet for classification, not for semantic-segmentation" in err
    (data / "shape_names.txt").write_text("chair\nsofa\n")
    err = fails(capsys, "evaluate", "classification", out, data)
    assert "has the classes 2: chair, sofa, but" in err
    assert "was trained on 2: chair, night_stand" in err
