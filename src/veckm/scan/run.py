"""From a file to a file, tile by tile, and on from where it was ended."""

from __future__ import annotations

import json
import os
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from veckm.io.formats import open_source
from veckm.io.source import Source
from veckm.progress import bar
from veckm.scan.execute import DaskExecutor, Job, SerialExecutor
from veckm.scan.journal import Changed, Journal, Stopped, fingerprint
from veckm.scan.operation import Operation
from veckm.scan.spool import FIELDS, Spool, fill

Executor = SerialExecutor | DaskExecutor

#: Points of a tile by default.
TILE = 200_000
_LEAST_TILE = 1000
#: What a spool says of its points, beside them.
_TABLES = ("layout.npz", "boxes.npy")


@dataclass(frozen=True)
class Report:
    """What was done."""

    points: int
    tiles: int
    resumed: int  # of them, how many had been done before
    seconds: float


def run(
    source: str | Path,
    output: str | Path,
    operation: Operation,
    *,
    tile: int = TILE,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: bool | None = None,
) -> Report:
    """Do something to a cloud of any size; memory is bounded by the size of the tiles.

    Everything on the way is in the folder ``OUTPUT.parts``: about 40 bytes a point and the result.
    Ended at any moment, by Ctrl-C, by a signal or with the machine, the same call goes on from
    there; the output is there as a whole or not at all, and the folder goes when it is. Other
    settings, or an input that has changed, are refused while the folder is there.

    Peak memory is that of Python and torch (0.3 GB), plus for each worker what its operation says
    for ``tile`` points and their halo, plus in this process about 200 bytes for each of the half
    million points that are read at a time, and 16 for each octree cell with points (at most 2^24).

    Args:
        source: LAS, LAZ, COPC, binary PLY or NPY.
        output: the file to write.
        operation: :class:`veckm.scan.Normals` or :class:`veckm.scan.Encode`.
        tile: points a tile may have. Larger tiles have less halo beside them.
        workers: so many processes on this machine, by Dask.
        scheduler: address of a Dask scheduler whose workers see the same files.
        progress: False for no progress bar; a bar only ever shows on a terminal.

    Raises:
        veckm.scan.Stopped: after Ctrl-C, saying how to go on.
        veckm.scan.Changed: the folder is of other settings, of another input, or in use.
    """
    begin = time.perf_counter()
    if tile < _LEAST_TILE:
        raise ValueError(f"tile is a number of points, at least {_LEAST_TILE}, got {tile!r}")
    if workers is not None and (scheduler is not None or workers < 1):
        raise ValueError(
            f"give a number of workers, at least 1, or a scheduler: got workers={workers!r} and "
            f"scheduler={scheduler!r}"
        )
    path, target = Path(source).resolve(), Path(output).resolve()
    opened = open_source(path)
    _check(opened, target)
    operation.check(target)
    from veckm import __version__

    settings = {"veckm": __version__, "tile": tile, **operation.settings()}
    mark = fingerprint(path)
    work = Scan(opened, target, operation, tile, progress, mark)
    journal = Journal(work.folder, settings, mark)
    try:
        return work.go(journal, workers, scheduler, begin)
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped; what is done is kept in {work.folder}. Run the same command again to go on, "
            "or remove that folder"
        ) from None
    finally:
        journal.close()


def _check(source: Source, target: Path) -> None:
    if not source.count:
        raise ValueError(f"{source.path}: has no points")
    if target.is_dir():
        raise IsADirectoryError(f"{target}: is a folder; name a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {target.parent}; make it first")
    if target.exists() and target.samefile(source.path):
        raise ValueError(f"{target}: is the input itself; choose another name for the output")


