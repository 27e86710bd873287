"""Cells and tiles by count, whatever the cloud looks like, and the points sorted into them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veckm.io.formats import open_source
from veckm.io.source import Source
from veckm.scan.spool import Spool, fill


def source_of(folder: Path, xyz: np.ndarray) -> Source:
    np.save(folder / "in.npy", xyz)
    return open_source(folder / "in.npy")


def spool_of(folder: Path, xyz: np.ndarray, tile: int) -> Spool:
    (folder / "work").mkdir(exist_ok=True)
    return fill(folder / "work", source_of(folder, xyz), tile, lambda _: None)


def clusters(rng: np.random.Generator, sizes: list[float]) -> np.ndarray:
    return np.concatenate([rng.normal(size=(700, 3)) * s + rng.normal(size=3) for s in sizes])


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1e-12, 1e-6, 1e-3, 1.0, 1e3]), min_size=1, max_size=4),
    seed=st.integers(0, 100),
    tile=st.sampled_from([100, 300, 1000]),
)
def test_every_point_is_stored_once_in_a_tile_that_is_not_too_large(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[float], seed: int, tile: int
) -> None:
    xyz = clusters(np.random.default_rng(seed), sizes)
    spool = spool_of(tmp_path_factory.mktemp("layout"), xyz, tile)
    points, rows = spool.points(slice(0, len(xyz))), spool.rows(slice(0, len(xyz)))
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(xyz)))
    np.testing.assert_array_equal(points, xyz[rows])
    crowd = np.unique(xyz, axis=0, return_counts=True)[1].max()  # copies cannot be cut apart
    for number in range(spool.tiles):
        assert 0 < spool.size(number) <= max(tile, crowd)
    for cell, (i, j) in enumerate(pairwise(spool.offsets)):
        np.testing.assert_array_equal(points[i:j].min(0), spool.boxes[0, cell])
        np.testing.assert_array_equal(points[i:j].max(0), spool.boxes[1, cell])


def test_tiles_are_balanced_though_the_cloud_is_not(tmp_path: Path) -> None:
    xyz = clusters(np.random.default_rng(0), [1.0, 0.1, 0.03, 30.0])
    spool = spool_of(tmp_path, xyz, 700)
    sizes = [spool.size(number) for number in range(spool.tiles)]
    assert min(sizes) > 150


def test_copies_in_one_place_end_the_cutting(tmp_path: Path) -> None:
    xyz = np.concatenate([np.zeros((3000, 3)), np.random.default_rng(0).random((500, 3))])
    spool = spool_of(tmp_path, xyz, 1000)
    sizes = sorted(spool.size(number) for number in range(spool.tiles))
    assert sizes[-1] >= 3000
    assert sum(sizes) == 3500


@pytest.mark.parametrize("count", [1, 2])
def test_one_place_is_one_tile(tmp_path: Path, count: int) -> None:
    assert spool_of(tmp_path, np.full((count, 3), 7.0), 1000).tiles == 1


def test_the_file_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xyz = clusters(np.random.default_rng(1), [1.0, 1e-4])
    everything = slice(0, len(xyz))
    expected = spool_of(tmp_path, xyz, 300).rows(everything)
    monkeypatch.setattr("veckm.scan.spool.CHUNK", 89)
    np.testing.assert_array_equal(spool_of(tmp_path, xyz, 300).rows(everything), expected)


def test_results_are_gathered_from_the_files_of_their_tiles(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, np.random.default_rng(0).random((5000, 3)), 1000)
    for tile in range(spool.tiles):
        spool.save("phase", tile, {"height": spool.points(spool.range(tile))[:, 2]})
    slots = np.arange(3, 5000, 7)
    expected = spool.points(slice(0, 5000))[slots, 2]
    np.testing.assert_array_equal(spool.gather("phase", "height", slots), expected)


@pytest.mark.parametrize("step", [None, 999])
def test_results_come_back_in_the_order_of_the_input(tmp_path: Path, step: int | None) -> None:
    xyz = np.random.default_rng(0).random((5000, 3))
    spool = spool_of(tmp_path, xyz, 1000)

    def results(tile: int) -> dict[str, np.ndarray]:
        points = spool.points(spool.range(tile))
        return {"pos": points, "height": points[:, 2]}

    (tmp_path / "empty").mkdir()
    found = list(spool.in_input_order(results, tmp_path / "empty", step))
    assert [len(part["pos"]) for part in found] == ([5000] if step is None else [999] * 5 + [5])
    np.testing.assert_array_equal(np.concatenate([part["pos"] for part in found]), xyz)
    np.testing.assert_array_equal(np.concatenate([part["height"] for part in found]), xyz[:, 2])
    assert not list((tmp_path / "empty").iterdir())


def test_sorted_points_that_were_cut_short_are_named(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, np.random.default_rng(0).random((100, 3)), 1000)
    with (spool.folder / "points").open("r+b") as file:
        file.truncate(24 * 99)
    with pytest.raises(OSError, match=r"points: ends too early; remove .*work and run again"):
        spool.points(slice(0, 100))


def test_damaged_results_are_named(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, np.random.default_rng(0).random((100, 3)), 1000)
    spool.save("phase", 0, {"height": np.arange(100.0)})
    data = bytearray(spool.path("phase", 0).read_bytes())
    data[len(data) // 2] ^= 1
    spool.path("phase", 0).write_bytes(data)
    with pytest.raises(OSError, match=r"phase-0\.npz: is damaged .* remove it and run again"):
        spool.load("phase", 0, "height")


def test_points_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    xyz = np.random.default_rng(0).random((100, 3))
    xyz[41, 1] = np.nan
    spool = spool_of(tmp_path, xyz, 1000)
    assert (spool.count, spool.total) == (99, 100)
    rows = np.concatenate([spool.rows(spool.range(tile)) for tile in range(spool.tiles)])
    assert sorted(rows) == [row for row in range(100) if row != 41]


def test_tiles_of_a_sampled_cloud_are_about_as_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veckm.scan.layout._SAMPLE", 5000)
    xyz = np.random.default_rng(0).random((40_000, 3))
    spool = spool_of(tmp_path, xyz, 4000)
    sizes = [spool.size(number) for number in range(spool.tiles)]
    assert sum(sizes) == 40_000
    assert max(sizes) < 1.15 * 4000
