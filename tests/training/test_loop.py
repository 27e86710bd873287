"""Training learns, repeats itself, and goes on after a kill as if nothing had happened."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
import torch
from releases import Tiny, stored

from veckm.data.augment import Augment
from veckm.data.samples import Sample, Samples, collate, hold_out
from veckm.models import create_model, default_encoding
from veckm.tasks.labeling import Classification, SemanticSegmentation
from veckm.training import Recipe, evaluate, fit, load_checkpoint, load_model, train
from veckm.training.log import read_log

TASK = Classification(num_classes=2, points=12)
RECIPE = Recipe(epochs=5, batch=4, rate=1e-2, seed=3)
THIN = Augment(drop=0.5)  # with points that go


def net(dropout: float = 0.3) -> Tiny:
    return Tiny(2, per_point=False, dropout=dropout)


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


class Killed(BaseException):
    pass


def kill_at(word: str):
    def note(line: str) -> None:
        if word in line:
            raise Killed

    return note


def curve(folder: Path) -> list[tuple[int, float, float]]:
    return [(line["epoch"], line["loss"], line["rate"]) for line in read_log(folder)]


def test_it_learns_and_says_so(tmp_path: Path) -> None:
    fit, val = hold_out(stored(60), 0.2)
    model, lines = net(0.0), []
    before = evaluate(model, TASK, val)
    recipe = Recipe(epochs=20, batch=8, rate=2e-2)
    scores = train(
        model, TASK, fit, recipe, tmp_path, augment=Augment(), validation=val, note=lines.append
    )
    assert scores == evaluate(model, TASK, val)
    assert scores["instance accuracy"] > max(0.9, before["instance accuracy"])
    log = read_log(tmp_path)
    assert [line["epoch"] for line in log] == list(range(1, 21))
    assert log[-1]["loss"] < 0.7 * log[0]["loss"]
    assert log[-1]["instance accuracy"] == scores["instance accuracy"]
    assert "instance accuracy" not in log[0]
    assert lines[-1].startswith("epoch 20/20: loss ")
    assert model.training  # evaluation puts the mode back


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_killed_run_goes_on_to_the_same_weights(tmp_path: Path, epoch: int) -> None:
    whole, parts, data = net(), net(), stored(10)
    options = {"augment": Augment(), "validation": stored(4), "validate_every": 2}
    scores = train(whole, TASK, data, RECIPE, tmp_path / "whole", **options)
    note = kill_at(f"epoch {epoch}/")
    with pytest.raises(Killed):
        train(parts, TASK, data, RECIPE, tmp_path / "parts", note=note, **options)
    again = net()
    assert train(again, TASK, data, RECIPE, tmp_path / "parts", **options) == scores
    assert same(whole, again)
    assert curve(tmp_path / "whole") == curve(tmp_path / "parts")
    one, two = (load_checkpoint(tmp_path / name) for name in ("whole", "parts"))
    for key, state in one.optimizer["state"].items():
        assert all(torch.equal(v, two.optimizer["state"][key][k]) for k, v in state.items())


def test_more_epochs_go_on_at_the_rates_of_the_longer_schedule(tmp_path: Path) -> None:
    data, longer, lines = stored(10), replace(RECIPE, epochs=8), []
    train(net(), TASK, data, RECIPE, tmp_path / "one")
    copytree(tmp_path / "one", tmp_path / "two")
    whole = net()
    train(whole, TASK, data, longer, tmp_path / "one", note=lines.append)
    assert lines[:2] == [
        "resumed after epoch 5 of 8",
        "extended from 5 to 8 epochs: the rate goes on at 0.00309 after 0.000955, by the cosine of "
        "8 epochs",
    ]
    rates = [line["rate"] for line in read_log(tmp_path / "one")]
    assert rates == [*map(RECIPE.rate_of, range(5)), *map(longer.rate_of, range(5, 8))]
    with pytest.raises(Killed):
        train(net(), TASK, data, longer, tmp_path / "two", note=kill_at("epoch 6/8"))
    again = net()
    train(again, TASK, data, longer, tmp_path / "two")
    assert same(whole, again)
    assert curve(tmp_path / "one") == curve(tmp_path / "two")
    with pytest.raises(ValueError, match="epochs is 8 there and 5 here"):
        train(net(), TASK, data, RECIPE, tmp_path / "one")


def test_steps_are_told_and_what_is_in_force(tmp_path: Path) -> None:
    lines: list[str] = []
    recipe = Recipe(epochs=1, batch=4, optimizer="sgd", momentum=0.8, weight_decay=5e-4, clip=1.0)
    train(net(), TASK, stored(8), recipe, tmp_path, note=lines.append, note_every=1e-9)
    assert lines[0] == (
        "SGD with momentum 0.8; rate 0.001, a cosine over 1 epochs; weight decay 0.0005; gradients "
        "of norm 1 at most; products in float32; 2 steps per epoch on cpu"
    )
    told = [re.fullmatch(r"epoch 1/1 step (\d)/2: loss [\d.]+, \S+ s/step", s) for s in lines[1:3]]
    assert [found and found[1] for found in told] == ["1", "2"]
    assert len(lines) == 4


def test_a_kill_within_an_epoch_costs_that_epoch_only(tmp_path: Path) -> None:
    whole, data = net(), stored(10)
    train(whole, TASK, data, RECIPE, tmp_path / "whole", augment=THIN)

    class Deadly(Tiny):
        calls = 0

        def forward(self, *args, **kwargs):
            Deadly.calls += 1
            if Deadly.calls == 6:  # the second step of the third epoch
                raise Killed
            return super().forward(*args, **kwargs)

    with pytest.raises(Killed):
        train(Deadly(2, False, dropout=0.3), TASK, data, RECIPE, tmp_path, augment=THIN)
    assert load_checkpoint(tmp_path).epoch == 2
    with (tmp_path / "log.jsonl").open("a") as file:  # a line without its checkpoint, and half one
        file.write(json.dumps({"epoch": 3, "loss": 9.0, "rate": 0.0}) + '\n{"epoch": 4, "lo')
    again = net()
    train(again, TASK, data, RECIPE, tmp_path, augment=THIN)
    assert same(whole, again)
    assert curve(tmp_path) == curve(tmp_path / "whole")
    assert not list(tmp_path.glob(".*.part"))


def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    model, val = net(), stored(6)
    scores = train(model, TASK, stored(10), RECIPE, tmp_path, validation=val)
    again = net()
    assert train(again, TASK, stored(10), RECIPE, tmp_path, validation=val) == scores
    assert same(model, again)


def test_the_users_random_state_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    one = net()
    train(one, TASK, stored(10), RECIPE, tmp_path / "one")
    assert torch.equal(torch.rand(3), expected)
    torch.rand(100)
    two = net()
    train(two, TASK, stored(10), RECIPE, tmp_path / "two")
    assert same(one, two)  # whatever the user's state was
    three = net()
    train(three, TASK, stored(10), replace(RECIPE, seed=4), tmp_path / "three")
    assert not same(one, three)


def test_the_rate_is_a_cosine() -> None:
    recipe = Recipe(epochs=10, rate=0.5)
    assert recipe.rate_of(0) == 0.5
    assert recipe.rate_of(5) == pytest.approx(0.25)
    assert recipe.rate_of(10) == pytest.approx(0)
    with pytest.raises(ValueError, match="epochs must be at least 1, got 0"):
        Recipe(epochs=0)
    with pytest.raises(ValueError, match="rate must be positive"):
        Recipe(rate=0.0)


def test_the_loss_of_the_log_is_that_of_every_point_that_counts(tmp_path: Path) -> None:
    """At a rate of almost nothing the loss of an epoch is that of the first weights."""
    task = SemanticSegmentation(num_classes=2, points=12)
    pos = collate(stored(8)).pos
    label = (pos[..., 2] > 0).long()
    label[0, :7] = -1
    data = Samples([Sample(str(k), pos[k], label[k]) for k in range(8)], ("a", "b"))
    model = Tiny(2, per_point=True)
    total, count = task.loss(model(pos).detach(), collate(data))
    recipe = Recipe(epochs=1, batch=2, rate=1e-12)
    train(model, task, data, recipe, tmp_path)
    assert int(count) == 8 * 12 - 7
    assert read_log(tmp_path)[0]["loss"] == pytest.approx(float(total / count), rel=1e-5)


def test_a_checkpoint_of_another_model_is_refused_with_both_named(tmp_path: Path) -> None:
    train(net(), TASK, stored(10), RECIPE, tmp_path)
    other = Tiny(3, per_point=False)
    other.name = "huge"
    with pytest.raises(ValueError, match=r"last\.pt cannot be resumed, its config diff") as caught:
        train(other, TASK, stored(10), RECIPE, tmp_path)
    assert "name is 'tiny' there and 'huge' here" in str(caught.value)
    assert "num_classes is 2 there and 3 here" in str(caught.value)


def test_another_run_is_not_gone_on_with(tmp_path: Path) -> None:
    train(net(), TASK, stored(10), RECIPE, tmp_path)
    before = (tmp_path / "last.pt").read_bytes()
    for task, data, recipe, message in (
        (TASK, stored(10), replace(RECIPE, epochs=4), "recipe differs: epochs is 5 there and 4"),
        (TASK, stored(10), replace(RECIPE, epochs=6, batch=5), "batch is 4 there and 5 here"),
        (TASK, stored(12), RECIPE, "data differs: samples is 10 there and 12 here"),
        (Classification(2, 99), stored(10), RECIPE, "task differs: points is 12 there and 99"),
    ):
        with pytest.raises(ValueError, match=message):
            train(net(), task, data, recipe, tmp_path)
    assert (tmp_path / "last.pt").read_bytes() == before


def test_a_checkpoint_from_before_a_field_was_added_had_its_default(tmp_path: Path) -> None:
    """Of recipes, of configs and of what they contain; another value is another run."""
    options = {"encoding": default_encoding("pointnet", dim=8, hidden=4, channels=8)}
    new = create_model("pointnet", veckm=True, num_classes=2, **options)
    train(new, TASK, stored(8, 40), replace(RECIPE, epochs=1), tmp_path)
    saved = load_checkpoint(tmp_path)
    del saved.recipe["clip"], saved.config["dropout"], saved.config["encoding"]["p"]
    saved.save(tmp_path / "last.pt")
    train(new, TASK, stored(8, 40), replace(RECIPE, epochs=1), tmp_path)
    assert load_model(tmp_path).config == new.config
    with pytest.raises(ValueError, match=r"recipe differs: clip is 0\.0 there and 2\.0 here"):
        train(new, TASK, stored(8, 40), replace(RECIPE, epochs=1, clip=2.0), tmp_path)
    other = create_model("pointnet", veckm=True, num_classes=2, dropout=0.1, **options)
    with pytest.raises(ValueError, match=r"config differs: dropout is 0\.\d+ there and 0\.1 here"):
        train(other, TASK, stored(8, 40), replace(RECIPE, epochs=1), tmp_path)


def test_files_that_are_no_checkpoints_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"last\.pt does not exist"):
        load_checkpoint(tmp_path)
    path = tmp_path / "last.pt"
    path.write_bytes(b"half")
    with pytest.raises(ValueError, match=r"last\.pt cannot be read as a checkpoint"):
        load_checkpoint(path)
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match=r"last\.pt is not a checkpoint of veckm"):
        load_checkpoint(path)


def test_a_loss_that_is_not_a_number_ends_the_run_before_its_checkpoint(tmp_path: Path) -> None:
    data = stored(10)
    data[3].pos[:] = math.inf
    with pytest.raises(ValueError, match="in epoch 1; the previous checkpoint is kept"):
        train(net(), TASK, data, RECIPE, tmp_path)
    assert not (tmp_path / "last.pt").exists()


def test_an_empty_set_is_refused(tmp_path: Path) -> None:
    empty = Samples([], ("a",))
    with pytest.raises(ValueError, match="training set is empty"):
        train(net(), TASK, empty, RECIPE, tmp_path)
    with pytest.raises(ValueError, match="the set to evaluate is empty"):
        evaluate(net(), TASK, empty)


def test_fewer_samples_than_a_batch_are_one_batch(tmp_path: Path) -> None:
    train(net(), TASK, stored(3), RECIPE, tmp_path)
    assert len(read_log(tmp_path)) == 5


def test_tensorboard_is_written_where_it_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    train(net(), TASK, stored(4), RECIPE, tmp_path)
    assert list((tmp_path / "tensorboard").iterdir())


@pytest.mark.parametrize("name", ["pointnet", "pct"])
def test_a_trained_network_is_loaded_in_one_line(tmp_path: Path, name: str) -> None:
    encoding = default_encoding(name, dim=16, hidden=8, channels=32)
    model = create_model(name, veckm=True, num_classes=2, encoding=encoding, dropout=0.1)
    train(model, TASK, stored(8, 40), replace(RECIPE, epochs=1), tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config
    assert not loaded.training
    pos = collate(stored(2, 40)).pos
    assert torch.equal(loaded(pos).logits, model.eval()(pos).logits)


def test_an_auxiliary_loss_is_added(tmp_path: Path) -> None:
    class Decayed(Tiny):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs), 1e3 * self.outer.square().sum()

    one, two = net(0.0), Decayed(2, per_point=False)
    for model in (one, two):
        train(model, TASK, stored(10), RECIPE, tmp_path / type(model).__name__)
    assert float(two.outer.detach().norm()) < 0.9 * float(one.outer.detach().norm())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_the_loop_serves_any_gradients(tmp_path: Path, optimizer: str) -> None:
    """A line through points, by steps of our own; killed and resumed to the same weights."""
    recipe = Recipe(epochs=6, rate=0.1, optimizer=optimizer, clip=1.0)  # type: ignore[arg-type]
    x = torch.linspace(-1, 1, 20)[:, None]

    def fitted(folder: Path, note=lambda _: None) -> torch.nn.Linear:
        line = torch.nn.Linear(1, 1)
        torch.nn.init.zeros_(line.weight)
        torch.nn.init.zeros_(line.bias)

        def gradients(epoch: int, step: int, backward) -> tuple[float, float]:
            part = x[step::10]
            loss = (line(part) - 2 * part - 1).square().sum()
            backward(loss)
            return float(loss.detach()), len(part)

        fit(line, gradients, 10, recipe, folder, task={"name": "line"}, data={}, note=note)
        return line

    whole = fitted(tmp_path / "whole")
    losses = [line["loss"] for line in read_log(tmp_path / "whole")]
    assert losses[-1] < 0.1 * losses[0]
    with pytest.raises(Killed):
        fitted(tmp_path / "parts", kill_at("epoch 3/"))
    assert same(whole, fitted(tmp_path / "parts"))


def test_the_rate_may_end_above_zero_or_be_halved() -> None:
    recipe = Recipe(epochs=10, rate=0.5, last_rate=0.1)
    assert recipe.rate_of(0) == 0.5
    assert recipe.rate_of(5) == pytest.approx(0.3)
    assert recipe.rate_of(10) == pytest.approx(0.1)
    recipe = Recipe(epochs=90, rate=1e-3, last_rate=1e-4, halve_every=20)
    assert [recipe.rate_of(e) for e in (0, 19, 20, 79, 80)] == [1e-3, 1e-3, 5e-4, 1.25e-4, 1e-4]
    with pytest.raises(ValueError, match="last_rate must not be negative, got -1"):
        Recipe(last_rate=-1)
