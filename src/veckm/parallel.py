"""Threads for work made of many small operations, each on one core.

Torch's own threads wait for each other inside each operation. Beside another process one of them is
often descheduled, and many small operations then take ten to forty times as long. Therefore public
calls run torch on one thread (`one_thread`) and share whole blocks of their work among our own
threads (`share`), always in the same way, so that results do not change from run to run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

from veckm.progress import bar

T = TypeVar("T")
_here = threading.local()  # .threads: what torch had in this thread, 0 outside
_lock = threading.Lock()
_outer: list[int] = []  # the user's number of threads, once for each thread that is inside
_pool: list[ThreadPoolExecutor] = []
#: More than this gains little: the workers share one memory bus.
_MOST_WORKERS = 8


def threads() -> int:
    """The threads that the user gave torch, also inside `one_thread`; 1 in a worker of `share`."""
    return getattr(_here, "threads", 0) or torch.get_num_threads()


def workers(device: torch.device, items: int) -> int:
    """How many threads are worth starting for so many items."""
    if device.type != "cpu":
        return 1  # the device has its own parallelism
    return max(1, min(threads(), _MOST_WORKERS, items // 4))


def share(
    items: Sequence[T],
    make: Callable[[int], Callable[[T], None]],
    count: int,
    label: str | None = None,
) -> None:
    """Process all items: worker w takes the items w, w + count, ...

    `make(w)` returns the function of an item, so that every worker has its own buffers.
    """
    with bar(len(items), label) as advance:
        if count == 1:
            with one_thread():
                work = make(0)
                for item in items:
                    work(item)
                    advance()
            return
        stop = threading.Event()
        inference = torch.is_inference_mode_enabled()  # modes belong to a thread: hand it over

        def run(worker: int) -> None:
            torch.set_num_threads(1)
            _here.threads = 1  # also when the thread does something else: it is only ever a worker
            with torch.inference_mode(inference), torch.no_grad():
                work = make(worker)
                for item in items[worker::count]:
                    if stop.is_set():
                        return
                    work(item)
                    advance()

        # A worker's torch.set_num_threads also sets what new threads begin with: put it back.
        with one_thread():
            futures = [_workers().submit(run, worker) for worker in range(count)]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                stop.set()  # the others end after their current item
                wait(futures)
                raise


def _workers() -> ThreadPoolExecutor:
    """Threads that wait for work: starting them can take longer than a small cloud."""
    with _lock:
        if not _pool:
            _pool.append(ThreadPoolExecutor(_MOST_WORKERS, thread_name_prefix="veckm"))
        return _pool[0]


# Threads do not survive a fork, for example that of a DataLoader.
os.register_at_fork(after_in_child=_pool.clear)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread inside; also a decorator. `share` still has the user's threads."""
    if torch.compiler.is_compiling() or bool(getattr(_here, "threads", 0)):
        yield
        return
    with _lock:
        # A thread that begins while another is in here would take its 1 for the user's number.
        own = torch.get_num_threads()
        _outer.append(max([own, *_outer]) if _outer else own)
        before = _outer[-1]
    _here.threads = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _here.threads = 0
        with _lock:
            _outer.pop()
            torch.set_num_threads(before)
