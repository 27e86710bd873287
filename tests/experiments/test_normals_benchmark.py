"""Parts of the benchmark of normals: truth and errors of LiDAR frames, the published network."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'veckm[bench]'")

from benchmarks import normals
from benchmarks.normals_parts import accuracy, lenssen, lidar, orientation, page
from benchmarks.normals_parts.cases import Config, Results, Row
from experiments.evaluation import BEST, OURS, UNTRAINED

from veckm.data import shapes
from veckm.data.protocol import make_cloud
from veckm.data.random_solids import random_surface


def two_planes(tmp_path: Path) -> Path:
    """A floor with the label of a road and a wall with that of a building, centimeters of noise."""
    generator = np.random.default_rng(0)
    flat = generator.uniform(-8, 8, (4000, 2))
    noise = generator.normal(0, 0.01, 4000)
    floor = np.c_[flat, noise]
    wall = np.c_[flat[:, 0], 9 + noise, 0.25 * flat[:, 1] + 2.1]
    xyzi = np.zeros((8000, 4), np.float32)
    xyzi[:, :3] = np.r_[floor, wall]
    label = np.repeat([40, 50], 4000)
    np.savez(tmp_path / "frame.npz", xyzi=xyzi, label=label)
    return tmp_path / "frame.npz"


def test_the_truth_of_a_frame_are_planes_through_the_points_of_one_label(tmp_path: Path) -> None:
    frame = lidar.read(two_planes(tmp_path), evaluated=100)
    (road, up), (building, out) = frame.planes["road"], frame.planes["building"]
    assert len(road) == len(building) == 4000
    assert float(up[:, 2].abs().min()) > 0.999
    assert float(out[:, 1].abs().min()) > 0.998
    assert bool((building >= 4000).all())


def test_without_labels_only_what_is_flat_counts(tmp_path: Path) -> None:
    xyzi = np.load(two_planes(tmp_path))["xyzi"]
    ball = np.random.default_rng(1).normal(0, 1, (2000, 4)).astype(np.float32)
    ball[:, 3], xyzi[:, 3] = 0.5, 0.5  # intensities, as a scanner has them
    path = tmp_path / "frame.bin"
    np.r_[xyzi, ball + np.float32([0, 0, 30, 0])].tofile(path)
    frame = lidar.read(path, evaluated=500)
    for name, axis in (("flat ground", 2), ("flat wall", 1)):
        rows, normal = frame.planes[name]
        assert len(rows) > 300
        assert float(normal[:, axis].abs().min()) > 0.99
        assert bool((rows < 8000).all())


def test_our_methods_and_the_classical_ones_answer_at_the_subset() -> None:
    cloud = make_cloud(random_surface(0), "low", 0, 300, 40)
    methods = Config(quick=True).methods()
    assert list(methods)[:3] == [OURS, BEST, UNTRAINED]
    assert {"PCA, k = 18", "Jet, k = 18"} <= methods.keys()
    for name in (OURS, BEST, UNTRAINED, "PCA, k = 18", "Jet, k = 18"):
        assert methods[name](cloud).shape == (40, 3)
    one, best = (methods[name](cloud) for name in (OURS, BEST))
    assert not torch.equal(one, best)


def test_points_in_a_line_have_no_plane() -> None:
    line = np.c_[np.linspace(0, 1, 50), np.zeros((50, 2))]
    rows, normal, _ = lidar.planes_at(line, np.arange(50), np.arange(50), 0.5)
    assert rows.shape == (0,)
    assert normal.shape == (0, 3)


def test_the_error_of_a_method_is_that_of_the_points_it_answers() -> None:
    truth = torch.tensor([[0.0, 0.0, 1.0]]).repeat(4, 1)
    normal = torch.tensor([[0.0, 0.0, -1.0], [0.0, 1.0, 1.0], [torch.nan] * 3, [0.0, 0.0, 0.0]])
    found = lidar.figures(normal, truth)
    assert (found["points"], found["answered"]) == (4, 0.5)
    assert found["rmse"] == pytest.approx(45 / 2**0.5)
    assert "rmse" not in lidar.figures(normal[2:], truth[2:])


def test_a_frame_is_measured_and_has_its_table_and_claims(tmp_path: Path) -> None:
    up = {"veckm": lambda pos: torch.tensor([[0.0, 0.0, 1.0]]).repeat(len(pos), 1)}
    frame = lidar.read(two_planes(tmp_path), evaluated=100)
    rows = list(lidar.rows_of(frame, None, {**up, "Open3D, k = 30": up["veckm"]}, 1))
    values = {(row.method, row.set): row.values for row in rows}
    assert values["veckm", "road"]["median"] < 1
    assert values["veckm", "building"]["median"] > 88
    assert values["veckm", "road"]["bend"] < 1
    claims = {claim.text: claim for claim in lidar.claims(rows)}
    assert len(claims) == 7
    assert claims["rmse error on road, ours / best of Open3D's settings"].holds
    text = page.page(Results({**META}, {}, rows), [])
    assert "frame, 8,000 points" in text
    assert "building (4,000): median" in text


def test_the_rotation_of_a_quaternion_turns_by_its_angle() -> None:
    half = torch.tensor(0.3)
    matrix = lenssen._rotations(torch.stack((half.cos(), 0 * half, 0 * half, half.sin()))[None])
    turned = matrix.view(3, 3) @ torch.tensor([1.0, 0.0, 0.0])
    torch.testing.assert_close(
        turned,
        torch.tensor([0.6, 0.6, 0.0]).cos() * torch.tensor([1.0, 0.0, 0.0])
        + torch.tensor([0.0, float(torch.tensor(0.6).sin()), 0.0]),
    )


def test_a_chunk_of_a_cloud_is_as_if_the_cloud_began_with_it() -> None:
    rows = torch.arange(10.0)[:, None]
    chunk = lenssen._Rolled(rows, 4, 3)
    assert chunk.size(0) == 3
    assert torch.equal(chunk.view(-1, 1), rows[4:7])
    assert chunk[torch.tensor([0, 2, 9])].flatten().tolist() == [4.0, 6.0, 3.0]


def test_a_folder_without_the_published_weights_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no trained_models/network_k64\.pt"):
        lenssen.estimator(tmp_path)


def test_a_sphere_points_outwards_in_memory_and_in_tiles(tmp_path: Path) -> None:
    sphere = shapes.sphere(4000)
    assert orientation.share_right(sphere.normal, sphere.normal) == 1
    assert orientation.share_right(-sphere.normal, sphere.normal) == 0
    found = orientation.in_tiles(sphere.pos, None)
    assert orientation.share_right(found, sphere.normal) == 1


def test_orientation_is_compared_on_clouds_that_all_methods_answered() -> None:
    def row(method: str, key: str, share: float | None) -> Row:
        return Row("orientation", "a", 9, method, key, {} if share is None else {"share": share})

    ours = [row("veckm", key, 0.97) for key in ("none", "high")]
    rows = [*ours, row(orientation.OPEN3D, "none", 0.9), row(orientation.OPEN3D, "high", None)]
    assert orientation.table_of(rows)["veckm"] == {"none": 0.97, "mean": 0.97}
    # What is asked of ours counts on all clouds, what is compared on those with an answer.
    assert [claim.holds for claim in orientation.claims(rows)] == [False, True, True]
    assert "right sign" in page.page(Results({**META}, {}, rows), [])
    rows[-1] = replace(rows[-1], note="no answer in 60 s")
    text = orientation.markdown(rows)
    assert "it has no answer for a (high)" in text
    assert "| veckm, where Open3D answers | 97.0 % |" in text


def test_a_method_has_so_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert orientation.in_time(torch.neg, torch.ones(2)).tolist() == [-1, -1]
    monkeypatch.setattr(orientation, "_PATIENCE", 0.5)
    with pytest.raises(RuntimeError, match=r"no answer in 0\.5 s"):
        orientation.in_time(time.sleep, 60)  # type: ignore[arg-type]


def test_claims_of_accuracy_are_about_parts_of_the_best_pca() -> None:
    sets = ("none", "low", "med", "high", "stripe", "gradient")

    def rows(method: str, *errors: float) -> list[Row]:
        return [
            Row("accuracy", "a", 9, method, key, {"rmse": error})
            for key, error in zip(sets, errors, strict=True)
        ]

    table = [
        *rows("veckm", 5, 5, 9.5, 9, 4, 4),
        *rows("PCA, k = 18", 10, 20, 20, 20, 10, 10),
        *rows("PCA, k = 122", 20, 10, 10, 10, 20, 20),
    ]
    held = {claim.text: claim for claim in accuracy.claims(table)}
    assert held["RMSE / PCA, best k per set, mean over 6 sets, meshes"].measured == "0.608x"
    assert not held["RMSE / PCA, best k per set, med"].holds
    assert held["RMSE / PCA, best k per set, high"].holds
    worse = held["sets with a larger RMSE / PCA, best k per set than the last version's"]
    assert worse.measured == "med 0.95 > 0.94"
    once = Row("accuracy", "a", 9, "slow", "none", {"rmse": 1.0})
    assert accuracy.claims([*table, once]) == accuracy.claims(table)
    assert "On the clouds that slow was run on" in accuracy.markdown([*table, once])


def test_with_other_weights_only_what_is_ours_is_measured_again(tmp_path: Path) -> None:
    kept = [("accuracy", "PCA, k = 18"), ("accuracy", "veckm, no training"), ("curvature", "Jet")]
    again = [("accuracy", "veckm"), ("orientation", orientation.TILES), ("time", "PCA, k = 18")]
    rows = [Row(part, "a", 9, method) for part, method in (*kept, *again)]
    options, config = normals.Options(resume=tmp_path / "r.json"), Config()
    said = normals.about(options, config)
    Results({**META}, {**said, "weights": "others"}, rows).save(tmp_path / "r.json")
    found, _ = normals.begin(options, config)
    assert [(row.part, row.method) for row in found.rows] == kept
    assert found.options["weights"] == said["weights"]


META = {
    "date": "Monday", "cpu": "c", "cores": 2, "threads": 2, "load": 0.0, "torch": "t",
    "python": "p", "veckm": "v", "commit": "a", "changed": False,
}  # fmt: skip
