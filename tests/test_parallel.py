"""Sharing work among threads: each item once, errors come out, torch is left as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from clouds import frequencies, surface
from torch import Generator, Tensor
from torch.nn.functional import normalize
from torch.overrides import TorchFunctionMode

import veckm.parallel
from veckm import encode
from veckm.components import principal_components
from veckm.models.clouds import Clouds
from veckm.parallel import one_thread, share, workers
from veckm.tasks.normals import estimate
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.orient import orient

counts = pytest.mark.parametrize("count", [1, 2, 3, 5])


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads for torch, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@counts
@pytest.mark.parametrize("items", [0, 1, 2, 17])
def test_each_item_is_done_once_by_the_worker_whose_turn_it_is(count: int, items: int) -> None:
    done: list[list[int]] = [[] for _ in range(count)]
    share(range(items), lambda worker: done[worker].append, count)
    assert done == [list(range(items))[worker::count] for worker in range(count)]


@counts
def test_a_worker_is_made_once_and_keeps_what_it_has(count: int) -> None:
    made: list[int] = []

    def make(worker: int) -> Callable[[int], None]:
        made.append(worker)
        own = threading.get_ident()

        def work(_: int) -> None:
            assert threading.get_ident() == own

        return work

    share(range(20), make, count)
    assert sorted(made) == list(range(count))


@counts
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_comes_out_and_the_threads_of_torch_are_restored(
    count: int, error: type[BaseException]
) -> None:
    def work(item: int) -> None:
        if item == 5:
            raise error("item 5")

    with threads(3):
        with pytest.raises(error, match="item 5"):
            share(range(20), lambda _: work, count)
        assert torch.get_num_threads() == 3


def test_after_an_error_the_others_stop_soon() -> None:
    failed, done = threading.Event(), []

    def make(worker: int) -> Callable[[int], None]:
        def work(item: int) -> None:
            if worker == 0:
                failed.set()
                raise RuntimeError("stop")
            assert failed.wait(10)
            threading.Event().wait(0.02)
            done.append(item)

        return work

    with pytest.raises(RuntimeError, match="stop"):
        share(range(2000), make, 2)
    assert len(done) < 500  # of a thousand


@counts
def test_the_threads_of_torch_are_one_for_each_worker_and_restored_after(count: int) -> None:
    with threads(3):
        seen: list[int] = []
        share(range(6), lambda _: lambda _: seen.append(torch.get_num_threads()), count)
        assert torch.get_num_threads() == 3
        fresh: list[int] = []
        thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert fresh == [3]
    assert count == 1 or seen == [1] * 6


def test_work_that_overlaps_in_two_threads_leaves_both_with_their_threads() -> None:
    inside, other_inside, first_done = (threading.Event() for _ in range(3))
    fresh: list[int] = []

    def first() -> None:
        def work(_: int) -> None:
            inside.set()
            assert other_inside.wait(10)

        share(range(2), lambda _: work, 2)
        first_done.set()

    def second() -> None:
        def work(_: int) -> None:
            other_inside.set()
            assert first_done.wait(10)

        assert inside.wait(10)
        share(range(2), lambda _: work, 2)

    with threads(3):
        both = [threading.Thread(target=target) for target in (first, second)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        after = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
        after.start()
        after.join()
        assert torch.get_num_threads() == 3
        assert fresh == [3]


@counts
@pytest.mark.parametrize("inference", [True, False])
def test_the_modes_of_torch_are_those_of_the_caller_and_without_grad(
    count: int, inference: bool
) -> None:
    seen: list[tuple[bool, bool]] = []

    def work(_: int) -> None:
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))

    with torch.inference_mode(inference), torch.no_grad():
        share(range(6), lambda _: work, count)
    assert seen == [(inference, False)] * 6


def test_there_are_no_more_workers_than_are_worth_while() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    with threads(4):
        assert [workers(cpu, items) for items in (0, 1, 7, 8, 16, 10**6)] == [1, 1, 1, 2, 4, 4]
        assert workers(gpu, 10**6) == 1
    with threads(64):
        assert workers(cpu, 10**6) == 8


@pytest.mark.parametrize("engine", ["dense", "neighbors", "grid"])
def test_results_are_the_same_bits_in_every_run_and_the_same_numbers_for_any_threads(
    engine: str, generator: Generator
) -> None:
    pos, A = surface(6000, 3, generator).float(), frequencies(3, 16, 60.0, generator)
    results = []
    for count in (1, 2, 2, 4, 4):
        with threads(count):
            results.append(encode(pos, A, beta=10.0, engine=engine))  # type: ignore[arg-type]
    assert torch.equal(results[1], results[2])
    assert torch.equal(results[3], results[4])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-4, atol=1e-4)


def test_on_one_thread_the_users_number_is_still_known() -> None:
    cpu = torch.device("cpu")
    with threads(4):
        with one_thread():
            assert torch.get_num_threads() == 1
            assert veckm.parallel.threads() == 4
            assert workers(cpu, 100) == 4
            with one_thread():
                assert veckm.parallel.threads() == 4
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == veckm.parallel.threads() == 4


def test_a_worker_starts_no_others_and_stays_on_one_thread() -> None:
    seen: list[tuple[int, int, int]] = []

    def work(_: int) -> None:
        with one_thread():
            inside = torch.get_num_threads()
        seen.append((inside, torch.get_num_threads(), workers(torch.device("cpu"), 100)))

    with threads(3):
        share(range(6), lambda _: work, 2)
        assert torch.get_num_threads() == 3
    assert seen == [(1, 1, 1)] * 6


class Recorder(TorchFunctionMode):
    """Notes the threads that torch had in each of its calls in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def __torch_function__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ) -> Any:
        self.seen.add(torch.get_num_threads())
        return func(*args, **(kwargs or {}))


#: Calls of many small operations, on a cloud x and on a batch of clouds.
CALLS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "normals": lambda x, _: estimate(x, orient="consistent"),
    "normals of a batch": lambda _, clouds: estimate(clouds),
    "curvature": lambda x, _: estimate(x, curvature=True),
    "untrained": lambda x, _: estimate(x, method="moments"),
    "orient": lambda x, _: orient(x, x),
    "PCA": lambda x, _: pca_normals(x, 12),
    "components": lambda x, _: principal_components([x], 2).project(x),
    "neighbors": lambda _, clouds: Clouds.of(clouds).knn(8),
    "balls": lambda x, _: Clouds.of(x).ball(0.2, 8, Clouds.of(x)),
    "farthest points": lambda _, clouds: Clouds.of(clouds).sample(lambda _: 40),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_public_call_has_torch_on_one_thread_and_leaves_it_as_it_was(
    name: str, generator: Generator
) -> None:
    clouds = normalize(torch.randn(3, 400, 3, generator=generator), dim=-1)
    x = clouds[0]
    with threads(3):
        with torch.enable_grad(), Recorder() as recorder:
            CALLS[name](x, clouds)
            assert torch.is_grad_enabled()
            assert not torch.is_inference_mode_enabled()
        assert recorder.seen == {1}
        assert torch.get_num_threads() == veckm.parallel.threads() == 3


@pytest.mark.parametrize("name", [name for name in CALLS if name != "components"])
def test_a_public_call_that_raises_leaves_torch_as_it_was(name: str) -> None:
    clouds = torch.full((3, 400, 3), torch.nan)
    with threads(3):
        with pytest.raises(ValueError, match=r"NaN|finite"):
            CALLS[name](clouds[0], clouds)
        assert torch.get_num_threads() == veckm.parallel.threads() == 3
