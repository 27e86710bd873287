"""The metrics against numbers worked out by hand, and the losses against their definition."""

from __future__ import annotations

import math

import pytest
import torch

from veckm.data.samples import IGNORE, Batch, generator_of
from veckm.tasks import labeling
from veckm.tasks.labeling import Classification, PartSegmentation, SemanticSegmentation


def logits_of(answer: torch.Tensor, classes: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(answer, classes).float()


def test_accuracies_by_hand() -> None:
    label = torch.tensor([0, 0, 0, 1])
    said = torch.tensor([0, 0, 1, 1])
    task = Classification(num_classes=3)
    tally = task.tally(logits_of(said, 3), Batch(torch.zeros(4, 1, 3), label))
    assert tally.tolist() == [[2, 1, 0], [0, 1, 0], [0, 0, 0]]
    assert task.scores(tally) == {
        "instance accuracy": 0.75,
        "class accuracy": pytest.approx((2 / 3 + 1) / 2),  # class 2 is not there
    }


def test_scene_metrics_by_hand_and_ignored_points_do_not_count() -> None:
    label = torch.tensor([[0, 0, 1, 1, IGNORE]])
    said = torch.tensor([[0, 1, 1, 1, 2]])
    task = SemanticSegmentation(num_classes=4)
    batch = Batch(torch.zeros(1, 5, 3), label)
    scores = task.scores(task.tally(logits_of(said, 4), batch))
    assert scores["overall accuracy"] == 0.75
    assert scores["class accuracy"] == pytest.approx(0.75)
    assert scores["mIoU"] == pytest.approx((1 / 2 + 2 / 3) / 2)  # 2 and 3 in neither
    total, count = task.loss(logits_of(said, 4), batch)
    assert int(count) == 4
    wrong, right = math.log(math.e + 3), math.log(math.e + 3) - 1
    assert float(total) == pytest.approx(wrong + 3 * right)


def test_a_class_that_is_only_in_the_answer_has_no_share_of_its_own() -> None:
    counts = torch.tensor(
        [[6, 0, 2], [0, 4, 0], [0, 0, 0]]
    )  # two points were called by a third name
    assert SemanticSegmentation(num_classes=3).scores(counts)["mIoU"] == pytest.approx(
        (6 / 8 + 1) / 2
    )


def test_a_part_that_is_absent_in_both_counts_one() -> None:
    label = torch.tensor([12, 12, 13, 13])
    said = torch.tensor([12, 13, 13, 13])
    # Parts 12 to 15 of a chair: 1/2, 2/3, and two that are in neither.
    assert labeling.shape_iou(said, label, 12, 4) == pytest.approx((1 / 2 + 2 / 3 + 2) / 4)
    assert labeling.shape_iou(torch.tensor([12, 12]), torch.tensor([13, IGNORE]), 12, 4) == 0.5


def test_part_metrics_by_hand_and_answers_are_of_the_own_category() -> None:
    label = torch.tensor([[6, 7], [6, 6], [12, 12]])
    category = torch.tensor([2, 2, 4])  # two caps and a chair
    said = torch.tensor([[6, 7], [6, 7], [12, 12]])
    logits = logits_of(said, 50)
    logits[..., 49] = 9.0  # a table's part, which no cap has
    task = PartSegmentation()
    batch = Batch(torch.zeros(3, 2, 3), label, None, category)
    # Caps: 1, and (1/2 + 0) / 2 = 1/4. The chair: 1.
    scores = task.scores(task.tally(logits, batch))
    assert scores["instance mIoU"] == pytest.approx((1 + 0.25 + 1) / 3)
    assert scores["class mIoU"] == pytest.approx(((1 + 0.25) / 2 + 1) / 2)


def test_tallies_of_batches_add_up_to_that_of_all() -> None:
    g = generator_of(0)
    logits = torch.randn(6, 10, 50, generator=g)
    label = torch.randint(12, 16, (6, 10), generator=g)
    category = torch.full((6,), 4)
    whole = Batch(torch.zeros(6, 10, 3), label, None, category)
    for task in (PartSegmentation(), SemanticSegmentation(num_classes=50)):
        parts = [
            task.tally(logits[s], Batch(whole.pos[s], label[s], None, category[s]))
            for s in (slice(0, 4), slice(4, 6))
        ]
        torch.testing.assert_close(sum(parts), task.tally(logits, whole))


def test_the_defaults_are_the_papers() -> None:
    for task, batch, points in ((Classification(), 32, 1024), (PartSegmentation(), 16, 2048)):
        recipe = task.default_recipe
        assert (recipe.epochs, recipe.batch, recipe.rate) == (250, batch, 1e-3)
        assert task.points == points
        assert (task.augment().translation, task.augment().scale) == (0.2, (0.67, 1.5))
    assert SemanticSegmentation().num_classes == 13


def test_nothing_to_measure_is_not_a_number() -> None:
    none = torch.zeros(3, 3, dtype=torch.int64)
    assert all(map(math.isnan, SemanticSegmentation().scores(none).values()))
