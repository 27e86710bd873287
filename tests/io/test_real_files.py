"""Files as their own projects ship them, compared with laspy, NumPy and Open3D."""

from __future__ import annotations

from pathlib import Path

import laspy
import numpy as np
import pytest
from drawn import equal, same

from veckm.cloud import PointCloud
from veckm.io import open_source, read, write

pytestmark = [pytest.mark.data, pytest.mark.filterwarnings("ignore::veckm.io.FileWarning")]

#: Points of the files, as other readers count them.
FILES = {
    "1_4_w_evlr.laz": 1000,
    "autzen_trim.laz": 110_000,
    "b9.ply": 22_300,
    "bad_points_1.1.las": 1,
    "bun0.pcd": 112_586,
    "bunny5000.pts": 35_947,  # its first line is 1500, but it has more lines
    "diamond_ascii.ply": 6,
    "diamond_with_bool.ply": 6,
    "extrabytes.las": 1065,
    "file_with_both_wkt_and_geotiff_vlrs.las": 25_408,
    "hippo1.ply": 6104,
    "kitten.xyz": 5210,
    "lamppost.pcd": 1771,
    "lone-star.copc.laz": 518_862,
    "lots_of_vlr.las": 1,
    "region_growing_rgb_tutorial.pcd": 307_200,
    "sample_c.las": 14_408,
    "simple.copc.laz": 1065,
    "simple.laz": 1065,
    "simple1_1.las": 1065,
    "simple1_3.las": 999,
    "sphere_20k_normal.xyz": 21_000,
}
LAS = [name for name in FILES if name.endswith(("las", "laz"))]
#: Written back they are the same bytes. Others are compressed by another program, have reserved
#: bytes or a count for old readers that laspy sets to zero, or write numbers in another way.
IDENTICAL = ["bad_points_1.1.las", "diamond_with_bool.ply", "hippo1.ply"]


@pytest.fixture
def files(shared_data: Path) -> Path:
    folder = shared_data / "files"
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder}")
    return folder


def found(folder: Path, name: str) -> Path:
    if not (folder / name).exists():
        pytest.skip(f"{name} is not in {folder}")
    return folder / name


@pytest.mark.parametrize("name", [n for n in FILES if n != "region_growing_rgb_tutorial.pcd"])
def test_a_real_file_comes_back_as_it_went_in(files: Path, tmp_path: Path, name: str) -> None:
    cloud = read(found(files, name))
    assert len(cloud) == FILES[name]
    again = tmp_path / name.replace(".copc", "")
    write(again, cloud)
    back = read(again)
    assert equal(back, cloud)
    assert back.crs == cloud.crs
    if name in IDENTICAL:
        assert again.read_bytes() == (files / name).read_bytes()


@pytest.mark.parametrize("name", LAS)
def test_las_is_read_as_laspy_reads_it(files: Path, name: str) -> None:
    cloud, las = read(found(files, name)), laspy.read(files / name)
    assert np.array_equal(cloud.xyz, las.xyz)
    names = [n for n in las.point_format.dimension_names if n not in ("X", "Y", "Z")]
    assert list(cloud.fields) == names
    for field in names:
        np.testing.assert_array_equal(cloud.fields[field], np.asarray(las[field]))


@pytest.mark.parametrize("name", LAS)
def test_laspy_reads_what_we_write_with_normals(files: Path, tmp_path: Path, name: str) -> None:
    cloud = read(found(files, name))
    generator = np.random.default_rng(0)
    normals = generator.normal(size=(len(cloud), 3)).astype(np.float32)
    path = tmp_path / name.replace(".copc", "")
    write(path, cloud.with_normals(normals))
    before, after = laspy.read(files / name), laspy.read(path)
    assert np.array_equal(after.xyz, before.xyz)
    assert np.array_equal(np.stack([after.NormalX, after.NormalY, after.NormalZ], -1), normals)
    for name_of in ("vlrs", "evlrs"):
        kept, written = (
            [
                (v.user_id, v.record_id, v.description, v.record_data_bytes())
                for v in getattr(las, name_of) or []
                if v.user_id not in ("copc", "LASF_Spec")
            ]
            for las in (before, after)
        )
        assert kept == written
    assert after.header.scales.tolist() == before.header.scales.tolist()
    assert after.header.offsets.tolist() == before.header.offsets.tolist()
    for field in before.point_format.dimension_names:
        assert np.array_equal(np.asarray(after[field]), np.asarray(before[field]))


@pytest.mark.parametrize("name", ["lone-star.copc.laz", "autzen_trim.laz", "simple1_3.las"])
def test_ranges_of_real_files(files: Path, name: str) -> None:
    whole = read(found(files, name))
    source = open_source(files / name)
    for start in range(0, len(whole), len(whole) // 3):
        stop = min(start + 333, len(whole))
        assert equal(source.read(start, stop), whole[start:stop])
    exact = np.stack([whole.xyz.min(0), whole.xyz.max(0)])
    np.testing.assert_array_equal(source.bounds(), exact)


def test_kitti_frames(shared_data: Path, tmp_path: Path) -> None:
    path = found(shared_data / "lidar", "kitti_obj_000001.bin")
    raw = np.fromfile(path, np.float32).reshape(-1, 4)
    cloud = read(path)
    assert same(cloud.pos, raw[:, :3])
    assert same(cloud.fields["intensity"], raw[:, 3])
    write(tmp_path / "a.bin", cloud)
    assert (tmp_path / "a.bin").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["bun0.pcd", "lamppost.pcd", "b9.ply", "hippo1.ply", "kitten.xyz"])
def test_open3d_reads_the_same(files: Path, name: str) -> None:
    open3d = pytest.importorskip("open3d", reason="compares with Open3D")
    theirs = np.asarray(open3d.io.read_point_cloud(str(found(files, name))).points)
    np.testing.assert_allclose(read(files / name).xyz, theirs, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.ply", {"format": "ascii"}),
        ("a.ply", {"format": "binary_little_endian"}),
        ("a.ply", {"format": "binary_big_endian"}),
        ("a.pcd", {"data": "ascii"}),
        ("a.pcd", {"data": "binary"}),
    ],
)
def test_open3d_reads_what_we_write(tmp_path: Path, name: str, options: dict[str, str]) -> None:
    open3d = pytest.importorskip("open3d", reason="compares with Open3D")
    generator = np.random.default_rng(0)
    pos = generator.normal(size=(500, 3)).astype(np.float32)
    cloud = PointCloud(pos).with_normals(pos / np.linalg.norm(pos, axis=1)[:, None])
    write(tmp_path / name, cloud, **options)
    theirs = open3d.io.read_point_cloud(str(tmp_path / name))
    np.testing.assert_allclose(np.asarray(theirs.points), pos, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(theirs.normals), cloud.normals, atol=1e-6)
