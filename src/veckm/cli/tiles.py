"""When a cloud is processed in tiles, and the options for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from veckm.cli.text import counted, labeled, seconds
from veckm.io import open_source, source_if_by_range
from veckm.scan import Report
from veckm.scan.operation import Operation
from veckm.scan.run import TILE, run

#: Larger clouds are processed in tiles by default.
LARGE = 2_000_000

_Count = Annotated[int | None, arg(metavar="K", help_behavior_hint="")]
_Address = Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="")]


@dataclass(frozen=True)
class Tiles:
    """Options for clouds larger than memory."""

    tile: _Count = None
    """Process the cloud in tiles of at most K points: resumable, with memory that does not depend
    on its size. The default above 2 million points, with tiles of 200,000."""
    workers: _Count = None
    """Process tiles in K processes on this machine, with Dask."""
    scheduler: _Address = None
    """Process tiles on the workers of a running Dask scheduler, for example tcp://host:8786."""

    def needed(self, cloud: Path) -> bool:
        """Whether the cloud is processed in tiles: on request, or because it is large."""
        if self.tile is not None or self.workers is not None or self.scheduler is not None:
            open_source(cloud)  # raises for formats that cannot be read by range
            return True
        source = source_if_by_range(cloud)
        return source is not None and source.count > LARGE

    def run(self, cloud: Path, output: Path | None, operation: Operation, silent: bool) -> Report:
        """Process the cloud tile by tile, from a file to a file."""
        if output is None:
            raise ValueError(f"{cloud}: is processed in tiles, to a file: give one with -o")
        return run(
            cloud,
            output,
            operation,
            tile=TILE if self.tile is None else self.tile,
            workers=self.workers,
            scheduler=self.scheduler,
            progress=False if silent else None,
        )


def scan_lines(cloud: Path, output: Path | None, report: Report) -> list[str]:
    """The report of a scan as text."""
    resumed = f", {report.resumed} of them in an earlier run" if report.resumed else ""
    speed = f"{report.points / report.seconds:,.0f} points/s"
    return [
        labeled("cloud", f"{cloud}: {counted(report.points, 'point')}"),
        labeled("tiles", f"{report.tiles}{resumed}"),
        labeled("time", f"{seconds(report.seconds)}, {speed}"),
        labeled("written", str(output)),
    ]
