"""Mixed precision on the CPU, forced on: every network of every task makes real steps with it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch
from releases import Tiny, stored

from veckm.data.samples import Batch, Sample, Samples
from veckm.models import NETWORKS, PointModel, create_model, default_encoding
from veckm.tasks.labeling import Classification, PartSegmentation, SemanticSegmentation
from veckm.training import Precision, Recipe, fit, load_checkpoint, train
from veckm.training.evaluation import predict
from veckm.training.log import read_log

CPU = torch.device("cpu")
HALF, BRAIN = Precision(torch.float16), Precision(torch.bfloat16)
#: With a factor that no gradient here overflows, which HALF finds after up to ten skipped steps.
SETTLED = replace(HALF, scale=2.0**7)
TASKS = {
    "classification": Classification(3),
    "part-segmentation": PartSegmentation(),
    "semantic-segmentation": SemanticSegmentation(3),
}


def network(kind: type[PointModel], veckm: bool) -> PointModel:
    encoding = default_encoding(kind.name, kind.task, dim=16, hidden=8) if veckm else None
    return create_model(
        kind.name,
        task=kind.task,
        veckm=veckm,
        encoding=encoding,
        num_classes=TASKS[kind.task].num_classes,
    )


def clouds(task: str, count: int = 4, points: int = 64) -> Samples:
    random, made = torch.Generator().manual_seed(5), []
    for k in range(count):
        pos = torch.rand(points, 3, generator=random)
        label = torch.tensor(k % 3) if task == "classification" else (3 * pos[:, 2]).long()
        made.append(Sample(str(k), pos, label, category=k % 3 if task.startswith("part") else None))
    return Samples(made, [str(k) for k in range(TASKS[task].num_classes)])


@pytest.mark.parametrize(
    ("kind", "veckm", "precision"),
    [(kind, veckm, SETTLED) for kind in NETWORKS for veckm in (False, True)]
    + [(kind, True, BRAIN) for kind in NETWORKS],
    ids=lambda x: f"{x.name}-{x.task}" if isinstance(x, type) else str(x).partition(" by")[0],
)
def test_every_network_learns_in_mixed_precision(
    tmp_path: Path, kind: type[PointModel], veckm: bool, precision: Precision
) -> None:
    model = network(kind, veckm)
    assert not any(p.is_complex() for p in chain(model.parameters(), model.buffers()))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    # The deepest of the five levels of Point Transformer needs two neighbors.
    samples = clouds(kind.task, 12, 280 if kind.name == "point_transformer" else 64)
    recipe = Recipe(epochs=1, batch=4, rate=1e-3, clip=1.0)
    train(model, TASKS[kind.task], samples, recipe, tmp_path, precision=precision)
    assert all(p.isfinite().all() for p in model.state_dict().values())
    same = [name for name, p in model.named_parameters() if torch.equal(p, before[name])]
    assert same == []
    scaler = load_checkpoint(tmp_path).scaler
    assert scaler.get("scale") == (SETTLED.scale if precision == SETTLED else None)
    assert math.isfinite(read_log(tmp_path)[0]["loss"])


def test_a_step_with_an_infinite_gradient_is_skipped_and_the_scale_halved(tmp_path: Path) -> None:
    line = torch.nn.Linear(1, 1)
    seen = []

    def gradients(epoch: int, step: int, backward) -> tuple[float, float]:
        seen.append(line.weight.detach().clone())
        backward(line(torch.ones(1, 1)).sum() * (float("inf") if step == 1 else 1.0))
        return 1.0, 1.0

    fit(line, gradients, 3, Recipe(epochs=1, rate=0.1), tmp_path, task={"name": "line"}, data={},
        precision=HALF)  # fmt: skip
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[1], seen[2])
    assert not torch.equal(seen[2], line.weight)
    assert load_checkpoint(tmp_path).scaler["scale"] == 2.0**15


def test_the_scale_is_kept_over_a_stop(tmp_path: Path) -> None:
    task, recipe = Classification(2, 12), Recipe(epochs=4, batch=4, rate=1e-2)
    whole, parts = (Tiny(2, per_point=False, dropout=0.3) for _ in range(2))
    train(whole, task, stored(10), recipe, tmp_path / "a", precision=HALF)

    class Killed(BaseException):
        pass

    def note(text: str) -> None:
        if text.startswith("epoch 2/"):
            raise Killed

    with pytest.raises(Killed):
        train(parts, task, stored(10), recipe, tmp_path / "b", precision=HALF, note=note)
    train(parts, task, stored(10), recipe, tmp_path / "b", precision=HALF)
    assert load_checkpoint(tmp_path / "a").scaler == load_checkpoint(tmp_path / "b").scaler != {}
    assert all(map(torch.equal, whole.parameters(), parts.parameters()))


def test_it_is_for_cuda_and_bfloat16_where_there_is_some(monkeypatch) -> None:
    cuda, recipe = torch.device("cuda"), Recipe()
    assert Precision.of(recipe, CPU) == Precision()
    assert Precision.of(replace(recipe, amp=False), cuda) == Precision()
    for native, expected in ((True, BRAIN), (False, HALF)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, n=native, **__: n)
        assert Precision.of(recipe, cuda) == expected
    assert str(HALF) == "products in float16 by autocast, the loss scaled"


@pytest.mark.parametrize("native", [True, False])
def test_on_a_cpu_it_is_asked_for_and_needs_instructions(monkeypatch, native) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: native)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    recipe = Recipe(amp_cpu=True)
    assert Precision.of(recipe, CPU) == (BRAIN if native else Precision())
    assert Precision.of(replace(recipe, amp=False), CPU) == Precision()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_fused_step_is_the_same_step(optimizer) -> None:
    recipe, data = (
        Recipe(optimizer=optimizer, rate=0.01, weight_decay=0.1),
        clouds("classification"),
    )
    task, made = TASKS["classification"], []
    for fused in (False, True):
        model = network(NETWORKS[0], veckm=True).eval()  # no dropout
        steps = recipe.optimizer_of(model.parameters(), fused=fused)
        assert ("fused" in recipe.in_force(steps)) == fused
        for _ in range(3):
            _loss(model, task, data).backward()
            steps.step()
            steps.zero_grad()
        made.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(made[1], made[0], rtol=1e-4, atol=1e-5)


# Warnings of the compiler about its own code.
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.*autograd.function.Function")
@pytest.mark.parametrize("kind", NETWORKS[:1] + NETWORKS[6:7], ids=lambda kind: kind.name)
def test_a_compiled_step_is_the_same_step(
    kind: type[PointModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veckm.engines.device.native_bfloat16", lambda: False)
    task, data, made = TASKS[kind.task], clouds(kind.task), []
    for compiled in (False, True):
        model = network(kind, veckm=True).eval()
        steps = Recipe(optimizer="sgd", rate=0.01).optimizer_of(model.parameters())
        loss = torch.compile(_loss, backend="aot_eager") if compiled else _loss
        for _ in range(2):
            loss(model, task, data).backward()
            steps.step()
            steps.zero_grad()
        made.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(made[1], made[0], rtol=1e-3, atol=1e-4)


def _loss(model: PointModel, task, data: Samples) -> torch.Tensor:
    batch = Batch(torch.stack([s.pos for s in data]), torch.stack([s.label for s in data]))
    total, count = task.loss(predict(model, batch)[0], batch)
    return total / count
