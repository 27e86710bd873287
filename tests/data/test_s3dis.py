"""Rooms in both layouts, and the blocks and scenes that are cut from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from releases import room, s3dis_prepared, s3dis_raw

from veckm.data.s3dis import CLASSES, PAGE, Blocks, Scenes, read_s3dis
from veckm.data.samples import IGNORE, Samples, collate, generator_of, hold_out


@pytest.fixture
def rooms(tmp_path: Path) -> Samples:
    return read_s3dis(s3dis_prepared(tmp_path / "p"))


def test_raw_rooms_are_their_annotations(tmp_path: Path) -> None:
    folder = s3dis_raw(tmp_path / "r")
    cache = folder / "cache"
    data = read_s3dis(folder, "test", cache=cache)
    assert [r.name for r in data] == ["Area_5_office_1", "Area_5_office_2"]
    sample, truth = data[0], room(6)
    assert sorted(sample.label.tolist()) == sorted(truth[:, 6].astype(int).tolist())
    assert float(sample.pos.amin()) == 0.0
    assert sample.features.shape == (300, 3)
    assert sample.features.dtype == sample.label.dtype == torch.uint8
    assert 0.9 < float(Scenes(data)[0].features.max()) <= 1
    assert {CLASSES[k] for k in sample.label.tolist()} == {"floor", "wall", "clutter"}
    assert len(list(cache.iterdir())) == 2
    again = read_s3dis(folder, "test", cache=cache)
    assert torch.equal(again[0].pos, sample.pos)
    assert len(read_s3dis(folder, "train")) == 2


def test_prepared_rooms_are_npy_or_npz(tmp_path: Path) -> None:
    folder = s3dis_prepared(tmp_path / "p")
    (folder / "other.npz").write_bytes(b"not a room: no area in its name")
    train, test = read_s3dis(folder), read_s3dis(folder, "test")
    assert [r.name for r in train] == ["Area_1_office_1", "Area_2_office_1"]
    assert [r.name for r in test] == ["Area_5_office_1", "made_Area_5_hall_1"]
    assert train.checksum != test.checksum
    left = read_s3dis(folder, "train", test_area=1)
    assert len(left) == 3
    fit, val = hold_out(train, 0.5, seed=1)
    assert len(fit) == len(val) == 1
    assert fit[0].name != val[0].name


def test_the_cache_may_be_in_the_folder_of_the_rooms(tmp_path: Path) -> None:
    folder = s3dis_prepared(tmp_path / "p")
    first, again = (read_s3dis(folder, cache=folder) for _ in range(2))
    assert len(first) == len(again) == 2
    assert first.checksum == again.checksum
    assert torch.equal(first[1].features, again[1].features)


def test_a_voxel_keeps_one_point(tmp_path: Path) -> None:
    folder = s3dis_prepared(tmp_path / "p")
    thin = read_s3dis(folder, voxel=0.5)[0]
    cells = (thin.pos / 0.5).floor()
    assert len(cells.unique(dim=0)) == len(thin.pos) < 300
    small = read_s3dis(folder, scale=0.1)[0]
    torch.testing.assert_close(small.pos * 10, read_s3dis(folder)[0].pos)
    with pytest.raises(ValueError, match="scale and voxel must be positive, got 0"):
        read_s3dis(folder, scale=0)


def test_blocks_have_the_points_asked_for_and_the_room_in_their_features(rooms: Samples) -> None:
    blocks = Blocks(rooms, points=40, stride=0.5, least=10)
    assert len(blocks) > 4 * len(rooms)
    for k, block in enumerate(blocks):
        assert block.pos.shape == (40, 3)
        assert block.features.shape == (40, 6)
        assert float(block.pos[:, :2].abs().max()) <= 0.5 + 1e-5
        assert float(block.features.min()) >= 0
        assert float(block.features.max()) <= 1
        assert torch.equal(block.pos, blocks[k].pos)  # the same without a generator
    one, two = (blocks.draw(0, generator_of(s)).pos for s in (0, 1))
    assert not torch.equal(one, two)
    assert collate([blocks[k] for k in range(3)]).pos.shape == (3, 40, 3)
    assert blocks.in_channels == 6


def test_blocks_for_evaluation_have_every_point_once(rooms: Samples) -> None:
    blocks = Blocks(rooms, points=40, every=True)
    found = sum(int((block.label != IGNORE).sum()) for block in blocks)
    assert found == sum(len(r.pos) for r in rooms)
    counts = torch.zeros(13, dtype=torch.int64)
    for block in blocks:
        counts += torch.bincount(block.label[block.label != IGNORE], minlength=13)
    whole = torch.cat([r.label for r in rooms])
    assert torch.equal(counts, torch.bincount(whole.long(), minlength=13))
    with pytest.raises(ValueError, match="must not overlap"):
        Blocks(rooms, stride=0.5, every=True)


def test_scenes_are_whole_or_a_part_about_a_point(rooms: Samples) -> None:
    whole = Scenes(rooms)[0]
    assert len(whole.pos) == 300
    assert abs(float(whole.pos[:, 0].amin() + whole.pos[:, 0].amax())) < 1e-5
    assert float(whole.pos[:, 2].amin()) == 0
    crops = Scenes(rooms, points=50)
    one, two = (crops.draw(0, generator_of(s)) for s in (0, 1))
    assert len(one.pos) == 50
    assert not torch.equal(one.pos, two.pos)
    assert torch.equal(crops[0].pos, crops[0].pos)
    filled = Scenes(rooms, points=400)[0]
    assert len(filled.pos) == 400
    assert int((filled.label == IGNORE).sum()) == 100


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match=str(folder)) as caught:
            read_s3dis(folder)
        assert PAGE in str(caught.value)
    raw = s3dis_raw(tmp_path / "r")
    bad = raw / "Area_1" / "office_1" / "Annotations" / "floor_1.txt"
    kept = bad.read_text()
    rows = kept.splitlines()
    for glue in ("\x00", "\x10"):  # as in a file of the true release
        bad.write_text("\n".join([*rows[:4], glue.join(rows[4].rsplit(" ", 1)), *rows[5:]]))
        with pytest.raises(ValueError, match=r"floor_1\.txt: is not a table .* 6 .* at row [45]"):
            read_s3dis(raw)
    for path in bad.parent.glob("*.txt"):
        path.unlink()
    with pytest.raises(ValueError, match=r"office_1/Annotations: the room is empty"):
        read_s3dis(raw)
    folder = s3dis_prepared(tmp_path / "p")
    with pytest.raises(ValueError, match=r"no room of the test split with test area 9.* 1, 2, 5"):
        read_s3dis(folder, "test", test_area=9)
    with pytest.raises(ValueError, match=r"Area_1_office_1\.npy: has the label 12.0 at 2"):
        read_s3dis(folder, classes=("a", "b", "c"))
    for array, message in (
        (room(0)[:, :6], r"has shape \(300, 6\)"),
        (room(0) * [1, 1, np.nan, 1, 1, 1, 1], "NaN"),
        (room(0) * [1, 1, 1, 2, 1, 1, 1], "colors"),
    ):
        np.save(folder / "Area_1_office_1.npy", array)
        with pytest.raises(ValueError, match=rf"Area_1_office_1\.npy: .*{message}"):
            read_s3dis(folder)


@pytest.mark.data
def test_real_scenes_go_through_the_prepared_layout(shared_data: Path) -> None:
    folder = shared_data / "scenes"
    if not folder.is_dir():
        pytest.skip("no scenes/")
    data = read_s3dis(folder, test_area=3, classes=("ground", "tree", "clutter"), voxel=0.5)
    assert len(data) == 4
    assert set(data[0].label.tolist()) == {0, 1, 2}
