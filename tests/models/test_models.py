"""Every network, plain and with VecKM: shapes, symmetries, gradients, seeds, errors."""

from __future__ import annotations

import copy
import io
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from experiments.networks import COMPARED
from torch import Generator, Tensor

from veckm.models import (
    NETWORKS,
    Encoding,
    Output,
    PointModel,
    Task,
    create_model,
    default_encoding,
    list_models,
    rebuild,
)
from veckm.training.checkpoint import describe

CLASSES: dict[str, int] = {
    "classification": 5,
    "part-segmentation": 7,
    "semantic-segmentation": 4,
}
ALL = [
    pytest.param(
        kind.name, kind.task, veckm, id=f"{kind.name}-{kind.task}-{'veckm' if veckm else 'plain'}"
    )
    for kind in (*NETWORKS, *COMPARED)
    for veckm in (False, True)
]
every_model = pytest.mark.parametrize(("name", "task", "veckm"), ALL)


def build(name: str, task: Task, veckm: bool, **options: Any) -> PointModel:
    kind = network_class(name, task)
    return create_model(kind, veckm=veckm, num_classes=CLASSES[task], **options)


def network_class(name: str, task: Task) -> type[PointModel]:
    return next(kind for kind in (*NETWORKS, *COMPARED) if (kind.name, kind.task) == (name, task))


def call(model: PointModel, pos: Tensor, x: Tensor | None, category: Tensor, **more: Any) -> Output:
    """The network, with the category where it takes one."""
    if model.task == "part-segmentation":
        more["category"] = category
    out: Output = model(pos, x, **more)
    return out


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
        x = torch.rand(3, 96, 2, generator=generator)
        out = call(model, pos.float(), x, category).logits
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
        out, moved = (call(model, p, None, category).logits for p in (pos, pos[:, order]))
    expected = out if task == "classification" else out[:, order]
    torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-8)


