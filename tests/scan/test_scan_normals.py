"""Normals and curvature tile by tile are those of the whole cloud within the stated tolerance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from veckm import io
from veckm.cloud import PointCloud
from veckm.data import shapes
from veckm.io.formats import open_source
from veckm.scan import Normals, run, tiles
from veckm.scan import normals as scanned
from veckm.scan.spool import Spool, fill
from veckm.tasks.normals import Estimate, estimate
from veckm.tasks.normals.stats import GlobalStats, stats_of

Cloud = tuple[Path, np.ndarray]


def degrees(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Between lines: whatever the signs are."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    across = np.linalg.norm(np.cross(a, b), axis=1)
    return np.degrees(np.arctan2(across, np.abs((a * b).sum(1))))


def agreement(found: PointCloud, expected: Estimate) -> float:
    """The share of normals of the same sign."""
    assert found.normals is not None
    return float(((found.normals * expected.normal.numpy()).sum(1) > 0).mean())


def check(found: PointCloud, expected: Estimate) -> None:
    """The contract of `Normals`."""
    assert found.normals is not None
    off = degrees(found.normals, expected.normal.numpy())
    assert np.quantile(off, 0.999) < 1.0
    # One point in ten thousand may have two directions that are equally good: rounding decides.
    assert np.sqrt((off[off <= np.quantile(off, 0.9999)] ** 2).mean()) < 0.05
    error = found.fields["normal_error"]
    assert np.quantile(np.abs(error - expected.error.numpy()), 0.99) < 0.1
    assert expected.curvature is not None
    curved = np.stack([found.fields["curvature_1"], found.fields["curvature_2"]], 1)
    same = (found.normals * expected.normal.numpy()).sum(1) > 0
    k = expected.curvature.numpy()
    assert np.quantile(np.abs(curved - k)[same], 0.99) < 0.01 * np.quantile(np.abs(k), 0.9)


def by_tiles(folder: Path, xyz: np.ndarray, operation: Normals, tile: int) -> PointCloud:
    np.save(folder / "in.npy", xyz)
    run(folder / "in.npy", folder / "out.npy", operation, tile=tile)
    return io.read(folder / "out.npy")


def road(count: int) -> np.ndarray:  # (N, 3)
    """A long strip, so that tiles and their halos are far less than the cloud; dense at one end."""
    rng = np.random.default_rng(0)
    along = 600 * rng.random(count) ** 1.3
    across = 18 * rng.random(count)
    height = 2 * np.sin(along / 9) + np.cos(across / 3) + 0.1 * rng.normal(size=count)
    return np.stack([along, across, height], 1) * 0.2 + np.array([1e3, 2e3, 0.0])


def terrain(count: int) -> np.ndarray:  # (N, 3)
    """Hills with houses on them."""
    rng = np.random.default_rng(0)
    x, y = 60 * rng.random((2, count))
    z = 3 * np.sin(x / 13) * np.cos(y / 17)
    house = (np.abs(x % 20 - 10) < 3) & (np.abs(y % 20 - 10) < 3)
    return np.stack([x, y, np.where(house, 6.0, z) + 0.01 * rng.normal(size=count)], 1)


def test_tiles_equal_the_whole_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Spy(tiles.Region):
        def __init__(self, spool: Spool, cells: np.ndarray) -> None:
            super().__init__(spool, cells)
            sizes.append(len(self))

    monkeypatch.setattr(tiles, "Region", Spy)
    xyz = road(12_000)
    expected = estimate(torch.from_numpy(xyz), orient="up", curvature=True)
    found = by_tiles(tmp_path, xyz, Normals(orient="up", curvature=True), 1500)
    assert np.median(sizes) < 0.6 * len(xyz)
    check(found, expected)
    assert agreement(found, expected) > 0.999


def test_the_mean_of_two_estimates_in_tiles_is_that_of_the_whole_cloud(tmp_path: Path) -> None:
    xyz = road(12_000)
    expected = estimate(torch.from_numpy(xyz), orient="up", method="best", curvature=True)
    check(by_tiles(tmp_path, xyz, Normals("up", method="best", curvature=True), 3000), expected)


@pytest.mark.parametrize("make", [shapes.statue, shapes.lidar, shapes.box])
def test_procedural_clouds_are_within_the_tolerance(tmp_path: Path, make) -> None:
    xyz = make(20_000, seed=1).pos.double().numpy()
    expected = estimate(torch.from_numpy(xyz), orient="up", curvature=True)
    check(by_tiles(tmp_path, xyz, Normals(orient="up", curvature=True), 5000), expected)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["files/autzen_trim.laz", "lidar/kitti_odo00_000000.bin", "pcpnet/fandisk100k.npz"]
)
def test_real_files_are_within_the_tolerance(tmp_path: Path, name: str, shared_data: Path) -> None:
    if not (shared_data / name).exists():
        pytest.skip(f"{name} is not in {shared_data}")
    xyz = io.read(shared_data / name).xyz[::3]
    expected = estimate(torch.from_numpy(np.ascontiguousarray(xyz)), curvature=True)
    found = by_tiles(tmp_path, xyz, Normals(orient="none", curvature=True), 10_000)
    check(found, expected)


def test_moments_in_tiles_are_those_of_the_whole_cloud(tmp_path: Path) -> None:
    xyz = road(12_000)
    expected = estimate(torch.from_numpy(xyz), orient="up", method="moments")
    found = by_tiles(tmp_path, xyz, Normals(orient="up", method="moments"), 3000)
    assert found.normals is not None
    off = degrees(found.normals, expected.normal.numpy())
    assert np.quantile(off, 0.95) < 0.1  # where windows disagree by little, either is chosen


@pytest.mark.parametrize(
    ("make", "share"),
    [(shapes.statue, 0.995), (shapes.torus, 0.995), (terrain, 0.99)],
)
def test_consistent_signs_agree_with_those_in_memory(tmp_path: Path, make, share: float) -> None:
    cloud = make(12_000)
    xyz = cloud if isinstance(cloud, np.ndarray) else cloud.pos.double().numpy()
    expected = estimate(torch.from_numpy(xyz), orient="consistent")
    found = by_tiles(tmp_path, xyz, Normals(), 2000)
    assert agreement(found, expected) > share


def test_consistent_signs_of_a_closed_shape_point_outwards(tmp_path: Path) -> None:
    ball = shapes.sphere(9000)
    xyz = np.concatenate([ball.pos.numpy(), 0.4 * ball.pos.numpy() + 5]).astype(np.float64)
    found = by_tiles(tmp_path, xyz, Normals(), 1500)
    assert found.normals is not None
    outward = np.concatenate([ball.pos.numpy(), ball.pos.numpy()])
    assert ((found.normals * outward).sum(1) > 0).all()


def test_without_the_halo_tiles_would_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison above can fail."""
    xyz = road(12_000)
    expected = estimate(torch.from_numpy(xyz), orient="up", curvature=True)
    monkeypatch.setattr(scanned.PartEstimator, "reach", lambda self, rows: np.zeros(len(rows)))
    monkeypatch.setattr(
        scanned, "neighborhood_radius", lambda spool, tile, _: np.zeros(_cells(spool, tile))
    )
    monkeypatch.setattr(scanned.encodings, "window_reach", lambda: 0.5)
    wrong = by_tiles(tmp_path, xyz, Normals(orient="up"), 3000).normals
    assert wrong is not None
    assert (degrees(wrong, expected.normal.numpy()) > 0.5).sum() > 20


