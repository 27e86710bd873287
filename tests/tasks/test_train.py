"""Training learns, resumes where it was killed, and gives the same result again."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch

from veckm.data.random_solids import random_shape, random_surface
from veckm.tasks.normals import load, save
from veckm.tasks.normals.estimate import shipped
from veckm.tasks.normals.examples import CloudCounts, clouds, fresh_clouds, learned_from
from veckm.tasks.normals.network import NormalNet
from veckm.tasks.normals.pyramid import make_pyramid
from veckm.tasks.normals.train import Budget, Example, angles, calibrate, train


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    counts = CloudCounts(per_mesh=0, procedural=3, scans=1, seed=7, sizes=(1500,))
    return [Example(make_pyramid(pos), *normals) for _, pos, *normals in clouds({}, counts)]


def fresh() -> NormalNet:
    return NormalNet(stages=2, hidden=8, context=16)


def forget(examples: list[Example]) -> list[Example]:
    return [Example(e.pyramid, e.truth, e.nearest) for e in examples]


BUDGET = Budget(steps=30, clouds=4, points=64, rate=1e-2)


def test_clouds_are_the_same_for_the_same_seed() -> None:
    counts = CloudCounts(per_mesh=0, procedural=2, scans=5, seed=1, sizes=(300,))
    for (_, *a), (_, *b) in zip(clouds({}, counts), clouds({}, counts), strict=True):
        assert all(torch.equal(s, t) for s, t in zip(a, b, strict=True))


def test_the_nearest_clean_point_has_another_normal_in_noise_only() -> None:
    counts = CloudCounts(per_mesh=0, procedural=12, scans=0, seed=3, sizes=(2000,))
    off = []
    for _, _, own, nearest in clouds({}, counts):
        assert torch.equal(own.any(1), nearest.any(1))
        off.append(float(angles(own, nearest).mean()))
    assert sum(a < 1e-3 for a in off) >= 2
    assert sum(a > 1e-3 for a in off) >= 3
    assert max(off) > 0.02


def test_learns(examples: list[Example], tmp_path: Path) -> None:
    lines: list[str] = []
    net = fresh()
    before = [angles(net(e.pyramid)[0], e.truth).square().mean().sqrt() for e in examples]
    train(net, forget(examples), Budget(150, 4, 128, 1e-2), tmp_path, lines.append)
    after = [angles(net(e.pyramid)[0], e.truth).square().mean().sqrt() for e in examples]
    assert sum(after) < 0.9 * sum(before)
    assert any("degrees" in line for line in lines)
    assert (tmp_path / "stage1" / "log.jsonl").read_text().count("\n") == 2


def test_same_seed_same_weights(examples: list[Example], tmp_path: Path) -> None:
    nets = [fresh(), fresh()]
    for k, net in enumerate(nets):
        train(net, forget(examples), BUDGET, tmp_path / str(k), lambda _: None)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(a, b)


def test_killed_and_run_again(
    examples: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget(120, 2, 32, 1e-2)
    whole = fresh()
    train(whole, forget(examples), budget, tmp_path / "whole", lambda _: None)

    class Kill(Exception):
        pass

    def stop(line: str) -> None:
        if "stage 1: epoch 1/2" in line:
            raise Kill

    with pytest.raises(Kill):
        train(fresh(), forget(examples), budget, tmp_path / "cut", stop)
    again = fresh()
    train(again, forget(examples), budget, tmp_path / "cut", lambda _: None)
    for a, b in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_training_with_other_settings_is_not_resumed(
    examples: list[Example], tmp_path: Path
) -> None:
    train(fresh(), forget(examples), BUDGET, tmp_path, lambda _: None)
    with pytest.raises(ValueError, match="cannot be resumed"):
        train(fresh(), forget(examples), Budget(30, 4, 64, 2e-2), tmp_path, lambda _: None)


def test_some_meshes_are_kept_for_the_expected_error() -> None:
    meshes = {str(k): random_surface(k) for k in range(13)}
    assert {*meshes} - {*learned_from(meshes)} == {"0", "6", "12"}
    assert learned_from({"one": meshes["0"]}) == {"one": meshes["0"]}


def test_expected_errors_are_calibrated_on_clouds_in_all_sets_and_on_scans() -> None:
    counts, net = CloudCounts(per_mesh=0, procedural=0, scans=4, sizes=(2000,)), deepcopy(shipped())
    made = list(fresh_clouds({}, counts))
    assert len(made) == 15 * 2 + 1
    calibrate(net, made, torch.Generator().manual_seed(0))
    found = [net(make_pyramid(pos)) for pos, _ in made]
    expected = sum(float(error.mean()) for _, error in found)
    wrong = [
        float(torch.rad2deg(angles(n, m)[m.any(1)]).mean())
        for (n, _), (_, m) in zip(found, made, strict=True)
    ]
    assert expected == pytest.approx(sum(wrong), rel=0.15)


def test_weights_survive_a_file(tmp_path: Path) -> None:
    net = fresh()
    save(net, tmp_path / "w.safetensors", {"steps": 0})
    levels = make_pyramid(random_shape(500, seed=3).pos)
    torch.testing.assert_close(load(tmp_path / "w.safetensors")(levels)[0], net(levels)[0])
