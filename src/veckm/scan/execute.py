"""Tiles one after the other in this process, or on the workers of Dask.

A worker gets the path of the work folder, the operation and the number of a tile. It reads and
writes by range and returns a checksum: no points pass through the scheduler. If a worker dies, its
tile is computed by another one, which writes the same numbers to the same place. On a cluster the
work folder must be on a shared file system.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from veckm.extras import need
from veckm.io.atomic import writing
from veckm.memory import keep_freed_memory
from veckm.scan.operation import Operation, Phase
from veckm.scan.spool import Spool

#: Workers that may die while computing one tile before the scan fails.
_ALLOWED_FAILURES = 20
#: Bytes of freed memory that a worker of Dask keeps: what glibc arrives at by itself elsewhere.
_KEPT = 1 << 25


@dataclass(frozen=True)
class Job:
    """One tile of one phase."""

    folder: str
    operation: Operation
    phase: Phase
    tile: int

    def __call__(self) -> int:
        """Compute and store the results; returns their checksum."""
        spool = Spool(self.folder)
        stats = json.loads((Path(self.folder) / "stats.json").read_bytes())
        found = self.operation.tile(self.phase, spool, self.tile, stats)
        start, _ = spool.range(self.tile)
        for field in self.phase.fields:
            spool.write(field, start, found.pop(field.name))
        if self.phase.extras:
            with writing(self.phase.extras_path(spool, self.tile)) as file:
                np.savez(file, **found)  # type: ignore[arg-type]
        return self.checksum(spool)

    @property
    def name(self) -> str:
        """The name of this piece of work in the journal."""
        return f"{self.phase.name}/{self.tile}"

    def checksum(self, spool: Spool) -> int:
        """CRC of the results as they are on disk; -1 if some are missing."""
        found = spool.checksum(self.phase.fields, *spool.range(self.tile))
        if not self.phase.extras:
            return found
        path = self.phase.extras_path(spool, self.tile)
        return zlib.crc32(path.read_bytes(), found) if path.exists() else -1


class SerialExecutor:
    """Tiles one after the other in this process, with all threads of torch."""

    def __enter__(self) -> SerialExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, int]]:
        """Run jobs; yields each with its checksum."""
        for job in jobs:
            yield job, job()


class DaskExecutor:
    """Tiles on workers of Dask, which are kept for all phases.

    Args:
        workers: processes to start on this machine.
        scheduler: address of a running scheduler, instead.
    """

    def __init__(self, workers: int | None, scheduler: str | None) -> None:
        need("distributed", "work on several workers", "dask")
        self.workers, self.scheduler = workers, scheduler
        self._cluster: Any = None
        self._client: Any = None
        self._early: list[Any] = []  # Dask drops tasks that nobody holds

    def __enter__(self) -> DaskExecutor:
        """Start the workers, or connect to the scheduler."""
        import dask
        from distributed import Client, LocalCluster

        with dask.config.set({"distributed.scheduler.allowed-failures": _ALLOWED_FAILURES}):
            if self.scheduler is None:
                self._cluster = LocalCluster(
                    n_workers=self.workers,
                    threads_per_worker=1,  # torch has its own
                    processes=True,
                    memory_limit=0,  # Dask would kill a worker that needs more than it expects
                    dashboard_address="127.0.0.1:0",  # any free port; None would mean 8787
                )
            try:
                self._client = Client(self._cluster or self.scheduler, set_as_default=False)
            except OSError as error:
                raise ConnectionError(
                    f"{self.scheduler}: no Dask scheduler answers there ({error}). Start one with "
                    "`dask scheduler`, which logs its address, or use workers on this machine"
                ) from error
        # Importing torch takes seconds: workers do it while the points are sorted.
        for worker in self._client.scheduler_info()["workers"]:
            self._early.append(self._client.submit(_prepare, pure=False, workers=worker))
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what was started; a scheduler that was running before keeps running."""
        for started in (self._client, self._cluster):
            if started is not None:
                started.close()

    def __call__(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, int]]:
        """Run jobs; yields each with its checksum, as the workers finish them."""
        from distributed import as_completed

        client = self._client
        # The workers share the threads of this process, which OMP_NUM_THREADS sets.
        threads = None if self.workers is None else max(1, torch.get_num_threads() // self.workers)
        futures = {client.submit(_run, job, threads, pure=False, retries=0): job for job in jobs}
        for future in as_completed(list(futures), loop=client.loop):
            yield futures[future], future.result()
            future.release()


def _prepare() -> None:
    # Dask makes its workers return every 64 KB to the system; each pass would fault them in again.
    keep_freed_memory(_KEPT)


def _run(job: Job, threads: int | None) -> int:
    _prepare()  # the worker may have joined later
    if threads is not None:
        torch.set_num_threads(threads)
    return job()
