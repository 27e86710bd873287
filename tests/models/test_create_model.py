"""Networks by name: what there is, and what is refused, at creation and in a call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from veckm.models import EncodingConfig, create_model, list_models


def test_the_models_of_a_task_are_listed() -> None:
    assert list_models() == ["pointnet", "pointnet2", "pct", "point_transformer"]
    assert list_models("part-segmentation") == ["pointnet", "pointnet2", "pct"]
    assert "pct" not in list_models("semantic-segmentation")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "pointnet3"}, "no model is called 'pointnet3'; there are pointnet, pointnet2"),
        ({"task": "sorting"}, "no task is called 'sorting'; there are classification"),
        ({"name": "pct", "task": "semantic-segmentation"}, "pct has no semantic-segmentation"),
        ({"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ({"in_channels": -1}, "in_channels must be at least 0"),
        ({"encoding": EncodingConfig()}, "pass veckm=True"),
        ({"task": "part-segmentation", "num_categories": 0}, "num_categories must be at least 1"),
    ],
)
def test_a_network_that_does_not_exist_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_model(**{"name": "pointnet", "num_classes": 5, **arguments})


def test_an_option_that_a_network_does_not_have_is_refused() -> None:
    with pytest.raises(
        TypeError, match="pct for classification has no option k; it has dropout, points"
    ):
        create_model("pct", num_classes=5, k=3)
    with pytest.raises(ValueError, match="VecKM -> PN has no transforms"):
        create_model("pointnet", veckm=True, num_classes=5, input_transform=False)
    with pytest.raises(TypeError, match="pointnet for classification has no option alpha"):
        create_model("pointnet", veckm=True, num_classes=5, alpha=20.0)


@pytest.mark.parametrize(
    ("pos", "features", "category", "message"),
    [
        ((9, 3), None, [0, 1], r"category must be int64 of shape \(1,\)"),
        ((2, 0, 3), None, [0, 1], "at least one point"),
        ((2, 9, 2), None, [0, 1], r"of shape \(B, N, 3\)"),
        ((2, 9, 3), (2, 9, 1), [0, 1], r"x must have shape \(2, 9, 0\)"),
        ((2, 9, 3), None, [0], "one number per cloud"),
        ((2, 9, 3), None, [0, 16], "category must be from 0 to 15, got 0 to 16"),
    ],
)
def test_input_that_does_not_fit_is_refused(
    pos: tuple[int, ...], features: tuple[int, ...] | None, category: Any, message: str
) -> None:
    model = create_model("pointnet", task="part-segmentation", num_classes=5).eval()
    x = None if features is None else torch.zeros(features)
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(pos), x, category=torch.tensor(category))


def test_missing_and_broken_features_are_refused() -> None:
    model = create_model("pointnet", num_classes=5, in_channels=2).eval()
    with pytest.raises(ValueError, match="in_channels=2 and got no x"):
        model(torch.zeros(1, 9, 3))
    with pytest.raises(ValueError, match="x has NaN"):
        model(torch.zeros(1, 9, 3), torch.full((1, 9, 2), torch.nan))


def test_one_cloud_is_not_enough_to_train_on() -> None:
    with pytest.raises(ValueError, match="at least two clouds"):
        create_model("pointnet", num_classes=5)(torch.zeros(1, 9, 3))