@dataclass(frozen=True)
class Scan:
    """One run, piece by piece."""

    source: Source
    target: Path
    operation: Operation
    tile: int
    progress: bool | None
    mark: dict[str, Any]

    @property
    def folder(self) -> Path:
        """Where everything on the way is."""
        return self.target.with_name(self.target.name + ".parts")

    def go(
        self, journal: Journal, workers: int | None, scheduler: str | None, begin: float
    ) -> Report:
        """All pieces that are not done yet."""
        alone = workers is None and scheduler is None
        execute = SerialExecutor() if alone else DaskExecutor(workers, scheduler)
        try:
            execute.start()
            spool = self._spool(journal)
            self._stats(journal, spool)
            resumed = self._phases(journal, spool, execute)
        finally:
            execute.close()
        self._write(spool)
        journal.remove()
        return Report(spool.count, spool.tiles, resumed, time.perf_counter() - begin)

    def _phases(self, journal: Journal, spool: Spool, execute: Executor) -> int:
        """All tiles of all phases; how many had been done before."""
        resumed = 0
        for phase in self.operation.phases:
            for field in phase.fields:
                spool.make(field)
            jobs = [Job(str(self.folder), self.operation, phase, t) for t in range(spool.tiles)]
            left = [job for job in jobs if not _holds(journal, spool, job)]
            resumed += len(jobs) - len(left)
            if left:
                self._tiles(journal, spool, left, execute)
        return resumed

    def _label(self, what: str) -> str | None:
        return None if self.progress is False else what

    def _spool(self, journal: Journal) -> Spool:
        if "spool" in journal.done:
            spool = Spool(self.folder)
            if _spool_crc(spool) == journal.done["spool"]:
                return spool
            journal.forget("spool")
        for piece in list(journal.done):
            journal.forget(piece)
        with bar(2 * self.source.count, self._label("sort"), unit="points") as advance:
            spool = fill(self.folder, self.source, self.tile, advance)
        for name in _TABLES:
            _sync(self.folder / name)
        journal.record("spool", _spool_crc(spool))
        return spool

    def _stats(self, journal: Journal, spool: Spool) -> None:
        path = self.folder / "stats.json"
        if "stats" in journal.done and path.exists():
            if zlib.crc32(path.read_bytes()) == journal.done["stats"]:
                return
        text = json.dumps(self.operation.global_stats(spool)).encode()
        with path.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        journal.record("stats", zlib.crc32(text))

    def _tiles(self, journal: Journal, spool: Spool, jobs: list[Job], execute: Executor) -> None:
        """The tiles that are left of a phase; each is in the journal as soon as it is done."""
        sizes = {job.tile: _size(spool, job.tile) for job in jobs}
        done = spool.count - sum(sizes.values())
        name = jobs[0].phase.name
        with bar(spool.count, self._label(name), unit="points", done=done) as advance:
            for job, crc in execute(jobs):
                journal.record(job.name, crc)
                advance(sizes[job.tile])

    def _write(self, spool: Spool) -> None:
        """The output beside the work first; then under its name in one step."""
        if fingerprint(self.source.path) != self.mark:
            raise Changed(
                f"{self.source.path}: has changed while it was worked on. Put it back as it was "
                f"and run again, or remove {self.folder} to begin anew"
            )
        folder = self.folder / "output"
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():  # of a run that was ended here
            old.unlink()
        part = folder / self.target.name
        with bar(self.source.count, self._label("write"), unit="points") as advance:
            self.operation.write(self.source, spool, part, advance)
        _sync(part)
        if self.target.exists():
            os.chmod(part, self.target.stat().st_mode & 0o777)
        os.replace(part, self.target)
        _sync(self.target.parent)


def _size(spool: Spool, tile: int) -> int:
    start, stop = spool.range(tile)
    return stop - start


def _holds(journal: Journal, spool: Spool, job: Job) -> bool:
    """Whether a tile is done, and still what it was."""
    crc = journal.done.get(job.name)
    return crc is not None and crc == job.checksum(spool)


def _spool_crc(spool: Spool) -> int:
    found = 0
    for name in _TABLES:
        path = spool.folder / name
        found = zlib.crc32(path.read_bytes() if path.exists() else b"", found)
    try:
        return found ^ spool.checksum(FIELDS, 0, spool.count)
    except (OSError, ValueError, KeyError, BadZipFile):  # cut short, by a power cut perhaps
        return -1


def _sync(path: Path) -> None:
    """On the disk; of a folder, where the system can, the names in it."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
