"""The training of the projection of descriptors: its pairs, its steps, its command."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from benchmarks.register_parts.pairs import moved
from experiments.descriptors import compare, scenes
from experiments.descriptors.__main__ import Compare, Train, main
from experiments.descriptors.learn import Budget, Counts, Example, contrast, discriminant, train
from safetensors.torch import load_file
from scipy.spatial import cKDTree


@pytest.mark.parametrize("make", [scenes.rooms, scenes.streets])
def test_two_scans_of_one_place_overlap_after_the_true_motion(make) -> None:
    (pair,) = make(1, 3)
    assert min(len(pair.source), len(pair.target)) > 10_000
    near = 0.02 * np.linalg.norm(np.ptp(pair.target, 0))

    def share(x: np.ndarray) -> float:
        return float((cKDTree(pair.target).query(x[::50])[0] < near).mean())

    assert share(moved(pair.source, pair.truth)) > 0.25
    assert share(moved(pair.source, pair.truth)) > share(pair.source) + 0.1
    (again,) = make(1, 3)
    np.testing.assert_array_equal(pair.source, again.source)


@pytest.fixture
def examples() -> list[Example]:
    """Two numbers that stay, and two that are noise and larger."""
    g = torch.Generator().manual_seed(0)
    out = []
    for _ in range(3):
        same = torch.randn(400, 2, generator=g)
        a, b = (
            torch.cat([same + 0.05 * torch.randn(400, 2, generator=g),
                       3 * torch.randn(400, 2, generator=g)], 1)
            for _ in range(2)
        )  # fmt: skip
        both = torch.cat([a, b]).double()
        pos = 100 * torch.rand(400, 3, generator=g)
        out.append(Example("solids", a, b, pos, both.T @ both / len(both)))
    return out


def test_the_discriminant_prefers_what_stays(examples) -> None:
    P = discriminant(examples, 2)
    assert P[:2].norm() > 10 * P[2:].norm()


def test_contrast_falls_in_training_and_near_places_are_no_negatives(examples) -> None:
    P = torch.eye(4)
    losses = [loss for _, loss in train(examples, P, Budget(300, 128, 2e-2))]
    assert losses[-1] < 0.7 * losses[0]
    assert P[:2].norm() > 2 * P[2:].norm()
    each, rows, sharpness = examples[0], torch.arange(100), torch.tensor(10.0)
    one_place = Example(each.kind, each.source, each.target, 0 * each.pos, each.total)
    assert contrast(one_place, rows, P, sharpness) < 1e-3 < contrast(each, rows, P, sharpness)


def test_the_command_trains_resumes_and_compares(tmp_path, capsys) -> None:
    meshes = tmp_path / "meshes"
    meshes.mkdir()
    _write_mesh(meshes / "box.obj")
    options = Train(
        meshes, tmp_path / "out", 20, Counts(0, 1, 0), Budget(12, 64), torch.get_num_threads()
    )
    assert main(options) == 0
    P = load_file(tmp_path / "out" / "descriptors.safetensors")["projection"]
    assert P.shape == (112, 20)
    about = json.loads((tmp_path / "out" / "descriptors.json").read_text())
    assert about["trained on"] == {"meshes": 3, "rooms": 1}
    assert main(options) == 0
    assert "is used again" in capsys.readouterr().err
    again = load_file(tmp_path / "out" / "descriptors.safetensors")["projection"]
    assert torch.equal(P, again)
    threads = torch.get_num_threads()
    assert main(Compare(meshes, Counts(0, 0, 0), 5, threads, tmp_path)) == 0
    results = json.loads((tmp_path / "descriptors.json").read_text())
    assert len(results["rows"]) == 3
    page = compare.page(results)
    assert "learnt projection" in page
    assert "of 3" in page


def _write_mesh(path) -> None:
    """A box with unequal sides and a smaller one on it: no view of it fits another."""
    lines, faces = [], []
    for low, high in (((0, 0, 0), (3, 2, 1)), ((0.3, 0.3, 1), (1.2, 0.9, 1.8))):
        first = len(lines) + 1
        corners = [[(low, high)[k >> axis & 1][axis] for axis in range(3)] for k in range(8)]
        lines += ["v {} {} {}".format(*corner) for corner in corners]
        for a, b, c, d in ((0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3), (0, 4, 6, 2),
                           (1, 3, 7, 5)):  # fmt: skip
            for triangle in ((a, b, c), (a, c, d)):
                faces.append("f {} {} {}".format(*(k + first for k in triangle)))
    path.write_text("\n".join([*lines, *faces]) + "\n")
