"""Files that say less than they should, or more than is true."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

import veckm
from veckm.cloud import PointCloud
from veckm.data import shapes
from veckm.io import FileError, FileWarning, open_source

COLUMNS = ("x", "y", "z", "intensity", "ring")


def frame(path: Path, width: int, count: int = 400) -> np.ndarray:
    """A frame of a scanner with so many columns."""
    rows = np.zeros((count, width), "<f4")
    rows[:, :3] = 20 * shapes.sphere(count).pos.numpy()
    rows[:, 3:] = np.arange(count)[:, None] % 32
    rows.tofile(path)
    return rows


def test_nuscenes_frames_are_known_by_their_names(tmp_path: Path) -> None:
    rows = frame(tmp_path / "a.pcd.bin", 5)
    cloud = veckm.read(tmp_path / "a.pcd.bin")
    assert list(cloud.fields) == ["intensity", "ring"]
    np.testing.assert_array_equal(cloud.pos, rows[:, :3])
    veckm.write(tmp_path / "b.bin", cloud)
    assert (tmp_path / "b.bin").read_bytes() == (tmp_path / "a.pcd.bin").read_bytes()


@pytest.mark.parametrize("width", [5, 6])
def test_a_bin_that_is_not_kitti_is_refused_with_advice(tmp_path: Path, width: int) -> None:
    frame(tmp_path / "a.bin", width, 400)  # as long as a frame of KITTI too
    with pytest.raises(FileError, match="--columns x y z intensity ring"):
        veckm.read(tmp_path / "a.bin")
    columns = (*COLUMNS, "time")[:width]
    source = open_source(tmp_path / "a.bin", columns)
    assert list(source.read_all().fields) == list(columns[3:])
    assert pickle.loads(pickle.dumps(source)).columns == columns


@pytest.mark.parametrize("kind", ["<f8", "<i4", "<u1", "<f2"])
def test_other_numbers_are_never_read_as_a_frame(tmp_path: Path, kind: str) -> None:
    numbers = np.random.default_rng(0).normal(size=(512, 4)) * 50
    numbers.astype(kind).tofile(tmp_path / "a.bin")
    with pytest.raises(FileError, match="name its float32 columns"):
        veckm.read(tmp_path / "a.bin")


@pytest.mark.parametrize("width", [4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_wider_arrays_keep_their_columns(tmp_path: Path, width: int, order: str) -> None:
    rows = np.asarray(frame(tmp_path / "a.bin", width), order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "a.npy", rows)
    cloud = veckm.read(tmp_path / "a.npy")
    assert list(cloud.fields) == ["column_4", "column_5"][: width - 3]
    veckm.write(tmp_path / "b.npy", cloud)
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), rows)
    named = veckm.read(tmp_path / "a.npy", columns=COLUMNS[:width])
    assert list(named.fields) == list(COLUMNS[3:width])
    with pytest.raises(FileError, match="columns, but 3 names"):
        veckm.read(tmp_path / "a.npy", columns=("x", "y", "z"))


def test_columns_of_text_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_text("1 0.5 2 3\n4 0.25 5 6\n")
    cloud = veckm.read(tmp_path / "a.xyz", columns=("x", "quality", "y", "z"))
    np.testing.assert_array_equal(cloud.pos, [[1, 2, 3], [4, 5, 6]])
    assert cloud.fields["quality"].tolist() == [0.5, 0.25]
    veckm.write(tmp_path / "a.ply", cloud)
    with pytest.raises(FileError, match="names its own fields"):
        veckm.read(tmp_path / "a.ply", columns=("x", "y", "z"))


def bomb(path: Path, unpacked: int) -> None:
    """An archive with an array of zeros."""
    head = io.BytesIO()
    shape = (unpacked // 24, 3)
    about = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, about)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("xyz.npy", "w", force_zip64=True) as part,
    ):
        part.write(head.getvalue())
        for _ in range(shape[0] * 24 // (1 << 20) + 1):
            part.write(bytes(1 << 20))


def test_an_npz_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb(tmp_path / "bomb.npz", 400 << 20)
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(FileError, match="promises to unpack"):
        veckm.read(tmp_path / "bomb.npz")


def test_an_npz_larger_than_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "a.npz", xyz=np.zeros((1000, 3)))
    monkeypatch.setattr("os.sysconf", lambda _name: 100)
    with pytest.raises(FileError, match="than this machine has memory"):
        veckm.read(tmp_path / "a.npz")


def test_headers_that_disagree_are_warned_about(tmp_path: Path) -> None:
    lines = "1 2 3\n4 5 6\n7 8 9\n"
    (tmp_path / "a.pts").write_text(f"2\n{lines}")
    with pytest.warns(FileWarning, match="promises 2 points, but 3 follow"):
        assert len(veckm.read(tmp_path / "a.pts")) == 3
    head = "VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\n"
    (tmp_path / "a.pcd").write_text(f"{head}WIDTH 5\nHEIGHT 1\nPOINTS 3\nDATA ascii\n{lines}")
    with pytest.warns(FileWarning, match="WIDTH times HEIGHT = 5, but it holds 3"):
        veckm.read(tmp_path / "a.pcd")
    (tmp_path / "a.pcd").write_text(f"{head}WIDTH 2\nHEIGHT 1\nPOINTS 2\nDATA ascii\n{lines}")
    with pytest.warns(FileWarning, match="POINTS = 2, but it holds 3"):
        veckm.read(tmp_path / "a.pcd")
    veckm.write(tmp_path / "a.las", PointCloud(np.random.default_rng(0).random((50, 3))))
    data = bytearray((tmp_path / "a.las").read_bytes())
    data[179:187] = np.float64(99).tobytes()  # the largest x
    (tmp_path / "a.las").write_bytes(bytes(data))
    with pytest.warns(FileWarning, match="its points are elsewhere"):
        open_source(tmp_path / "a.las").bounds()


def test_known_places_of_the_sensor(tmp_path: Path) -> None:
    frame(tmp_path / "a.bin", 4)
    place = veckm.read(tmp_path / "a.bin").viewpoint
    assert place is not None
    assert place.tolist() == [0, 0, 0]
    head = "VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\n"
    for size, words, expected in (
        ("WIDTH 2\nHEIGHT 1", "0 0 0 1 0 0 0", None),  # what writers put there without knowing
        ("WIDTH 2\nHEIGHT 1", "1 2 3 1 0 0 0", [1, 2, 3]),
        ("WIDTH 1\nHEIGHT 2", "0 0 0 1 0 0 0", [0, 0, 0]),
    ):
        text = f"{head}{size}\nVIEWPOINT {words}\nPOINTS 2\nDATA ascii\n1 1 1\n2 2 2\n"
        (tmp_path / "a.pcd").write_text(text)
        found = veckm.read(tmp_path / "a.pcd")
        assert (None if found.viewpoint is None else found.viewpoint.tolist()) == expected
        kept = found[np.array([True, False])].viewpoint
        assert (None if kept is None else kept.tolist()) == expected
