"""ModelNet in each of its layouts: what is read, and what is said of what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from releases import NAMES, meshes, modelnet_arrays, text

from veckm.data.modelnet import HDF5_PAGE, PAGE, TEN, TEXT_PAGE, read_modelnet
from veckm.data.samples import Samples, collate


def hdf5(folder: Path, count: int = 4, n: int = 20, label: int = 1) -> Path:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    folder.mkdir()
    (folder / "shape_names.txt").write_text("chair\nnight_stand\n")
    for split in ("train", "test"):
        listed = []
        for number in range(2):
            name = f"ply_data_{split}{number}.h5"
            rng = np.random.default_rng(number)
            with h5py.File(folder / name, "w") as file:
                file["data"] = rng.uniform(-0.5, 0.5, (count, n, 3)).astype(np.float32)
                file["normal"] = rng.uniform(-1, 1, (count, n, 3)).astype(np.float32)
                file["label"] = np.full((count, 1), label * number, dtype=np.uint8)
            listed.append(f"data/modelnet40_ply_hdf5_2048/{name}")
        (folder / f"{split}_files.txt").write_text("\n".join(listed) + "\n")
    return folder


def in_unit_ball(data: Samples) -> None:
    radius = collate(data).pos.norm(dim=-1).amax(1)
    torch.testing.assert_close(radius, torch.ones(len(data)))


def test_meshes_are_sampled_by_area_in_the_unit_ball(tmp_path: Path) -> None:
    data = read_modelnet(meshes(tmp_path / "m"), points=500, normals=True)
    assert data.classes == NAMES
    assert collate(data).label.tolist() == [0, 0, 0, 1, 1, 1]
    assert data[0].name == "chair_0000"
    assert collate(data).pos.shape == collate(data).features.shape == (6, 500, 3)
    assert collate(data).pos.dtype == torch.float32
    in_unit_ball(data)
    # A cube: each of the three axes has a third of the normals.
    share = collate(data).features[0].abs().mean(0)
    assert ((share - 1 / 3).abs() < 0.08).all()


def test_the_text_release_is_read_by_its_lists(tmp_path: Path) -> None:
    folder = text(tmp_path / "t")
    data = read_modelnet(folder, "test", points=20, normals=True)
    assert [s.name for s in data] == [
        "chair_0003",
        "chair_0004",
        "night_stand_0003",
        "night_stand_0004",
    ]
    assert collate(data).label.tolist() == [0, 0, 1, 1]
    in_unit_ball(data)
    assert abs(float(collate(data).pos.mean())) < 1e-6
    torch.testing.assert_close(
        collate(data).features.norm(dim=-1), torch.ones(4, 20), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(FileNotFoundError, match="no CLASS/train"):
        read_modelnet(folder, classes=10)


def test_the_hdf5_release_is_read_by_its_lists(tmp_path: Path) -> None:
    data = read_modelnet(hdf5(tmp_path / "h"), points=12, normals=True)
    assert len(data) == 8
    assert collate(data).label.tolist() == [0] * 4 + [1] * 4
    assert collate(data).pos.shape == collate(data).features.shape == (8, 12, 3)
    assert data.in_channels == 3


def test_hdf5_without_h5py_names_the_extra(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "shape_names.txt").write_text("chair\n")
    (tmp_path / "train_files.txt").write_text("a.h5\n")
    (tmp_path / "a.h5").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ImportError, match=r"a\.h5.*veckm\[hdf5\]"):
        read_modelnet(tmp_path)


def test_a_broken_hdf5_file_and_its_labels_are_named(tmp_path: Path) -> None:
    folder = hdf5(tmp_path / "h", label=7)
    with pytest.raises(ValueError, match=r"train1\.h5: has the label 7 at 0; .* from 0 to 1"):
        read_modelnet(folder, points=20)
    (folder / "ply_data_train0.h5").write_bytes(b"not so")
    with pytest.raises(ValueError, match=r"train0\.h5: cannot be read as HDF5"):
        read_modelnet(folder, points=20)
    (folder / "ply_data_train0.h5").unlink()
    with pytest.raises(FileNotFoundError, match=r"train0\.h5: is not there") as caught:
        read_modelnet(folder, points=20)
    assert HDF5_PAGE in str(caught.value)


def test_arrays_are_read_and_fewer_points_are_a_choice_by_the_seed(tmp_path: Path) -> None:
    folder = modelnet_arrays(tmp_path / "a")
    whole = read_modelnet(folder, points=20)
    held = np.load(folder / "20_train.npz")
    assert np.array_equal(collate(whole).pos.numpy(), held["xyz"].astype(np.float32))
    assert collate(whole).label.tolist() == held["label"].tolist()
    one, same, other = (collate(read_modelnet(folder, points=9, seed=s)).pos for s in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    there = (one[0][:, None] == collate(whole).pos[0]).all(-1)
    assert there.any(1).all()
    assert int(there.any(0).sum()) == 9


def test_the_ten_classes_are_taken_out_of_the_forty(tmp_path: Path) -> None:
    names = ("lamp", *reversed(TEN), "xbox")
    folder = modelnet_arrays(tmp_path / "a", 24, names=names)
    whole, data = (read_modelnet(folder, points=20, classes=c) for c in (40, 10))
    assert data.classes == TEN
    assert data.checksum != whole.checksum
    kept = [s for s in whole if whole.classes[int(s.label)] in TEN]
    assert [s.name for s in data] == [s.name for s in kept]
    assert all(s.name.startswith(TEN[int(s.label)]) for s in data)
    assert all(torch.equal(a.pos, b.pos) for a, b in zip(data, kept, strict=True))
    folder = modelnet_arrays(tmp_path / "b", names=("bed", "lamp"))
    with pytest.raises(ValueError, match=r"has no bathtub, chair, .* its classes are bed, lamp"):
        read_modelnet(folder, points=20, classes=10)


def test_the_cache_is_of_the_files_and_the_choice(tmp_path: Path) -> None:
    folder, cache = meshes(tmp_path / "m"), tmp_path / "cache"
    first = read_modelnet(folder, points=30, cache=cache)
    assert len(list(cache.iterdir())) == 1
    path = folder / "chair" / "train" / "chair_0000.off"
    kept = path.read_text()
    path.write_text("x" * len(kept))  # same name, same size: it is not looked at
    again = read_modelnet(folder, points=30, cache=cache)
    assert torch.equal(collate(first).pos, collate(again).pos)
    assert first.checksum == again.checksum
    path.write_text(kept + "# more\n")
    assert read_modelnet(folder, points=30, cache=cache).checksum != first.checksum
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("OFF\n3 0 0\n0 0 0\n1 0 0\n0 1 0\n", "has no faces"),
        ("OFF\n3 1 0\n0 0 nan\n1 0 0\n0 1 0\n3 0 1 2\n", "NaN"),
        ("OFF\n3 1 0\n0 0 0\n0 0 0\n0 0 0\n3 0 1 2\n", "no area"),
        ("nothing", "does not start with OFF"),
    ],
)
def test_a_mesh_that_cannot_be_sampled_is_named(tmp_path: Path, content: str, message: str) -> None:
    folder, cache = meshes(tmp_path / "m"), tmp_path / "cache"
    (folder / "chair" / "train" / "chair_0001.off").write_text(content)
    with pytest.raises(ValueError, match=rf"chair_0001\.off: .*{message}"):
        read_modelnet(folder, points=10, cache=cache)
    assert not cache.exists()  # nothing half-written


def test_an_empty_class_folder_is_named(tmp_path: Path) -> None:
    folder = meshes(tmp_path / "m")
    shutil.rmtree(folder / "chair" / "train")
    (folder / "chair" / "train").mkdir()
    with pytest.raises(ValueError, match=r"chair/train: the class folder is empty"):
        read_modelnet(folder)


def test_too_few_points_are_said_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"chair_0001\.txt: has 20 points, fewer than the 21"):
        read_modelnet(text(tmp_path / "t"), points=21)
    with pytest.raises(ValueError, match=r"20_train\.npz: has 20 points, fewer than the 1024"):
        read_modelnet(modelnet_arrays(tmp_path / "a"))


def test_what_is_missing_is_named_with_where_it_is(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match=str(folder)) as caught:
            read_modelnet(folder)
        for page in (PAGE, TEXT_PAGE, HDF5_PAGE):
            assert page in str(caught.value)
    folder = text(tmp_path / "t")
    (folder / "chair" / "chair_0002.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"chair_0002\.txt: is not there"):
        read_modelnet(folder, points=20)
    with pytest.raises(ValueError, match=r"split must be train or test, got 'val'; .*hold_out"):
        read_modelnet(folder, "val")  # type: ignore[arg-type]


def test_arrays_that_do_not_fit_are_named(tmp_path: Path) -> None:
    folder = modelnet_arrays(tmp_path / "a")
    held = dict(np.load(folder / "20_train.npz"))
    for change, message in (
        ({"label": held["label"] + 1}, "has the label 2 at 1"),
        ({"label": held["label"][:3]}, "3 labels"),
        ({"xyz": held["xyz"] * np.float16(np.nan)}, "NaN"),
    ):
        np.savez(folder / "20_train.npz", **{**held, **change})
        with pytest.raises(ValueError, match=rf"20_train\.npz: .*{message}"):
            read_modelnet(folder, points=20)
    with pytest.raises(ValueError, match="has no normals"):
        read_modelnet(folder, "test", points=20, normals=True)


@pytest.mark.data
def test_the_whole_of_modelnet40_is_there(shared_data: Path) -> None:
    folder = shared_data / "modelnet40"
    if not folder.is_dir():
        pytest.skip("no modelnet40/")
    data = read_modelnet(folder, "test", points=1024)
    assert len(data) == 2468
    assert len(data.classes) == 40
    assert data[0].name == "airplane_0627"
