"""Tiles one after the other in this process, or on the workers of Dask.

A worker gets the path of the work folder, the operation and the number of a tile, and writes a file
of results: no points pass through the scheduler. If a worker dies, its tile is computed by another
one, which writes the same file. On a cluster the work folder must be on a shared file system.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from veckm.extras import need
from veckm.memory import keep_freed_memory
from veckm.scan.operation import Operation
from veckm.scan.spool import Spool

#: Workers that may die while computing one tile before the scan fails.
_ALLOWED_FAILURES = 20
#: Bytes of freed memory that a worker of Dask keeps: what glibc arrives at by itself elsewhere.
_KEPT = 1 << 25


@dataclass(frozen=True)
class Job:
    """One tile of one phase."""

    folder: Path
    operation: Operation
    phase: str
    tile: int

    def __call__(self) -> None:
        """Compute and store the results."""
        spool = Spool(self.folder)
        stats = json.loads((self.folder / "stats.json").read_bytes())
        found = self.operation.tile(self.phase, spool, self.tile, stats)
        spool.save(self.phase, self.tile, found)


#: Runs jobs, and yields each when it is done.
Executor = Callable[[Sequence[Job]], Iterator[Job]]


@contextmanager
def executor(workers: int | None, scheduler: str | None) -> Iterator[Executor]:
    """What runs tiles: this process with all threads of torch, so many workers of Dask on this
    machine, or those of a running scheduler of Dask, which keeps running."""
    if workers is None and scheduler is None:
        yield _run_serially
        return
    need("distributed", "work on several workers", "dask")
    import dask
    from distributed import Client, LocalCluster, as_completed

    # The workers share the threads of this process, which OMP_NUM_THREADS sets.
    threads = None if workers is None else max(1, torch.get_num_threads() // workers)

    def run_on_workers(jobs: Sequence[Job]) -> Iterator[Job]:
        futures = {client.submit(_run, job, threads, pure=False, retries=0): job for job in jobs}
        for future in as_completed(list(futures), loop=client.loop):
            future.result()
            yield futures[future]
            future.release()

    settings = {"allowed-failures": _ALLOWED_FAILURES, "http.routes": []}  # no pages to look at
    with dask.config.set({f"distributed.scheduler.{k}": v for k, v in settings.items()}):
        cluster: Any = nullcontext(scheduler)
        if scheduler is None:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,  # torch has its own
                processes=True,
                memory_limit=0,  # Dask would kill a worker that needs more than it expects
                dashboard_address="127.0.0.1:0",  # any free port; None would mean 8787
                scheduler_kwargs={"dashboard": False},
            )
        with cluster as address:
            try:
                client = Client(address, set_as_default=False)
            except OSError as error:
                raise ConnectionError(
                    f"{scheduler}: no Dask scheduler answers there ({error}). Start one with "
                    "`dask scheduler`, which logs its address, or use workers on this machine"
                ) from error
            with client:
                # Importing torch takes seconds: workers do it while the points are sorted. Dask
                # drops tasks that nobody holds.
                early = [
                    client.submit(_prepare, pure=False, workers=worker)
                    for worker in client.scheduler_info()["workers"]
                ]
                yield run_on_workers
                del early


def _run_serially(jobs: Sequence[Job]) -> Iterator[Job]:
    for job in jobs:
        job()
        yield job


def _prepare() -> None:
    # Dask makes its workers return every 64 KB to the system; each pass would fault them in again.
    keep_freed_memory(_KEPT)


def _run(job: Job, threads: int | None) -> None:
    _prepare()  # the worker may have joined later
    if threads is not None:
        torch.set_num_threads(threads)
    job()
