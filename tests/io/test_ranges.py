"""Sources read the same by range as whole; sinks write the same in pieces as at once."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import laspy
import numpy as np
import pytest
from drawn import equal, same

from veckm.cloud import PointCloud
from veckm.io import FileError, create_sink, open_source, read, write

NAMES = ["a.ply", "big.ply", "a.las", "a.laz", "a.npy", "records.npy", "a.bin"]
COUNT = 120_000  # more than two chunks of LAZ


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file of every format that goes by range."""
    out = tmp_path_factory.mktemp("ranges")
    generator = np.random.default_rng(3)
    pos = generator.normal(size=(COUNT, 3)).astype(np.float32)
    bare = PointCloud(pos)
    full = bare.with_fields(
        intensity=generator.integers(0, 2000, COUNT).astype(np.uint16),
        quality=generator.random(COUNT).astype(np.float32),
    )
    for name in NAMES:
        options = {"format": "binary_big_endian"} if name == "big.ply" else {}
        write(out / name, bare if name in ("a.npy", "a.bin") else full, **options)
    return out


@pytest.mark.parametrize("name", NAMES)
def test_ranges_are_parts_of_the_whole(folder: Path, name: str) -> None:
    whole = read(folder / name)
    source = open_source(folder / name)
    assert source.count == len(whole) == COUNT
    for start, stop in ((0, 10), (49_990, 50_010), (70_000, COUNT), (5, 5), (COUNT - 1, COUNT)):
        assert equal(source.read(start, stop), whole[start:stop])
        assert same(source.read_xyz(start, stop), whole.xyz[start:stop])
    exact = np.stack([whole.xyz.min(0), whole.xyz.max(0)])
    np.testing.assert_array_equal(source.bounds(), exact)


@pytest.mark.parametrize("name", NAMES)
def test_a_source_goes_to_another_process_by_its_path(folder: Path, name: str) -> None:
    source = open_source(folder / name)
    data = pickle.dumps(source)
    assert len(data) < 500
    assert equal(pickle.loads(data).read(7, 20), source.read(7, 20))


def test_coordinates_in_fortran_order_are_read_by_range(tmp_path: Path) -> None:
    xyz = np.random.default_rng(0).normal(size=(50, 3))
    np.save(tmp_path / "a.npy", np.asfortranarray(xyz))
    assert same(read(tmp_path / "a.npy").pos, xyz)
    assert same(open_source(tmp_path / "a.npy").read(7, 20).pos, xyz[7:20])


def test_a_range_outside_the_file_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"has 120000 points, the range 3 to 120001 is outside"):
        open_source(folder / "a.laz").read(3, COUNT + 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", ["b.ply", "b.las", "b.laz", "b.npy"])
def test_a_sink_takes_pieces_and_gives_the_file_that_one_write_gives(
    folder: Path, tmp_path: Path, name: str, target: str
) -> None:
    source = open_source(folder / name)
    extra = {"nx": np.dtype("f4"), "ny": np.dtype("f4"), "nz": np.dtype("f4")}
    with create_sink(tmp_path / target, source, extra) as append:
        for start in range(0, COUNT, 47_123):
            part = source.read(start, min(start + 47_123, COUNT))
            append(part.with_normals(part.xyz.astype(np.float32)))
            assert [p.suffix for p in tmp_path.iterdir()] == [".part"]
    assert [p.name for p in tmp_path.iterdir()] == [target]
    whole = read(folder / name)
    write(
        tmp_path / f"whole{Path(target).suffix}", whole.with_normals(whole.xyz.astype(np.float32))
    )
    if Path(name).suffix not in (".ply", ".npy", ".bin") or target not in ("b.las", "b.laz"):
        # a new header of LAS takes its scale from the points, whatever comes first
        assert (tmp_path / target).read_bytes() == (
            tmp_path / f"whole{Path(target).suffix}"
        ).read_bytes()
    back = read(tmp_path / target)
    assert back.normals is not None
    assert np.abs(back.xyz - whole.xyz).max() < 1e-7
    for field, values in whole.fields.items():
        stored = (
            f"{field}_float32" if field == "intensity" and values.dtype == np.float32 else field
        )
        found = back.fields[stored if "la" in target else field]
        np.testing.assert_array_equal(found, values)


def stopped(append: Callable[[PointCloud], None], cloud: PointCloud) -> None:
    """Ctrl-C after the first piece."""
    append(cloud)
    raise KeyboardInterrupt


def test_what_is_interrupted_or_unfinished_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    source = open_source(folder / "a.laz")
    for target in ("b.laz", "b.ply", "b.npy"):
        with (
            pytest.raises(KeyboardInterrupt),
            create_sink(tmp_path / target, source) as append,
        ):
            stopped(append, source.read(0, 10))
        with (
            pytest.raises(ValueError, match="points"),
            create_sink(tmp_path / target, source) as append,
        ):
            append(source.read(0, 10))
    assert list(tmp_path.iterdir()) == []


def test_fields_that_are_missing_are_named(folder: Path, tmp_path: Path) -> None:
    source = open_source(folder / "a.ply")
    with (
        pytest.raises(FileError, match=r"the cloud has no \['curvature_1'\]"),
        create_sink(tmp_path / "b.ply", source, {"curvature_1": np.dtype("f4")}) as append,
    ):
        append(source.read(0, 10))


def test_formats_without_ranges_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1 2 3\n")
    with pytest.raises(FileError, match="cannot be read by range; PLY, LAS, NPY, KITTI can"):
        open_source(tmp_path / "a.csv")
    write(tmp_path / "a.ply", PointCloud(np.zeros((2, 3))), format="ascii")
    with pytest.raises(FileError, match="PLY file in text"):
        open_source(tmp_path / "a.ply")


def test_a_laz_of_a_sink_opens_in_laspy_with_the_normals_that_others_read(
    folder: Path, tmp_path: Path
) -> None:
    source = open_source(folder / "a.laz")
    extra = {name: np.dtype("f4") for name in ("nx", "ny", "nz", "normal_error")}
    cloud = source.read(0, COUNT)
    error = np.linspace(0, 9, COUNT, dtype=np.float32)
    with create_sink(tmp_path / "b.laz", source, extra) as append:
        append(cloud.with_normals(cloud.xyz.astype(np.float32)).with_fields(normal_error=error))
    las = laspy.read(tmp_path / "b.laz")
    assert str(las.header.version) == "1.4"
    names = list(las.point_format.extra_dimension_names)
    assert names == ["quality", "NormalX", "NormalY", "NormalZ", "normal_error"]
    assert las.NormalX.dtype == np.float32
    np.testing.assert_array_equal(las.normal_error, error)
    np.testing.assert_array_equal(las.intensity, cloud.fields["intensity"])
    np.testing.assert_allclose(las.header.mins, cloud.xyz.min(0), atol=1e-7)
    assert las.header.point_count == COUNT
