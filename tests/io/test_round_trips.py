"""What is written comes back, in every format, and a file that is read and written is the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import clouds, equal, same
from hypothesis import given
from hypothesis import strategies as st

from veckm.cloud import PointCloud
from veckm.io import read, write


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def twice(
    path: Path, cloud: PointCloud, columns: tuple[str, ...] = (), **options: Any
) -> PointCloud:
    """The cloud that comes back; written once more the file must have the same bytes."""
    write(path, cloud, **options)
    back = read(path, columns=columns)
    again = path.with_name(f"again{path.suffix}")
    write(again, back)
    assert again.read_bytes() == path.read_bytes()
    return back


@pytest.mark.parametrize("format", ["ascii", "binary_little_endian", "binary_big_endian"])
@given(cloud=clouds())
def test_ply(folder: Path, format: str, cloud: PointCloud) -> None:
    back = twice(folder / "a.ply", cloud, format=format)
    assert equal(back, cloud)
    assert back.pos.dtype == cloud.pos.dtype


@pytest.mark.parametrize("data", ["ascii", "binary"])
@given(cloud=clouds(("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")))
def test_pcd(folder: Path, data: str, cloud: PointCloud) -> None:
    back = twice(folder / "a.pcd", cloud, data=data)
    assert equal(back, cloud)
    assert back.pos.dtype == cloud.pos.dtype


@given(cloud=clouds(("u1", "i8", "u8", "f2", "f4", "f8", ">f4", ">i2")))
def test_npy(folder: Path, cloud: PointCloud) -> None:
    assert equal(twice(folder / "a.npy", cloud), cloud)


@pytest.mark.parametrize("compress", [False, True])
@given(cloud=clouds(("u1", "i8", "u8", "f2", "f4", "f8")))
def test_npz(folder: Path, compress: bool, cloud: PointCloud) -> None:
    path = folder / "a.npz"
    write(path, cloud, compress=compress)
    assert equal(read(path), cloud)


@pytest.mark.parametrize("suffix", ["csv", "txt", "xyz", "asc"])
@given(cloud=clouds(("i4", "f8"), least=1, pos=("f8",)))
def test_text_with_names(folder: Path, suffix: str, cloud: PointCloud) -> None:
    back = twice(folder / f"a.{suffix}", cloud)
    assert same(back.xyz, cloud.xyz)
    if suffix == "xyz" and list(cloud.fields) == []:
        return
    assert list(back.fields) == list(cloud.fields)
    for name, values in cloud.fields.items():
        np.testing.assert_array_equal(back.fields[name], values)


@given(cloud=clouds((), pos=("f8",)))
def test_pts_counts_its_points(folder: Path, cloud: PointCloud) -> None:
    bare = replace(cloud, fields={})
    assert equal(twice(folder / "a.pts", bare), bare)
    assert (folder / "a.pts").read_text().split()[0] == str(len(bare))


@given(cloud=clouds(("f4",), pos=("f4",)))
def test_kitti(folder: Path, cloud: PointCloud) -> None:
    intensity = np.arange(len(cloud), dtype=np.float32)
    frame = replace(cloud, fields={"intensity": intensity})
    columns = ("x", "y", "z", "intensity")  # without them only what a scanner may see is read
    back = twice(folder / "a.bin", frame, columns)
    assert equal(replace(back, viewpoint=None), frame)


steps = st.integers(-(2**31), 2**31 - 1)


@st.composite
def surveys(draw: st.DrawFn) -> PointCloud:
    """Points on the steps of a LAS file, with fields of all the kinds that it has."""
    rows = draw(st.lists(st.tuples(steps, steps, steps), min_size=1, max_size=8))
    scale = draw(st.sampled_from([1e-3, 0.01, 0.25, 1e-7]))
    origin = np.array(draw(st.sampled_from([(0.0, 0.0, 0.0), (5e5, 5e6, 0.0), (-7.5, 0.1, 3e3)])))
    made = draw(clouds(("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"), pos=("f8",)))
    fields = {
        name: np.resize(values, len(rows)) for name, values in made.fields.items() if len(made)
    }
    fields["intensity"] = np.arange(len(rows), dtype=np.uint16)
    fields["return_number"] = np.full(len(rows), draw(st.integers(0, 15)), dtype=np.uint8)
    cloud = PointCloud(np.array(rows) * scale, origin, fields)
    return cloud


@pytest.mark.parametrize("suffix", ["las", "laz"])
@given(cloud=surveys(), scale=st.sampled_from([1e-3, 0.01, 0.25, 1e-7]))
def test_las(folder: Path, suffix: str, cloud: PointCloud, scale: float) -> None:
    path = folder / f"a.{suffix}"
    most = float(np.abs(cloud.pos).max()) / scale
    if most >= 2**31:
        scale = float(np.abs(cloud.pos).max()) / 2**30 or 1.0
    back = twice(path, cloud, scale=scale, offset=tuple(cloud.origin))
    rounding = 4 * np.finfo(float).eps * float(np.abs(cloud.pos).max())
    assert np.abs(back.pos - cloud.pos).max() <= scale / 2 * (1 + 1e-9) + rounding
    for name, values in cloud.fields.items():
        assert same(back.fields[name], values)


@pytest.mark.parametrize("name", ["a.ply", "a.las", "a.laz", "a.pcd", "a.npy", "a.npz", "a.csv"])
def test_a_cloud_far_from_zero_keeps_its_place(tmp_path: Path, name: str) -> None:
    origin = np.array([512_345.25, 5_412_345.5, 130.0])
    cloud = PointCloud(np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32), origin)
    write(tmp_path / name, cloud)
    assert np.abs(read(tmp_path / name).xyz - cloud.xyz).max() < 1e-7


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("a.ply", ("nx", "ny", "nz")),
        ("a.las", ("NormalX", "NormalY", "NormalZ")),
        ("a.laz", ("NormalX", "NormalY", "NormalZ")),
        ("a.pcd", ("normal_x", "normal_y", "normal_z")),
        ("a.csv", ("nx", "ny", "nz")),
    ],
)
def test_normals_take_the_names_of_the_format(
    tmp_path: Path, name: str, names: tuple[str, ...]
) -> None:
    pos = np.random.default_rng(0).normal(size=(9, 3))
    normals = (pos / np.linalg.norm(pos, axis=1)[:, None]).astype(np.float32)
    write(tmp_path / name, PointCloud(pos).with_normals(normals))
    back = read(tmp_path / name)
    assert set(names) <= set(back.fields)
    assert back.normals is not None
    np.testing.assert_array_equal(back.normals.astype(np.float32), normals)
    # from one format to the others and back
    for other in ("b.ply", "b.pcd", "b.laz"):
        write(tmp_path / other, back)
        changed = read(tmp_path / other)
        assert changed.normals is not None
        np.testing.assert_array_equal(changed.normals.astype(np.float32), normals)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    bad = PointCloud(np.array([[np.nan, 0, 0], [0.0, 0, 0]]))
    with pytest.raises(ValueError, match=r"a\.las: .*point 0 .* cannot be written"):
        write(tmp_path / "a.las", bad)
    assert list(tmp_path.iterdir()) == []


def test_options_of_another_format_are_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="PLY files have no option scale"):
        write(tmp_path / "a.ply", PointCloud(np.zeros((1, 3))), scale=1)