def _cells(spool: Spool, tile: int) -> int:
    return spool.cells(tile).stop - spool.cells(tile).start


def test_an_uneven_cloud_is_as_near_as_it_is_to_itself_moved(tmp_path: Path, cloud: Cloud) -> None:
    """Lines of a scanner and points in the sky have no plane: rounding decides. How much it does
    is measured in memory, by moving the cloud by less than any distance in it."""
    _, xyz = cloud
    pos = torch.from_numpy(xyz)
    expected = estimate(pos).normal.numpy()
    found = by_tiles(tmp_path, xyz, Normals(orient="none"), 1000).normals
    moved = estimate(pos + 1e-9).normal.numpy()
    assert found is not None
    apart, shifted = degrees(found, expected), degrees(moved, expected)
    assert np.median(apart) < 2e-3
    assert np.quantile(apart, 0.98) < 0.1
    assert (apart > 0.1).mean() <= 2 * (shifted > 0.1).mean() + 2e-3


def test_the_statistics_are_those_of_the_cloud_in_memory(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, xyz = cloud
    spool = fill(tmp_path, open_source(path), 1000, lambda _: None)
    monkeypatch.setattr("veckm.scan.spool.CHUNK", 700)
    assert GlobalStats.of(spool.chunks) == stats_of(torch.from_numpy(xyz))


def test_points_on_a_line_have_the_error_of_a_guess(tmp_path: Path) -> None:
    line = np.outer(np.arange(3000.0), (1.0, 2.0, 3.0))
    found = by_tiles(tmp_path, line, Normals(), 1000)
    assert (found.fields["normal_error"] == 60.0).all()


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_few_points(tmp_path: Path, count: int) -> None:
    xyz = shapes.sphere(count, seed=1).pos.double().numpy()
    found = by_tiles(tmp_path, xyz, Normals(curvature=True), 1000)
    expected = estimate(torch.from_numpy(xyz), orient="consistent", curvature=True)
    assert found.normals is not None
    np.testing.assert_allclose(found.normals, expected.normal.numpy(), atol=1e-4)


def test_a_file_keeps_its_fields_and_gets_the_names_of_its_format(tmp_path: Path) -> None:
    xyz = shapes.statue(2500).pos.double().numpy()
    intensity = np.arange(2500, dtype=np.uint16)
    io.write(tmp_path / "in.ply", PointCloud(xyz, fields={"intensity": intensity}))
    run(tmp_path / "in.ply", tmp_path / "out.ply", Normals("up"), tile=1000)
    found = io.read(tmp_path / "out.ply")
    np.testing.assert_array_equal(found.fields["intensity"], intensity)
    np.testing.assert_array_equal(found.xyz, xyz)
    assert {"nx", "ny", "nz", "normal_error"} <= set(found.fields)
    assert found.normals is not None


def test_signs_towards_the_scanner(tmp_path: Path) -> None:
    xyz = shapes.sphere(2500).pos.double().numpy()
    inside = by_tiles(tmp_path, xyz, Normals("viewpoint", (0.0, 0.0, 0.0)), 1000).normals
    assert inside is not None
    assert ((inside * xyz).sum(1) < 0).all()


def test_bad_options_are_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"orient must be one of .*'consistent'.*, got 'down'"):
        Normals("down")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="go together"):
        Normals("viewpoint")
    with pytest.raises(ValueError, match=r"method must be one of .*'moments'.*, got 'magic'"):
        Normals(method="magic")  # type: ignore[arg-type]


def test_a_sparse_cell_does_not_load_its_dense_neighbors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    dense, sparse = rng.random((20_000, 3)), rng.random((400, 3)) * 30 + 2
    np.save(tmp_path / "in.npy", np.concatenate([dense, sparse]))
    spool = fill(tmp_path, open_source(tmp_path / "in.npy"), 30_000, lambda _: None)
    radius = tiles.neighborhood_radius(spool, 0, 100)
    assert radius.max() <= 2.0001 * np.median(radius) * 1.5
