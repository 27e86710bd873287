"""Scores of normals: the measure of the protocol, and the best k of a set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.evaluation import (
    FIRST_SEED,
    KS,
    Estimator,
    Points,
    Score,
    Scores,
    best_of,
    classical,
    fingerprint,
    in_all_sets,
    mean_over_sets,
    nearest_clean,
    pcpnet_clouds,
    procedural,
    score,
)
from experiments.jets import jet_normals
from releases import write_pcpnet
from torch import Tensor

from veckm.data import shapes
from veckm.data.primitives import Torus
from veckm.data.protocol import SETS, LabeledCloud, make_cloud
from veckm.data.random_solids import random_surface
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.evaluate import angle_error, rmse
from veckm.tasks.normals.network import NormalNet


@pytest.fixture
def net() -> NormalNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return NormalNet(stages=2, hidden=8, context=8)


def clouds(sets: tuple[str, ...] = SETS, names: str = "ab") -> Iterator[LabeledCloud]:
    for name in names:
        for key in sets:
            yield make_cloud(Torus(0.4), key, ord(name), n=300, evaluated=40, name=name)


def evaluate(methods: dict[str, Estimator], clouds: Iterable[LabeledCloud]) -> Scores:
    return Scores([row for cloud in clouds for row in score(methods, cloud)])


def off_by(*degrees: float) -> Estimator:
    """The true normals turned by some angles, one after the other and again."""

    def answers(cloud: LabeledCloud) -> Tensor:
        n = cloud.normal[cloud.subset].double()
        axis = torch.nn.functional.one_hot(n.abs().argmin(-1), 3).double()
        side = torch.nn.functional.normalize(torch.linalg.cross(n, axis), dim=-1)
        angle = torch.tensor(degrees).double().deg2rad().repeat(len(n))[: len(n), None]
        return -(angle.cos() * n + angle.sin() * side)  # the sign must not count

    return answers


def test_a_score_is_the_root_mean_square_angle_of_the_evaluated_points() -> None:
    scores = evaluate({"even": off_by(5.0), "uneven": off_by(3.0, 4.0)}, clouds())
    assert scores.methods == ["even", "uneven"]
    assert len(scores.rows) == 2 * 12
    for name, expected in (("even", 5.0), ("uneven", 12.5**0.5)):
        row = scores.table()[name]
        assert list(row) == [*SETS, "mean"]
        assert list(row.values()) == pytest.approx([expected] * 7, abs=1e-4)


def test_a_row_is_the_mean_over_clouds_then_over_sets_and_not_over_all_clouds() -> None:
    rows = [Score("m", "a", "none", 1.0), Score("m", "b", "none", 3.0), Score("m", "a", "low", 8.0)]
    assert Scores(rows).table()["m"] == {"none": 2.0, "low": 8.0, "mean": 5.0}


def test_the_best_k_is_that_of_the_set_and_not_of_the_cloud() -> None:
    figures = {
        "PCA, k = 18": {"none": (1.0, 5.0), "high": (30.0, 30.0)},
        "PCA, k = 122": {"none": (4.0, 3.0), "high": (20.0, 20.0)},
    }
    rows = [
        Score(method, "ab"[k], key, value)
        for method, sets in figures.items()
        for key, values in sets.items()
        for k, value in enumerate(values)
    ]
    table = Scores([*rows, *(Score("veckm", c, s, 1.0) for c in "ab" for s in ("none", "high"))])
    found = table.table()
    assert list(found) == ["PCA, k = 18", "PCA, k = 122", best_of("PCA"), "veckm"]
    assert found[best_of("PCA")] == {"none": 3.0, "high": 20.0, "mean": 11.5}


def test_the_order_of_the_sets_is_that_of_the_tables() -> None:
    row = mean_over_sets({"gradient": [4.0], "own": [9.0], "none": [1.0, 3.0]})
    assert list(row) == ["none", "gradient", "own", "mean"]
    assert row == {"none": 2.0, "gradient": 4.0, "own": 9.0, "mean": 5.0}
    with pytest.raises(ValueError, match="no scores for low"):
        mean_over_sets({"low": []})


def test_a_single_k_is_no_family() -> None:
    assert list(Scores([Score("Open3D, k = 122", "a", "none", 1.0)]).table()) == ["Open3D, k = 122"]


def test_methods_are_compared_on_the_clouds_that_all_were_scored_on() -> None:
    rows = [
        Score("x", "a", "none", 1.0),
        Score("x", "b", "none", 9.0),
        Score("y", "a", "none", 2.0),
    ]
    scores = Scores(rows)
    assert scores.clouds == [("a", "none")]
    assert scores.table() == {"x": {"none": 1.0, "mean": 1.0}, "y": {"none": 2.0, "mean": 2.0}}
    apart = [Score("x", "a", "none", 1.0), Score("y", "b", "none", 2.0)]
    for nothing in (apart, []):
        with pytest.raises(ValueError, match="no cloud that all methods"):
            Scores(nothing).table()


def test_the_markdown_has_the_six_sets_and_the_mean_and_marks_what_is_missing() -> None:
    rows = [Score("m", "a", "none", 1.0), Score("m", "a", "gradient", 2.5)]
    head, rule, line = Scores(rows).markdown().splitlines()
    cells = [cell.strip() for cell in head.strip("|").split("|")]
    assert cells == ["RMSE in degrees", *SETS, "mean"]
    assert set(rule) == set("| -:")
    values = [cell.strip() for cell in line.strip("|").split("|")]
    assert values == ["m", "1.00", "-", "-", "-", "-", "2.50", "1.75"]
    assert len({len(head), len(rule), len(line)}) == 1


def test_an_answer_for_the_whole_cloud_is_refused() -> None:
    with pytest.raises(ValueError, match=r"whole returned shape \(300, 3\) for the 40"):
        evaluate({"whole": lambda cloud: cloud.normal}, clouds())


def test_the_classical_methods_answer_at_the_subset() -> None:
    cloud = next(clouds(("low",)))
    methods = classical((8, 20))
    assert list(methods) == ["PCA, k = 8", "PCA, k = 20", "Jet, k = 8", "Jet, k = 20"]
    assert all(estimator(cloud).shape == (40, 3) for estimator in methods.values())
    torch.testing.assert_close(
        methods["PCA, k = 20"](cloud), pca_normals(cloud.pos, 20)[cloud.subset]
    )
    jets = jet_normals(cloud.pos, 8)[cloud.subset]
    errors = angle_error(jets, cloud.normal[cloud.subset])
    found = evaluate({"Jet, k = 8": methods["Jet, k = 8"]}, [cloud]).table()
    assert found["Jet, k = 8"]["low"] == pytest.approx(rmse(errors))
    assert rmse(errors) < 30  # a guess has about 60
    assert KS == (18, 122, 450)


def test_the_fingerprint_tells_weights_apart(net: NormalNet) -> None:
    before = fingerprint(net)
    assert before == fingerprint(net)
    with torch.no_grad():
        next(net.parameters()).view(-1)[0] += 1e-6
    assert fingerprint(net) != before


def test_a_cloud_is_the_same_whatever_else_is_measured() -> None:
    alone = list(in_all_sets({"b": Torus(0.3)}, 200, 20))
    among = list(in_all_sets({"a": Torus(0.2), "b": Torus(0.3)}, 200, 20))
    assert [(c.name, c.set) for c in among] == [(name, key) for name in "ab" for key in SETS]
    for one, other in zip(alone, among[6:], strict=True):
        assert torch.equal(one.pos, other.pos)
        assert torch.equal(one.subset, other.subset)
    assert not torch.equal(among[0].subset, among[6].subset)


def test_procedural_surfaces_are_not_those_of_training() -> None:
    found = procedural(2)
    assert list(found) == ["surface 10000", "surface 10001"]
    assert FIRST_SEED >= 1000
    expected = random_surface(10_001).sample(50).pos
    assert torch.equal(found["surface 10001"].sample(50).pos, expected)


def test_shapes_of_npz_files_are_put_into_the_six_sets(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shape = shapes.torus(2000)
        np.savez(tmp_path / f"{name}.npz", xyz=shape.pos.numpy(), normal=shape.normal.numpy())
    found = list(pcpnet_clouds(tmp_path, limit=1, evaluated=100))
    assert [(c.name, c.set, len(c.pos)) for c in found] == [
        ("one", key, 800 if key in ("stripe", "gradient") else 2000) for key in SETS
    ]
    assert all(len(c.subset) == 100 for c in found)
    assert len(list(pcpnet_clouds(tmp_path))) == 12


def test_the_release_is_read_with_its_own_subsets(tmp_path: Path) -> None:
    for cloud in clouds(("none", "med")):
        write_pcpnet(tmp_path, cloud)
    found = list(pcpnet_clouds(tmp_path, limit=1))
    assert [(c.name, c.set) for c in found] == [("a", "none"), ("a_med", "med")]
    (first,) = clouds(("none",), "a")
    assert torch.equal(found[0].subset, first.subset)
    with pytest.raises(FileNotFoundError, match="name its folder"):
        next(pcpnet_clouds(tmp_path / "nowhere"))


@pytest.mark.data
@pytest.mark.slow
def test_the_real_shapes_are_enough_for_all_sets(shared_data: Path) -> None:
    found = list(pcpnet_clouds(shared_data / "pcpnet"))
    assert len(found) == 18
    assert {len(cloud.pos) for cloud in found} == {100_000, 40_000}


def test_the_points_of_a_shape_are_taken_as_they_are() -> None:
    shape = shapes.torus(3000)
    cloud = make_cloud(Points(shape), "none", n=3000)
    assert {tuple(p) for p in cloud.pos.tolist()} == {tuple(p) for p in shape.pos.tolist()}
    thin = make_cloud(Points(shape), "gradient", n=1000)
    assert len(thin.pos) == len(thin.normal) == 1000
    ring = thin.pos - thin.normal * 0.3
    torch.testing.assert_close(ring.norm(dim=-1), torch.full((1000,), 0.7))
    with pytest.raises(ValueError, match=r"3000 points, of which \d+ are left .* n = 3000"):
        make_cloud(Points(shape), "stripe", n=3000)


def test_the_chamfer_error_is_against_the_nearest_point_without_noise() -> None:
    cloud = make_cloud(Torus(0.4), "high", 3, n=300, evaluated=40)
    nearest = nearest_clean(cloud)
    assert nearest is not None
    assert cloud.clean is not None
    exact = torch.cdist(cloud.pos[cloud.subset].double(), cloud.clean.double()).argmin(1)
    assert torch.equal(nearest, exact)
    assert not torch.equal(nearest, cloud.subset)
    (found,) = score({"of the nearest": lambda c: c.normal[exact]}, cloud)
    assert found.value("chamfer") == 0.0
    assert found.rmse > 1.0
    (same,) = score({"own": off_by(0.0)}, make_cloud(Torus(0.4), "none", 3, n=300, evaluated=40))
    assert same.value("chamfer") == same.rmse


def test_shares_of_good_points_are_counted_and_the_best_k_has_the_most() -> None:
    cloud = make_cloud(Torus(0.4), "none", 3, n=300, evaluated=40)
    rows = score({"PCA, k = 3": off_by(1.0, 7.0), "PCA, k = 9": off_by(1.0, 7.0, 1.0, 30.0)}, cloud)
    assert [row.value("below 5") for row in rows] == [0.5, 0.5]
    assert [row.value("below 10") for row in rows] == [1.0, 0.75]
    table = Scores(rows).table("below 10")
    assert table[best_of("PCA")] == {"none": 1.0, "mean": 1.0}
