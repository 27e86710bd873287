"""ShapeNetPart in its two layouts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from releases import shapenet_arrays, shapenet_text

from veckm.data.samples import IGNORE, collate
from veckm.data.shapenetpart import CATEGORIES, FIRST, NUM_PARTS, TEXT_PAGE, read_shapenetpart


def test_there_are_16_categories_and_50_parts() -> None:
    assert len(CATEGORIES) == 16
    assert NUM_PARTS == 50
    assert FIRST == (0, 4, 6, 8, 12, 16, 19, 22, 24, 28, 30, 36, 38, 41, 44, 47)


@pytest.mark.parametrize("write", [shapenet_text, shapenet_arrays])
def test_splits_are_the_official_ones(tmp_path: Path, write) -> None:
    folder = write(tmp_path / "s")
    sizes = {s: len(read_shapenetpart(folder, s, points=24)) for s in ("train", "val", "test")}
    assert len(read_shapenetpart(folder, points=24)) == sizes["train"] + sizes["val"]
    data = read_shapenetpart(folder, "test", points=24)
    assert len(data) == sizes["test"] == 4
    assert sorted(set(collate(data).category.tolist())) == [2, 4]  # Cap and Chair
    first = data[0]
    assert first.category == 2
    assert set(first.label.tolist()) == {6, 7}
    assert len(data.classes) == 50
    assert data.classes[6] == "Cap_0"
    torch.testing.assert_close(collate(data).pos.norm(dim=-1).amax(1), torch.ones(4))


def test_text_has_normals_and_a_choice_of_points_keeps_their_labels(tmp_path: Path) -> None:
    folder = shapenet_text(tmp_path / "s")
    data = read_shapenetpart(folder, "val", points=10, normals=True, cache=tmp_path / "c")
    table = np.loadtxt(folder / "02954340" / "val0.txt")
    for normal, label in zip(data[0].features, data[0].label, strict=True):
        row = np.abs(table[:, 3:6] - normal.numpy()).sum(1).argmin()
        assert int(label) == int(table[row, 6])
    again = read_shapenetpart(folder, "val", points=10, normals=True, cache=tmp_path / "c")
    assert torch.equal(collate(data).pos, collate(again).pos)
    assert len(list((tmp_path / "c").iterdir())) == 1


def test_too_few_points_are_an_error_or_repeated_without_counting(tmp_path: Path) -> None:
    folder = shapenet_text(tmp_path / "s")
    with pytest.raises(ValueError, match=r"train0\.txt: has 24 points, fewer .* 30 .*repeat=True"):
        read_shapenetpart(folder, points=30)
    label = read_shapenetpart(folder, points=30, repeat=True)[0].label
    assert (label[:24] != IGNORE).all()
    assert (label[24:] == IGNORE).all()


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    folder = shapenet_text(tmp_path / "s")
    path = folder / "02954340" / "train0.txt"
    table = np.loadtxt(path)
    np.savetxt(path, np.hstack([table[:, :6], table[:, 6:] + 6]))
    with pytest.raises(ValueError, match=r"train0\.txt: has the label 12.0 at 0; .* from 6 to 7"):
        read_shapenetpart(folder, points=24)
    np.savetxt(path, table[:, :5])
    with pytest.raises(ValueError, match=r"train0\.txt: is not a table of numbers with 7"):
        read_shapenetpart(folder, points=24)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"train0\.txt: is not there; get the release from"):
        read_shapenetpart(folder, points=24)
    split = folder / "train_test_split" / "shuffled_test_file_list.json"
    split.write_text(json.dumps(["shape_data/0123/x"]))
    with pytest.raises(ValueError, match=r"test_file_list\.json: names the synset 0123"):
        read_shapenetpart(folder, "test")
    split.unlink()
    with pytest.raises(FileNotFoundError, match=r"shuffled_test_file_list\.json") as caught:
        read_shapenetpart(folder, "test")
    assert TEXT_PAGE in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"synsetoffset2category\.txt: is not there"):
        read_shapenetpart(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="split must be one of train, val, trainval, test"):
        read_shapenetpart(folder, "all")  # type: ignore[arg-type]


def test_arrays_without_what_is_needed_are_named(tmp_path: Path) -> None:
    folder = shapenet_arrays(tmp_path / "s")
    path = folder / "02954340_Cap.npz"
    held = dict(np.load(path))
    with pytest.raises(ValueError, match=r"Cap\.npz: has no normals"):
        read_shapenetpart(folder, points=24, normals=True)
    np.savez(path, **{**held, "part": held["part"] + 44})
    with pytest.raises(ValueError, match=r"Cap\.npz: has the label 50"):
        read_shapenetpart(folder, points=24)
    np.savez(path, xyz=held["xyz"])
    with pytest.raises(ValueError, match=r"Cap\.npz: must have xyz, part, split, id"):
        read_shapenetpart(folder, points=24)


@pytest.mark.data
def test_a_real_part_of_shapenetpart_is_read(shared_data: Path) -> None:
    folder = shared_data / "shapenetpart"
    if not folder.is_dir():
        pytest.skip("no shapenetpart/")
    data = read_shapenetpart(folder, "test", points=2048)
    assert set(collate(data).category.tolist()) == set(range(16))
