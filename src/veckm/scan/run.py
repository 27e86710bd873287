"""From a file to a file, tile by tile, resumable."""

from __future__ import annotations

import json
import shutil
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from veckm.io.atomic import replace, writing
from veckm.io.formats import open_source
from veckm.io.source import Source
from veckm.progress import bar
from veckm.scan.execute import DaskExecutor, Job, SerialExecutor
from veckm.scan.journal import Changed, Journal, Stopped, fingerprint
from veckm.scan.operation import Operation
from veckm.scan.spool import Spool, fill

#: Points of a tile by default.
TILE = 200_000
_LEAST_TILE = 1000


@dataclass(frozen=True)
class Report:
    """What was done."""

    points: int
    tiles: int
    resumed: int  # results of tiles, of all phases, that were kept from an earlier run
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
    """Apply an operation to a cloud of any size; memory is bounded by the size of the tiles.

    Intermediate results are in the folder ``OUTPUT.parts``: about 40 bytes per point and the
    result. If the run is stopped at any moment, by Ctrl-C, a signal or a power cut, the same call
    resumes it. The output appears when it is complete, and the folder is then removed. While the
    folder exists, other settings or a changed input are refused.

    Peak memory is that of Python and torch (0.3 GB), plus for each worker what its operation
    documents for ``tile`` points and their halo, plus in this process about 200 bytes for each of
    the half million points that are read at a time.

    Args:
        source: LAS, LAZ, COPC, binary PLY or NPY.
        output: the file to write.
        operation: :class:`veckm.scan.Normals` or :class:`veckm.scan.Encode`.
        tile: points per tile at most. Larger tiles have relatively less halo.
        workers: number of processes on this machine, by Dask.
        scheduler: address of a Dask scheduler whose workers see the same files.
        progress: False for no progress bar; a bar is shown only on a terminal.

    Raises:
        veckm.scan.Stopped: after Ctrl-C; the message tells how to resume.
        veckm.scan.Changed: the folder has other settings, another input, or is in use.
    """
    start = time.perf_counter()
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
    folder = target.with_name(target.name + ".parts")
    journal = Journal(folder, settings, mark)
    scan = _Scan(opened, operation, tile, folder, journal, progress)
    alone = workers is None and scheduler is None
    try:
        with SerialExecutor() if alone else DaskExecutor(workers, scheduler) as execute:
            spool = scan.sort()
            scan.find_stats(spool)
            resumed = scan.run_phases(spool, execute)
        if fingerprint(path) != mark:
            raise Changed(
                f"{path}: has changed during the scan. Restore it and run again, or remove "
                f"{folder} to start again"
            )
        scan.write(spool, target)
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped; finished tiles are kept in {folder}. Run the same command again to resume, "
            "or remove that folder"
        ) from None
    finally:
        journal.close()
    shutil.rmtree(folder)
    return Report(spool.count, spool.tiles, resumed, time.perf_counter() - start)


def _check(source: Source, target: Path) -> None:
    if not source.count:
        raise ValueError(f"{source.path}: has no points")
    if target.is_dir():
        raise IsADirectoryError(f"{target}: is a folder; name a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {target.parent}; create it first")
    if target.exists() and target.samefile(source.path):
        raise ValueError(f"{target}: is the input itself; choose another name for the output")


@dataclass(frozen=True)
class _Scan:
    """The steps of a run; what the journal has and the disk still holds is not done again."""

    source: Source
    operation: Operation
    tile: int
    folder: Path
    journal: Journal
    progress: bool | None

    def sort(self) -> Spool:
        """The points on disk, cell after cell."""
        spool, done = Spool(self.folder), self.journal.done
        if "spool" in done and done["spool"] == spool.checksum_of_points():
            return spool
        done.clear()
        with bar(2 * self.source.count, self._label("sort"), unit="points") as advance:
            spool = fill(self.folder, self.source, self.tile, advance)
        self.journal.record("spool", spool.checksum_of_points())
        return spool

    def find_stats(self, spool: Spool) -> None:
        """Statistics of the whole cloud, for every tile."""
        path, crc = self.folder / "stats.json", self.journal.done.get("stats")
        if crc is not None and path.exists() and zlib.crc32(path.read_bytes()) == crc:
            return
        text = json.dumps(self.operation.global_stats(spool)).encode()
        with writing(path) as file:
            file.write(text)
        self.journal.record("stats", zlib.crc32(text))

    def run_phases(self, spool: Spool, execute: SerialExecutor | DaskExecutor) -> int:
        """All tiles of all phases; returns how many were done before."""
        resumed = 0
        for phase in self.operation.phases:
            for field in phase.fields:
                spool.allocate(field)
            jobs = [Job(str(self.folder), self.operation, phase, t) for t in range(spool.tiles)]
            left = [job for job in jobs if not self._is_done(job, spool)]
            resumed += len(jobs) - len(left)
            label, total = self._label(phase.name), spool.count
            done = total - sum(spool.size(job.tile) for job in left)
            with bar(total, label, unit="points", done=done) as advance:
                for job, crc in execute(left):
                    self.journal.record(job.name, crc)
                    advance(spool.size(job.tile))
        return resumed

    def write(self, spool: Spool, target: Path) -> None:
        """The output: in the work folder first, then moved to its name in one step."""
        part = self.folder / "output" / target.name
        shutil.rmtree(part.parent, ignore_errors=True)  # of a run that was stopped here
        part.parent.mkdir()
        with bar(self.source.count, self._label("write"), unit="points") as advance:
            self.operation.write(self.source, spool, part, advance)
        replace(part, target)

    def _is_done(self, job: Job, spool: Spool) -> bool:
        crc = self.journal.done.get(job.name)
        return crc is not None and crc == job.checksum(spool)

    def _label(self, what: str) -> str | None:
        return None if self.progress is False else what
