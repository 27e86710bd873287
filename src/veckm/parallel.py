"""Threads of one core each for work made of many small matrix products.

Inside one small product torch's own threads have to wait for each other again and again; whole
blocks on a thread each do not. What each worker does is fixed by the items' order and the number
of workers, so that results do not change from run to run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from veckm.progress import bar

T = TypeVar("T")
_here = threading.local()
_lock = threading.Lock()
_outer: list[int] = []  # the user's number of threads, once for each thread that is inside
#: More than this brings little: the blocks share one memory bus.
_MOST_WORKERS = 8


def workers(device: torch.device, items: int) -> int:
    """How many threads are worth while for so many items."""
    if device.type != "cpu":
        return 1  # the device has its own parallelism
    return max(1, min(torch.get_num_threads(), _MOST_WORKERS, items // 4))


def share(
    items: Sequence[T],
    make: Callable[[int], Callable[[T], None]],
    count: int,
    label: str | None = None,
) -> None:
    """Do all items, worker w the items w, w + count, ...

    `make(w)` is called once for each worker and returns what it does with an item, so that each
    has buffers of its own. Without a label there is no progress bar.
    """
    with bar(len(items), label) as advance:
        if count == 1:
            work = make(0)
            for item in items:
                work(item)
                advance()
            return
        stop = threading.Event()
        inference = torch.is_inference_mode_enabled()  # modes belong to a thread: hand it over

        def run(worker: int) -> None:
            torch.set_num_threads(1)
            with torch.inference_mode(inference), torch.no_grad():
                work = make(worker)
                for item in items[worker::count]:
                    if stop.is_set():
                        return
                    work(item)
                    advance()

        # A worker's torch.set_num_threads also sets what new threads begin with: put it back.
        with one_thread(), ThreadPoolExecutor(count) as pool:
            try:
                for future in [pool.submit(run, worker) for worker in range(count)]:
                    future.result()
            except BaseException:
                stop.set()  # the others end after their current item
                raise


@contextmanager
def one_thread() -> Iterator[None]:
    """Many short passes over small tensors: on one thread nobody waits for the other.

    On a busy machine torch's threads spin at the end of every such pass until the scheduler lets
    the last one run, and planning took six times as long. Also a decorator.
    """
    if getattr(_here, "inside", False):
        yield
        return
    with _lock:
        # A thread that begins while another is in here would take its 1 for the user's number.
        own = torch.get_num_threads()
        _outer.append(max([own, *_outer]) if _outer else own)
        before = _outer[-1]
    _here.inside = True
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _here.inside = False
        with _lock:
            _outer.pop()
            torch.set_num_threads(before)
