"""Values are checked once, where they come in, and not at all where the caller says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_models import build, call, clouds, every_model
from torch import Generator, Tensor

from veckm import inputs
from veckm.models import Encoding, EncodingConfig, Task, create_model
from veckm.models.clouds import Clouds


def checked(call: Callable[[], object]) -> list[int]:
    """The sizes of all that was tested for finite values during a call."""
    sizes: list[int] = []
    check = inputs.check_finite

    def counted(values: Tensor, name: str) -> float:
        sizes.append(values.numel())
        return check(values, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "check_finite", counted)
        call()
    return sizes


def test_the_counter_counts() -> None:
    assert checked(lambda: inputs.check_points(torch.zeros(2, 3), "pos")) == [6]


@every_model
def test_a_forward_pass_checks_the_points_once(
    name: str, task: Task, veckm: bool, generator: Generator
) -> None:
    model = build(name, task, veckm).eval()
    pos, category = clouds(generator, n=160)
    pos = pos.float()
    with torch.no_grad():
        out = call(model, pos, None, category).logits
        assert checked(lambda: call(model, pos, None, category)) == [pos.numel()]
        model.validate = False
        assert checked(lambda: call(model, pos, None, category)) == []
        assert torch.equal(call(model, pos, None, category).logits, out)


def test_features_are_checked_once_too(generator: Generator) -> None:
    model = create_model("pct", veckm=True, num_classes=4, in_channels=2, validate=False).eval()
    assert not model.validate
    pos, features = torch.rand(2, 64, 3, generator=generator), torch.rand(2, 64, 2)
    assert checked(lambda: model(pos, features)) == []
    model.validate = True
    assert checked(lambda: model(pos, features)) == [pos.numel(), features.numel()]


@pytest.mark.parametrize("validate", [False, True])
def test_shapes_are_checked_always(validate: bool) -> None:
    model = create_model(
        "pointnet2", task="part-segmentation", num_classes=5, in_channels=1, validate=validate
    ).eval()
    pos, features, category = torch.zeros(2, 9, 3), torch.zeros(2, 9, 1), torch.tensor([0, 1])
    for bad, message in (
        ((pos[..., :2], features, category), r"of shape \(B, N, 3\)"),
        ((pos.long(), features, category), "float"),
        ((pos, features[:, :3], category), r"x must have shape \(2, 9, 1\)"),
        ((pos, None, category), "got no x"),
        ((pos, features, category[:1]), "one number per cloud"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            model(*bad[:2], category=bad[2])


def test_an_encoding_by_itself_checks_its_points(generator: Generator) -> None:
    encoding = Encoding(EncodingConfig(dim=8, hidden=8, channels=8))
    pos = torch.rand(1, 20, 3, generator=generator)
    pos[0, 3] = torch.nan
    with pytest.raises(ValueError, match="pos has NaN or infinite values in 1 of 20 rows"):
        encoding(pos)


@pytest.mark.parametrize("batch", [None, torch.zeros(20, dtype=torch.int64)])
def test_clouds_check_values_unless_told_otherwise(
    batch: Tensor | None, generator: Generator
) -> None:
    pos = torch.rand(20, 3, generator=generator)
    assert checked(lambda: Clouds.of(pos, batch)) == [pos.numel()]
    assert checked(lambda: Clouds.of(pos, batch, validate=False)) == []
    clouds = Clouds.of(pos, batch)
    assert checked(lambda: (clouds.knn(3), clouds.sample(lambda n: n // 2))) == []
    with pytest.raises(ValueError, match="shape"):
        Clouds.of(pos[None, None], validate=False)
