"""Every network, plain and with VecKM: shapes, symmetries, gradients, seeds, errors."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from veckm.models import MODELS, Encoding, PointModel, Task, create_model, list_models

CLASSES: dict[str, int] = {
    "classification": 5,
    "part-segmentation": 7,
    "semantic-segmentation": 4,
}
ALL = [
    pytest.param(name, task, veckm, id=f"{name}-{task}-{'veckm' if veckm else 'plain'}")
    for name, tasks in MODELS.items()
    for task in tasks
    for veckm in (False, True)
]
every_model = pytest.mark.parametrize(("name", "task", "veckm"), ALL)


def build(name: str, task: Task, veckm: bool, **options: Any) -> PointModel:
    return create_model(name, task=task, veckm=veckm, num_classes=CLASSES[task], **options)


def clouds(generator: Generator, n: int = 96, b: int = 3) -> tuple[Tensor, Tensor]:
    """Points of the unit sphere, and the clouds' categories."""
    x = torch.randn(b, n, 3, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=-1), torch.arange(b)


@every_model
def test_the_logits_have_their_shape(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    model = build(name, task, veckm, in_channels=2).eval()
    pos, category = clouds(generator)
    with torch.no_grad():
        out = model(pos.float(), torch.rand(3, 96, 2, generator=generator), category)
    points = () if task == "classification" else (96,)
    assert out.shape == (3, *points, CLASSES[task])
    assert out.dtype == torch.float32
    assert bool(torch.isfinite(out).all())


@every_model
def test_the_order_of_the_points_does_not_matter(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    model = build(name, task, veckm).double().eval()
    pos, category = clouds(generator)
    order = torch.randperm(96, generator=generator)
    with torch.no_grad():
        out, moved = model(pos, None, category), model(pos[:, order], None, category)
    expected = out if task == "classification" else out[:, order]
    torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-8)


@every_model
def test_a_cloud_in_a_batch_is_as_a_cloud_alone(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    # The exact encoding: where a batch lies decides how an approximate one cuts its cells.
    options = {"engine": "dense"} if veckm else {}
    model = build(name, task, veckm, **options).double().eval()
    pos, category = clouds(generator)
    with torch.no_grad():
        together, alone = model(pos, None, category), model(pos[1:2], None, category[1:2])
    torch.testing.assert_close(together[1:2], alone, rtol=1e-6, atol=1e-8)


@every_model
def test_gradients_reach_every_parameter(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    model = build(name, task, veckm, in_channels=1).double()
    # Where four levels have a quarter of the points each, the last is to have more than one.
    quarters = name == "point_transformer" or (name, task) == ("pointmlp", "part-segmentation")
    pos, category = clouds(generator, n=520 if quarters else 96, b=2)
    features = torch.rand(*pos.shape[:2], 1, generator=generator, dtype=torch.float64)
    target = torch.randn(model(pos, features, category).shape, generator=generator).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):  # a transform net starts with weights of zero, which let nothing through
        optimizer.zero_grad()
        (model(pos, features, category) * target).sum().backward()
        optimizer.step()
    for label, value in model.named_parameters():
        assert value.grad is not None, label
        assert bool(torch.isfinite(torch.view_as_real(value.grad + 0j)).all()), label
        # A bias before a norm or a softmax is in the papers' networks, and does nothing.
        assert label.endswith("bias") or bool((value.grad != 0).any()), label


@every_model
def test_mixed_precision_comes_close_and_trains(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    model = build(name, task, veckm)
    quarters = name == "point_transformer" or (name, task) == ("pointmlp", "part-segmentation")
    pos, category = clouds(generator, n=520 if quarters else 96, b=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(pos.float(), None, category).float().square().sum().backward()
    for label, value in model.named_parameters():
        assert value.grad is not None, label
        assert bool(torch.isfinite(torch.view_as_real(value.grad + 0j)).all()), label
    model.eval()
    with torch.no_grad():
        exact = model(pos.float(), None, category)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = model(pos.float(), None, category).float()
    assert float((mixed - exact).norm() / exact.norm()) < 0.1


@every_model
def test_the_seed_decides_the_weights_and_nothing_else(name: str, task: Task, veckm: bool) -> None:
    before = torch.get_rng_state()
    first = build(name, task, veckm, seed=3).state_dict()
    torch.rand(5)
    again = build(name, task, veckm, seed=3).state_dict()
    other = build(name, task, veckm, seed=4).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    assert not all(torch.equal(value, other[key]) for key, value in first.items())
    torch.set_rng_state(before)
    build(name, task, veckm)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", list(MODELS))
def test_the_settings_make_the_same_network_again(name: str) -> None:
    model = create_model(name, veckm=True, num_classes=5, seed=2, beta=9.0)
    assert model.settings["name"] == name
    twin = create_model(**model.settings)
    state = twin.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def learn(model: PointModel, pos: Tensor, label: Tensor, category: Tensor, steps: int) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        logits = model(pos, None, category).flatten(0, -2)
        loss = torch.nn.functional.cross_entropy(logits, label.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


@pytest.mark.parametrize("veckm", [False, True])
@pytest.mark.parametrize("name", ["pointnet", "pointnet2"])
def test_a_network_learns_one_batch_by_heart(name: str, veckm: bool, generator: Generator) -> None:
    model = create_model(name, veckm=veckm, num_classes=4, dropout=0.0)
    pos = torch.rand(4, 32, 3, generator=generator)
    label = torch.arange(4)
    assert learn(model, pos, label, label, steps=20) < 0.1


def test_a_segmenter_learns_one_batch_by_heart(generator: Generator) -> None:
    model = create_model("pointnet", task="part-segmentation", veckm=True, num_classes=2)
    pos = torch.rand(2, 64, 3, generator=generator)
    label = (pos[..., 0] > 0.5).long()
    # The encoding sees the edges of the cube, and these say where a point is.
    assert learn(model, pos, label, torch.tensor([0, 1]), steps=40) < 0.3


def test_pointnet_keeps_the_penalty_of_its_last_step_in_training(generator: Generator) -> None:
    model = create_model("pointnet", num_classes=4)
    pos = torch.rand(2, 32, 3, generator=generator)
    model(pos)
    assert model.penalty is not None
    assert float(model.penalty.detach()) == 0.0  # the transform starts at the identity
    assert copy.deepcopy(model).penalty is None
    torch.save(model, io.BytesIO())
    model.eval()(pos)
    assert model.penalty is None


def test_the_models_of_a_task_are_listed() -> None:
    assert list_models() == list(MODELS)
    assert list_models("part-segmentation") == ["pointnet", "pointnet2", "pct", "pointmlp", "dgcnn"]
    assert "pct" not in list_models("semantic-segmentation")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "pointnet3"}, "no model is called 'pointnet3'; there are pointnet, pointnet2"),
        ({"task": "sorting"}, "no task is called 'sorting'; there are classification"),
        ({"name": "pct", "task": "semantic-segmentation"}, "pct has no semantic-segmentation"),
        ({"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ({"in_channels": -1}, "in_channels must be at least 0"),
        ({"alpha": 20.0}, "pass veckm=True"),
        ({"task": "part-segmentation", "num_categories": 0}, "needs num_categories >= 1"),
    ],
)
def test_a_network_that_does_not_exist_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_model(**{"name": "pointnet", "num_classes": 5, **arguments})


def test_an_option_that_a_network_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="pct for classification has no option k; it has points"):
        create_model("pct", num_classes=5, k=3)


@pytest.mark.parametrize(
    ("pos", "features", "category", "message"),
    [
        ((9, 3), None, [0, 1], r"use pos\[None\]"),
        ((2, 0, 3), None, [0, 1], "at least one point"),
        ((2, 9, 2), None, [0, 1], r"of shape \(B, N, 3\)"),
        ((2, 9, 3), (2, 9, 1), [0, 1], r"features must have shape \(2, 9, 0\)"),
        ((2, 9, 3), None, None, "pass category"),
        ((2, 9, 3), None, [0], "one number a cloud"),
        ((2, 9, 3), None, [0, 16], "category must be from 0 to 15, got 0 to 16"),
    ],
)
def test_input_that_does_not_fit_is_refused(
    pos: tuple[int, ...], features: tuple[int, ...] | None, category: Any, message: str
) -> None:
    model = create_model("pointnet", task="part-segmentation", num_classes=5).eval()
    given = None if category is None else torch.tensor(category)
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(pos), None if features is None else torch.zeros(features), given)


def test_missing_and_broken_features_are_refused() -> None:
    model = create_model("pointnet", num_classes=5, in_channels=2).eval()
    with pytest.raises(ValueError, match="in_channels=2 and got no features"):
        model(torch.zeros(1, 9, 3))
    with pytest.raises(ValueError, match="features has NaN"):
        model(torch.zeros(1, 9, 3), torch.full((1, 9, 2), torch.nan))


def test_one_cloud_is_not_enough_to_train_on() -> None:
    with pytest.raises(ValueError, match="at least two clouds"):
        create_model("pointnet", num_classes=5)(torch.zeros(1, 9, 3))


@every_model
def test_a_cloud_of_coinciding_points_gives_numbers(name: str, task: Task, veckm: bool) -> None:
    model = build(name, task, veckm).eval()
    with torch.no_grad():
        out = model(torch.zeros(2, 40, 3), None, torch.tensor([0, 1]))
    assert bool(torch.isfinite(out).all())


@pytest.mark.parametrize("name", ["pointnet", "pct", "pointmlp", "dgcnn"])
def test_the_position_says_where_a_point_is(name: str) -> None:
    pos = torch.rand(2, 64, 3, generator=Generator().manual_seed(0)) - 0.5
    category = torch.zeros(2, dtype=torch.long)
    moved = []
    for options in ({"position": 0.0}, {}):
        model = create_model(
            name, veckm=True, task="part-segmentation", num_classes=5, **options
        ).eval()
        with torch.no_grad():
            here, there = (model(x, None, category) for x in (pos, pos + 0.2))
        moved.append(float((here - there).abs().max() / here.abs().max()))
    assert moved[1] > 1e-3
    assert moved[0] < 0.1 * moved[1]


@every_model
def test_networks_that_see_coordinates_have_no_position(name: str, task: Task, veckm: bool) -> None:
    seeing = name in ("point_transformer", "kpconv")
    seeing = seeing or (name == "pointnet2" and task != "classification")
    encoding = build(name, task, veckm).encoding
    assert (encoding is not None) == veckm
    if veckm:
        assert isinstance(encoding, Encoding)
        assert (encoding.P is None) == seeing
