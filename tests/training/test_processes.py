"""Two gloo processes and one process with the joint batch: the same gradients and loss curve."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
import torch
from releases import Tiny, stored
from torch import distributed, multiprocessing

from veckm.data.augment import Augment
from veckm.tasks.labeling import Classification
from veckm.training import Recipe, evaluate, train
from veckm.training.log import read_log
from veckm.training.loop import Supervised
from veckm.training.precision import Precision
from veckm.training.ranks import Ranks, current, joined

TASK = Classification(num_classes=2, points=12)
RECIPE = Recipe(epochs=4, batch=5, rate=1e-2, seed=1)  # five is not even: slices of 2 and 3


def net() -> Tiny:
    return Tiny(2, per_point=False)


def work(folder: str) -> None:
    """What each process does, and the one alone too."""
    torch.set_num_threads(1)
    with joined(torch.device("cpu")) as ranks:
        out = Path(folder)
        data = stored(11)
        augment, device = Augment(drop=0.5), torch.device("cpu")
        step = Supervised(net(), TASK, data, RECIPE, augment, device, Precision())
        step(0, 0, torch.Tensor.backward)
        grads = [p.grad.clone() for p in step.model.parameters()]
        del step  # and with it what holds the group, as in any program whose training has returned
        model = net()
        train(model, TASK, data, RECIPE, out, augment=Augment(drop=0.5), validation=stored(7))
        scores = evaluate(model, TASK, stored(1))  # one sample: a process has nothing to do
        state = {"grads": grads, "weights": model.state_dict(), "scores": scores}
        torch.save(state, out / f"rank{ranks.rank}.pt")


def launched(rank: int, world: int, port: int, folder: str) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world)
    )
    work(folder)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.skipif(not distributed.is_available(), reason="torch has no distributed")
@pytest.mark.skipif(sys.platform == "win32", reason="gloo by environment needs a POSIX system")
def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    work(str(one))
    multiprocessing.spawn(launched, (2, free_port(), str(two)), nprocs=2)
    alone, first, second = (
        torch.load(path) for path in (one / "rank0.pt", two / "rank0.pt", two / "rank1.pt")
    )
    for other in (first, second):
        for a, b in zip(alone["grads"], other["grads"], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
        for name, value in alone["weights"].items():
            torch.testing.assert_close(value, other["weights"][name], rtol=1e-4, atol=1e-5)
        assert other["scores"] == alone["scores"]
    for a, b in zip(read_log(one), read_log(two), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a.get("instance accuracy") == b.get("instance accuracy")


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_slices_of_a_batch_are_all_of_it(world: int) -> None:
    batch = list(range(100, 111))
    slices = [list(Ranks(rank, world).mine(batch)) for rank in range(world)]
    assert [index for part in slices for index in part] == batch
    assert max(map(len, slices)) - min(map(len, slices)) <= 1


def test_more_processes_than_clouds_in_a_batch_are_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("veckm.training.loop.current", lambda: Ranks(0, 8))
    with pytest.raises(ValueError, match="8 processes cannot share batches of 5"):
        train(net(), TASK, stored(11), RECIPE, tmp_path)
    assert current() == Ranks(0, 1)
