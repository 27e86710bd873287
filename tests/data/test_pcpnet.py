"""The PCPNet files: what is written is what is read, and what is missing is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from releases import write_pcpnet

from veckm.data.pcpnet import PAGE, PCPNet
from veckm.data.primitives import Torus, prism
from veckm.data.protocol import SETS, LabeledCloud, make_cloud


def cloud(name: str = "ring", set: str = "none", seed: int = 0) -> LabeledCloud:
    source = Torus() if name == "ring" else prism(4)
    return make_cloud(source, set, seed, n=200, evaluated=20, name=name)


def release(folder: Path) -> Path:
    """Two shapes in all six sets."""
    for set in SETS:
        for name in ("ring", "block"):
            write_pcpnet(folder, cloud(name, set))
    return folder


def test_a_cloud_comes_back_as_it_was_written(tmp_path: Path) -> None:
    wrote = cloud(set="high")
    assert write_pcpnet(tmp_path, wrote) == "ring_high"
    (read,) = PCPNet(tmp_path)
    assert (read.name, read.set) == ("ring_high", "high")
    assert torch.equal(read.pos, wrote.pos)
    assert torch.equal(read.subset, wrote.subset)
    torch.testing.assert_close(read.normal, wrote.normal)
    assert read.curvature is not None
    torch.testing.assert_close(read.curvature, wrote.curvature)


def test_all_six_sets_are_read_in_the_order_of_the_tables(tmp_path: Path) -> None:
    clouds = PCPNet(release(tmp_path))
    assert len(clouds) == 12
    assert [key for key, _ in clouds.entries] == [set for set in SETS for _ in range(2)]
    assert [clouds[k].name for k in range(3)] == ["ring", "block", "ring_low"]
    assert clouds[-1].set == "gradient"
    with pytest.raises(IndexError):
        clouds[12]


def test_lists_may_be_in_a_folder_of_their_own(tmp_path: Path) -> None:
    release(tmp_path)
    (tmp_path / "list").mkdir()
    for path in tmp_path.glob("testset_*.txt"):
        path.rename(tmp_path / "list" / path.name)
    (tmp_path / "list" / "testset_all.txt").write_text("nobody\n")
    assert len(PCPNet(tmp_path)) == 12


def test_training_lists_have_names_of_their_own_and_overlap(tmp_path: Path) -> None:
    write_pcpnet(tmp_path, cloud(), split="train")
    write_pcpnet(tmp_path, cloud(set="low"), split="train")
    (tmp_path / "trainingset_whitenoise.txt").write_text("ring\r\nring_low\r\n\r\n")
    (tmp_path / "ring_low.pidx").unlink()
    assert PCPNet(tmp_path, "train").entries == [("none", "ring"), ("low", "ring_low")]
    assert torch.equal(PCPNet(tmp_path, "train")[1].subset, torch.arange(200))  # without a .pidx
    write_pcpnet(tmp_path, cloud("block"), split="val")
    (tmp_path / "validationset_whitenoise.txt").write_text("block\nring\n")
    assert PCPNet(tmp_path, "val").entries == [("none", "block"), ("whitenoise", "ring")]


def test_curvature_is_optional_and_the_larger_comes_first(tmp_path: Path) -> None:
    write_pcpnet(tmp_path, cloud())
    table = np.loadtxt(tmp_path / "ring.curv")
    np.savetxt(tmp_path / "ring.curv", table[:, ::-1])
    curvature = PCPNet(tmp_path)[0].curvature
    assert curvature is not None
    np.testing.assert_allclose(curvature.numpy(), table, rtol=1e-6)
    (tmp_path / "ring.curv").unlink()
    assert PCPNet(tmp_path)[0].curvature is None


def test_what_is_missing_is_named_with_the_page_that_has_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="name its folder") as caught:
        PCPNet(tmp_path / "nowhere")
    assert PAGE in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"has no testset_\*\.txt") as caught:
        PCPNet(tmp_path)
    assert PAGE in str(caught.value)
    write_pcpnet(tmp_path, cloud())
    (tmp_path / "ring.pidx").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"ring\.pidx: is not there; get the release from"
    ) as caught:
        PCPNet(tmp_path)
    assert PAGE in str(caught.value)
    with pytest.raises(ValueError, match="split must be one of train, val, test, got 'all'"):
        PCPNet(tmp_path, split="all")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("ring.xyz", "1 2 3\n4 5\n", r"ring\.xyz: is not a table of numbers with 3 columns"),
        ("ring.xyz", "1 2 x\n", r"ring\.xyz: is not a table"),
        ("ring.xyz", "1 2 nan\n", r"ring\.xyz: has NaN"),
        ("ring.normals", "0 0 1\n", r"ring\.normals: has 1 rows for the 200 points"),
        ("ring.curv", "0 0\n", r"ring\.curv: has 1 rows for the 200 points"),
        ("ring.pidx", "3\n200\n", r"ring\.pidx: has indices outside"),
        ("ring.pidx", "-1\n", r"ring\.pidx: has indices outside"),
    ],
)
def test_a_broken_file_is_named(file: str, text: str, message: str, tmp_path: Path) -> None:
    write_pcpnet(tmp_path, cloud())
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        PCPNet(tmp_path)[0]
