"""From a file to a file, tile by tile, resumable."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from veckm.io.atomic import replace, writing
from veckm.io.formats import open_source
from veckm.io.output import check_missing
from veckm.io.source import Source
from veckm.progress import bar, passes
from veckm.scan.execute import Executor, Job, executor
from veckm.scan.operation import Advance, Operation
from veckm.scan.resume import Changed, Stopped, fingerprint, work_folder
from veckm.scan.spool import Spool, fill

#: Points of a tile by default.
TILE = 200_000
_LEAST_TILE = 1000

#: A bar with a label and a number of points, of which some are done.
Show = Callable[[str, int, int], AbstractContextManager[Advance]]


@dataclass(frozen=True)
class Report:
    """What was done."""

    points: int
    missing: int  # of them, without coordinates
    tiles: int
    resumed: int  # results of tiles, of all phases, that were kept from an earlier run
    seconds: float


def run(
    source: str | Path | Source,
    output: str | Path,
    operation: Operation,
    *,
    tile: int = TILE,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: bool | None = None,
) -> Report:
    """Apply an operation to a cloud of any size; memory is bounded by the size of the tiles.

    Intermediate results are in the folder ``OUTPUT.parts``: at most 60 bytes per point while the
    points are sorted, then 40, the results (of normals twice) and the output. If the run is stopped
    at any moment, by Ctrl-C, a signal or a power cut, the same call resumes it. The output appears
    when it is complete, and the folder is then removed. While the folder exists, other settings or
    a changed input are refused.

    Peak memory is that of Python and torch (0.3 GB), plus for each worker what its operation
    documents for ``tile`` points and their halo, plus in this process about 200 bytes for each of
    the half million points that are read at a time.

    Args:
        source: LAS, LAZ, COPC, binary PLY, NPY or .bin; or such a file, opened by
            `veckm.io.formats.open_source`.
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
    target = Path(output).resolve()
    opened = source if isinstance(source, Source) else open_source(Path(source).resolve())
    path = opened.path
    _check(opened, target)
    operation.check(target)
    from veckm import __version__

    settings = {"veckm": __version__, "tile": tile, **operation.settings()}
    settings |= {"columns": list(opened.columns)} if opened.columns else {}
    mark = fingerprint(path)
    folder = target.with_name(target.name + ".parts")

    def show(label: str, total: int, done: int) -> AbstractContextManager[Advance]:
        return bar(total, None if progress is False else label, unit="points", done=done)

    names = ("sort", *operation.phases, "write")
    with (
        work_folder(folder, {"input": mark, "settings": settings}),
        passes(names, progress is not False),
        _told(folder),
    ):
        with executor(workers, scheduler) as execute:
            spool = _sort(opened, target, folder, operation, tile, show)
            resumed = _process(spool, folder, operation, execute, show)
        if fingerprint(path) != mark:
            raise Changed(
                f"{path}: has changed during the scan. Restore it and run again, or remove "
                f"{folder} to start again"
            )
        part = folder / "output" / target.name
        shutil.rmtree(part.parent, ignore_errors=True)  # of a run that was stopped here
        part.parent.mkdir()
        with show("write", opened.count, 0) as advance:
            operation.write(opened, spool, part, advance)
        replace(part, target)
    shutil.rmtree(folder)
    counts = spool.total, spool.total - spool.count, spool.tiles, resumed
    return Report(*counts, time.perf_counter() - start)


def _sort(
    source: Source, target: Path, folder: Path, operation: Operation, tile: int, show: Show
) -> Spool:
    """The points by tiles, in the folder, and what the operation has to know of all of them."""
    if not (folder / "layout.npz").exists():
        with show("sort", 2 * source.count, 0) as advance:
            fill(folder, source, tile, advance)
    spool = Spool(folder)
    if spool.count < spool.total:
        check_missing(target)
    if not (folder / "stats.json").exists():
        stats = json.dumps(operation.global_stats(spool))
        with writing(folder / "stats.json") as file:
            file.write(stats.encode())
    return spool


def _process(
    spool: Spool, folder: Path, operation: Operation, execute: Executor, show: Show
) -> int:
    """All tiles in all phases that are not there yet; how many were there."""
    resumed = 0
    for phase in operation.phases:
        left = [t for t in range(spool.tiles) if not spool.path(phase, t).exists()]
        resumed += spool.tiles - len(left)
        done = spool.count - sum(map(spool.size, left))
        with show(phase, spool.count, done) as advance:
            for job in execute([Job(folder, operation, phase, t) for t in left]):
                advance(spool.size(job.tile))
    return resumed


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Tell what to do after an interruption, and where the disk was full."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(
            f"interrupted; finished tiles are kept in {folder}. Run the same command again to "
            "resume, or remove that folder"
        ) from None
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(folder)  # such as of a full disk
        raise


def _check(source: Source, target: Path) -> None:
    if not source.count:
        raise ValueError(f"{source.path}: has no points")
    if target.is_dir():
        raise IsADirectoryError(f"{target}: is a folder; name a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {target.parent}; create it first")
    if target.exists() and target.samefile(source.path):
        raise ValueError(f"{target}: is the input itself; choose another name for the output")
