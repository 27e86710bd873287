"""Tiles one after the other in this process, or on the workers of Dask.

A worker gets the path of the work folder, the operation and the number of a tile. It reads and
writes by range and returns a checksum: no points pass through the scheduler. A tile that was lost
with its worker is done again by another, which writes the same numbers to the same place. On a
cluster the work folder must be on a shared file system.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from veckm.extras import need
from veckm.memory import keep_freed_memory
from veckm.scan.operation import Operation, Phase
from veckm.scan.spool import Spool

#: Workers that may die over one tile before it is given up.
_DEATHS = 20
#: Bytes of freed memory that a worker of Dask keeps: what glibc comes to by itself elsewhere.
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
        stats = json.loads((Path(self.folder) / "stats.json").read_text())
        found = self.operation.tile(self.phase, spool, self.tile, stats)
        start, _ = spool.range(self.tile)
        for field in self.phase.fields:
            spool.write(field, start, found.pop(field.name))
        if self.phase.extras:
            path = self.phase.extras_path(spool, self.tile)
            part = path.with_suffix(f".{os.getpid()}.npz")  # a lost worker may be writing, too
            np.savez(part, **found)  # type: ignore[arg-type]
            part.replace(path)
        return self.checksum(spool)

    @property
    def name(self) -> str:
        """The name of this piece of work in the journal."""
        return f"{self.phase.name}/{self.tile}"

    def checksum(self, spool: Spool) -> int:
        """CRC of the results as the disk holds them; -1 if some are missing."""
        found = spool.checksum(self.phase.fields, *spool.range(self.tile))
        if not self.phase.extras:
            return found
        path = self.phase.extras_path(spool, self.tile)
        return zlib.crc32(path.read_bytes(), found) if path.exists() else -1


class SerialExecutor:
    """One after the other in this process, with all threads of torch."""

    def start(self) -> None:
        """Nothing to start."""

    def __call__(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, int]]:
        """Each job with its checksum."""
        for job in jobs:
            yield job, job()

    def close(self) -> None:
        """Nothing was started."""


class DaskExecutor:
    """On workers of Dask, which stay for all phases.

    Args:
        workers: processes to start on this machine.
        scheduler: address of a scheduler that runs already, instead.
    """

    def __init__(self, workers: int | None, scheduler: str | None) -> None:
        need("distributed", "work on several workers", "dask")
        self.workers, self.scheduler = workers, scheduler
        self._cluster: Any = None
        self._client: Any = None
        self._early: list[Any] = []  # let go of, Dask would not do them

    def start(self) -> None:
        """Start the workers, or find the scheduler; they get ready while this process goes on."""
        import dask
        from distributed import Client, LocalCluster

        with dask.config.set({"distributed.scheduler.allowed-failures": _DEATHS}):
            if self.scheduler is None:
                self._cluster = LocalCluster(
                    n_workers=self.workers,
                    threads_per_worker=1,  # torch has its own
                    processes=True,
                    memory_limit=0,  # a worker that needs more than Dask expects is not to be ended
                    dashboard_address=None,
                )
            try:
                self._client = Client(self._cluster or self.scheduler, set_as_default=False)
            except OSError as error:
                raise ConnectionError(
                    f"{self.scheduler}: no Dask scheduler answers there ({error}). Start one by "
                    "`dask scheduler`, whose log says its address, or ask for workers here"
                ) from error
        # A worker imports torch in seconds: time enough while the cloud is being sorted.
        for worker in self._client.scheduler_info()["workers"]:
            self._early.append(self._client.submit(_ready, pure=False, workers=worker))

    def __call__(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, int]]:
        """Each job with its checksum, as the workers finish them."""
        from distributed import as_completed

        client = self._client
        # The threads of this process are shared out; OMP_NUM_THREADS says how many there are.
        threads = None if self.workers is None else max(1, torch.get_num_threads() // self.workers)
        futures = {client.submit(_do, job, threads, pure=False, retries=0): job for job in jobs}
        for future in as_completed(list(futures), loop=client.loop):
            yield futures[future], future.result()
            future.release()

    def close(self) -> None:
        """End what was started; a scheduler that ran before goes on."""
        for started in (self._client, self._cluster):
            if started is not None:
                started.close()


def _ready() -> None:
    # Dask has its workers give back every 64 KB at once, and the next pass waits for fresh pages.
    keep_freed_memory(_KEPT)


def _do(job: Job, threads: int | None) -> int:
    _ready()  # a worker may have come later
    if threads is not None:
        torch.set_num_threads(threads)
    return job()
