"""The authors' networks: their logits from their checkpoints, sizes, first weights."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from authors_twin import CLASSES, LAYOUTS, Twin, random_state
from torch import Generator, Tensor, nn

from veckm.models import PointModel, create_model, default_encoding, parameter_count, rebuild
from veckm.models.clouds import Clouds
from veckm.models.convert import load_authors
from veckm.nn import ComplexLinear
from veckm.training.checkpoint import describe

six = pytest.mark.parametrize(("name", "task"), list(LAYOUTS))


def clouds(generator: Generator, n: int = 150) -> tuple[Tensor, Tensor]:
    """Two flat domes, where many balls hold more than 64 points, and their categories."""
    x = torch.randn(2, n, 3, generator=generator, dtype=torch.float64)
    x = nn.functional.normalize(x, dim=-1)
    x[..., 2] = 0.3 * x[..., 2].abs()
    return x, torch.tensor([3, 12])


def call(model: PointModel, pos: Tensor, category: Tensor) -> Tensor:
    more = {"category": category} if model.task == "part-segmentation" else {}
    logits: Tensor = model(pos, **more).logits
    return logits


@six
def test_the_logits_are_those_of_a_slow_transcription(
    name: str, task: Any, generator: Generator
) -> None:
    state = random_state(name, task, generator)
    model = load_authors(name, state, task=task).double()
    twin, (pos, category) = Twin(name, task, state), clouds(generator)
    with torch.no_grad():
        expected = twin(pos, category)
        torch.testing.assert_close(call(model, pos, category), expected, rtol=1e-5, atol=1e-5)
        assert float(expected.std()) > 0.1


@six
def test_a_training_step_has_the_same_statistics(
    name: str, task: Any, generator: Generator
) -> None:
    state = random_state(name, task, generator)
    model = load_authors(name, state, task=task).double().train()
    for layer in model.modules():  # the transcription has no dropout
        if hasattr(layer, "dropout"):
            layer.dropout = 0.0
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    twin, (pos, category) = Twin(name, task, state, training=True), clouds(generator)
    logits, expected = call(model, pos, category), twin(pos, category)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    twin.training = False
    with torch.no_grad():  # by the running statistics that the step has changed
        logits = call(model.eval(), pos, category)
        torch.testing.assert_close(logits, twin(pos, category), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "task", "printed"),
    [
        ("pointnet", "classification", 1_325_864),
        ("pct", "classification", 2_969_384),
        ("pointnet2", "part-segmentation", 1_496_626),
        ("pct", "part-segmentation", 555_442),
    ],
)
def test_the_sizes_are_those_of_the_authors_logs(name: str, task: Any, printed: int) -> None:
    """Where a log of theirs prints the number of parameters of the network in their program."""
    state = random_state(name, task, Generator().manual_seed(0))
    fixed = ("vkm_feat.0", "running", "batches", "q_conv")
    learned = sum(x.numel() for k, x in state.items() if not any(part in k for part in fixed))
    assert learned == printed
    layers = LAYOUTS[name, task][-1]
    needless = sum(
        out
        for linear, norm, _, out, bias in layers
        if norm and bias and not linear.endswith(("trans_conv", "clf2"))
    )
    assert parameter_count(load_authors(name, state, task=task)) == printed - needless


@six
def test_a_checkpoint_may_be_of_a_network_in_parallel(
    name: str, task: Any, generator: Generator
) -> None:
    state = random_state(name, task, generator)
    wrapped = {f"module.module.{key}": value for key, value in state.items()}
    here, there = (
        load_authors(name, given, task=task)  # type: ignore[arg-type]
        for given in (state, {"epoch": 250, "model_state_dict": wrapped})
    )
    assert not here.training
    assert here.config.num_classes == CLASSES[task]
    found = there.state_dict()
    for key, value in here.state_dict().items():  # alpha is not known, and stored as NaN
        torch.testing.assert_close(value, found[key], rtol=0, atol=0, equal_nan=True)
    assert here.encoding is not None
    assert here.encoding.veckm.alpha == pytest.approx((30.0,), rel=0.1)  # measured


def test_a_checkpoint_that_does_not_fit_is_refused(generator: Generator) -> None:
    state = random_state("pct", "classification", generator)
    with pytest.raises(ValueError, match=r"authors' pointnet for classification: it lacks bn_clf1"):
        load_authors("pointnet", state)
    with pytest.raises(ValueError, match="for classification: it also has extra; name the network"):
        load_authors("pct", {**state, "extra": torch.zeros(1)})
    wrong = {**state, "linear3.weight": torch.zeros(40, 255)}
    with pytest.raises(
        ValueError, match=r"other sizes than the authors' pct(.|\n)*head\.2\.weight"
    ):
        load_authors("pct", wrong)
    wrong = {**state, "conv_fuse.0.weight": torch.zeros(1024, 1281, 1)}
    with pytest.raises(ValueError, match=r"other sizes(.|\n)*fuse\.linear\.weight"):
        load_authors("pct", wrong)
    key = "pt_last.sa1.q_conv.weight"
    with pytest.raises(ValueError, match=r"k_conv\.weight and pt_last\.sa1\.q_conv\.weight differ"):
        load_authors("pct", {**state, key: state[key] + 1})
    with pytest.raises(ValueError, match="have no point_transformer for classification; there are"):
        load_authors("point_transformer", state)
    with pytest.raises(ValueError, match="a dictionary of tensors"):
        load_authors("pct", {"epoch": 3})


def built(name: str, task: Any, **options: Any) -> PointModel:
    return create_model(
        name, task=task, veckm=True, authors=True, num_classes=CLASSES[task], **options
    )


@six
def test_the_config_rebuilds_the_network(name: str, task: Any, generator: Generator) -> None:
    model = built(name, task, seed=3)
    twin = rebuild(json.loads(json.dumps(describe(model))))
    assert type(twin) is type(model)
    state = twin.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    pos, category = clouds(generator)
    call(model, pos.float(), category).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@six
def test_complex_layers_start_as_two_real_ones_each(name: str, task: Any) -> None:
    for layer in (m for m in built(name, task).modules() if isinstance(m, ComplexLinear)):
        weight, bias = layer.weight_parts.detach(), layer.bias_parts
        assert bias is not None
        if task == "classification":  # torch's own start of a real layer, U(-bound, bound)
            bound = layer.in_features**-0.5
            assert 0.99 * bound < float(weight.abs().max()) <= bound
            assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.02)
            assert float(bias.detach().std()) == pytest.approx(bound * (2 / 3) ** 0.5, rel=0.15)
        else:  # Glorot's
            std = (2 / sum(weight.shape[:2])) ** 0.5
            assert float(weight.std()) == pytest.approx(std, rel=0.02)
            assert not bias.any()


@pytest.mark.parametrize("name", ["pct", "pointnet2"])
def test_all_points_are_kept(name: str, generator: Generator) -> None:
    pos = clouds(generator, 600)[0].float()
    model: Any = built(name, "classification").eval()
    points, x = model.first_level(Clouds.of(pos), torch.empty(1200, 0))
    assert torch.equal(points.pos, pos.flatten(0, 1))
    assert len(x) == 1200


def test_what_the_authors_do_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="authors=True is given, but veckm=False"):
        create_model("pct", authors=True, num_classes=40)
    with pytest.raises(ValueError, match="the authors have no pointnet for semantic-segmentation"):
        create_model(
            "pointnet", task="semantic-segmentation", veckm=True, authors=True, num_classes=4
        )
    assert default_encoding("pct", authors=True).hidden == 256
