"""When a cloud goes through in tiles, and what the verbs that do so share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from veckm.cli.text import counted, entry, seconds
from veckm.io import open_source, source_if_by_range
from veckm.scan import Report
from veckm.scan.operation import Operation
from veckm.scan.run import TILE, run

#: Larger clouds go through in tiles without being asked.
LARGE = 2_000_000

_Count = Annotated[int | None, arg(metavar="K", help_behavior_hint="")]
_Address = Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="")]


@dataclass(frozen=True)
class Tiled:
    """Options for clouds larger than memory."""

    tile: _Count = None
    """Go through the cloud in tiles of K points at most, resumable, in memory that does not depend
    on its size. Clouds of more than 2 million points do so by themselves, with 200,000."""
    workers: _Count = None
    """Tiles on K processes of this machine, by Dask."""
    scheduler: _Address = None
    """Tiles on the workers of a Dask scheduler that runs already, for example tcp://host:8786."""

    def in_tiles(self, cloud: Path) -> bool:
        """Whether the cloud goes through in tiles: asked for, or too large to go otherwise."""
        if self.tile is not None or self.workers is not None or self.scheduler is not None:
            open_source(cloud)  # what cannot go in tiles is said before anything else
            return True
        source = source_if_by_range(cloud)
        return source is not None and source.count > LARGE

    def scan(self, cloud: Path, output: Path | None, operation: Operation, quiet: bool) -> Report:
        """Tile by tile, from a file to a file."""
        if output is None:
            raise ValueError(f"{cloud}: goes through in tiles, to a file: give one with -o")
        return run(
            cloud,
            output,
            operation,
            tile=TILE if self.tile is None else self.tile,
            workers=self.workers,
            scheduler=self.scheduler,
            progress=False if quiet else None,
        )


def scanned(cloud: Path, output: Path | None, report: Report) -> list[str]:
    """What was done, as text."""
    before = f", {report.resumed} of them before" if report.resumed else ""
    speed = f"{report.points / report.seconds:,.0f} points/s"
    out = entry("cloud", f"{cloud}: {counted(report.points, 'point')}")
    out += entry("tiles", f"{report.tiles}{before}")
    return (
        out + entry("time", f"{seconds(report.seconds)}, {speed}") + entry("written", str(output))
    )