@every_model
def test_a_cloud_in_a_batch_is_as_a_cloud_alone(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    # The exact encoding: where a batch lies decides how an approximate one cuts its cells.
    model = exact(name, task, veckm).eval()
    pos, category = clouds(generator)
    with torch.no_grad():
        together = call(model, pos, None, category).logits
        alone = call(model, pos[1:2], None, category[1:2]).logits
    torch.testing.assert_close(together[1:2], alone, rtol=1e-6, atol=1e-8)


def exact(name: str, task: Task, veckm: bool, **options: Any) -> PointModel:
    """A network in float64 with the encoding by its definition."""
    if veckm:
        options["encoding"] = replace(network_class(name, task).default_encoding, engine="dense")
    return build(name, task, veckm, **options).double()


SIZES = (70, 9, 130)  # 9 is fewer than the neighbors of any network


@every_model
def test_a_ragged_batch_is_its_clouds_one_by_one(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    model = exact(name, task, veckm, in_channels=1).eval()
    pos = clouds(generator, sum(SIZES), 1)[0][0]
    x = torch.rand(len(pos), 1, generator=generator, dtype=torch.float64)
    batch, category = torch.arange(3).repeat_interleave(torch.tensor(SIZES)), torch.arange(3)
    with torch.no_grad():
        ragged = call(model, pos, x, category, batch=batch).logits
        parts = zip(pos.split(SIZES), x.split(SIZES), category.split(1), strict=True)
        alone = [call(model, *part).logits for part in parts]
    torch.testing.assert_close(ragged, torch.cat(alone), rtol=1e-6, atol=1e-8)


@every_model
def test_a_batch_vector_of_equal_clouds_is_the_dense_batch_in_training_too(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    quarters = name == "point_transformer" or (name, task) == ("pointmlp", "part-segmentation")
    pos, category = clouds(generator, n=520 if quarters else 96, b=2)
    model = exact(name, task, veckm)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    batch = torch.arange(2).repeat_interleave(pos.shape[1])
    dense = call(model, pos, None, category).logits
    flat = call(model, pos.flatten(0, 1), None, category, batch=batch).logits
    torch.testing.assert_close(flat.view_as(dense), dense)


@every_model
def test_the_statistics_of_a_ragged_batch_are_over_all_points(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    model = exact(name, task, veckm)
    batch = torch.arange(2).repeat_interleave(torch.tensor([520, 640]))
    pos = clouds(generator, 1160, 1)[0][0]
    logits, auxiliary = call(model, pos, None, torch.arange(2), batch=batch)
    (logits.square().sum() + (0 if auxiliary is None else auxiliary)).backward()
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    assert all(int(norm.num_batches_tracked) == 1 for norm in norms)  # not once per cloud
    assert all(p.grad is not None for p in model.parameters())


@every_model
def test_gradients_reach_every_parameter(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    model = build(name, task, veckm, in_channels=1).double()
    # Where four levels have a quarter of the points each, the last is to have more than one.
    quarters = name == "point_transformer" or (name, task) == ("pointmlp", "part-segmentation")
    pos, category = clouds(generator, n=520 if quarters else 96, b=2)
    features = torch.rand(*pos.shape[:2], 1, generator=generator, dtype=torch.float64)
    shape = call(model, pos, features, category).logits.shape
    target = torch.randn(shape, generator=generator).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):  # a transform net starts with weights of zero, which let nothing through
        optimizer.zero_grad()
        (call(model, pos, features, category).logits * target).sum().backward()
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
        call(model, pos.float(), None, category).logits.float().square().sum().backward()
    for label, value in model.named_parameters():
        assert value.grad is not None, label
        assert bool(torch.isfinite(torch.view_as_real(value.grad + 0j)).all()), label
    model.eval()
    with torch.no_grad():
        full = call(model, pos.float(), None, category).logits
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = call(model, pos.float(), None, category).logits.float()
    assert float((mixed - full).norm() / full.norm()) < 0.1


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


@pytest.mark.parametrize(
    ("name", "task", "veckm"), [case for case in ALL if case.values[0] in list_models()]
)
def test_the_config_rebuilds_the_same_network_from_json(name: str, task: Task, veckm: bool) -> None:
    model = build(name, task, veckm, seed=2)
    twin = rebuild(json.loads(json.dumps(describe(model))))
    assert type(twin) is type(model)
    assert twin.config == model.config
    state = twin.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def learn(model: PointModel, pos: Tensor, label: Tensor, category: Tensor, steps: int) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        logits = call(model, pos, None, category).logits.flatten(0, -2)
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


def test_pointnet_returns_its_auxiliary_loss_in_training(generator: Generator) -> None:
    model = create_model("pointnet", num_classes=4)
    pos = torch.rand(2, 32, 3, generator=generator)
    loss = model(pos).auxiliary_loss
    assert float(loss.detach()) == 0.0  # the transform starts at the identity
    assert isinstance(model, torch.nn.Module)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name == "feature_transform.matrix.bias":
                value.mul_(2)  # T = 2 I: 0.001 |I - 4 I|^2 = 0.001 * 64 * 9
    torch.testing.assert_close(model(pos).auxiliary_loss.detach(), torch.tensor(0.576))
    torch.save(copy.deepcopy(model), io.BytesIO())
    assert model.eval()(pos).auxiliary_loss is None


@every_model
def test_a_cloud_of_coinciding_points_gives_numbers(name: str, task: Task, veckm: bool) -> None:
    model = build(name, task, veckm).eval()
    with torch.no_grad():
        out = call(model, torch.zeros(2, 40, 3), None, torch.tensor([0, 1])).logits
    assert bool(torch.isfinite(out).all())


@pytest.mark.parametrize("name", ["pointnet", "pct"])
def test_the_position_says_where_a_point_is(name: str) -> None:
    pos = torch.rand(2, 64, 3, generator=Generator().manual_seed(0)) - 0.5
    category = torch.zeros(2, dtype=torch.long)
    moved = []
    for changes in ({"position": 0.0}, {}):
        encoding = default_encoding(name, "part-segmentation", **changes)
        model = create_model(
            name, veckm=True, task="part-segmentation", num_classes=5, encoding=encoding
        ).eval()
        with torch.no_grad():
            here, there = (call(model, x, None, category).logits for x in (pos, pos + 0.2))
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
