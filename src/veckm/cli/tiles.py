"""The base class of verbs that process a cloud in memory or in tiles."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from torch import Tensor
from tyro.conf import OmitArgPrefixes

from veckm.cli.batch import BatchVerb
from veckm.cli.text import box, counted, labeled, seconds
from veckm.cli.verb import Count, note, option
from veckm.io.formats import open_source, source_if_by_range
from veckm.io.output import changes
from veckm.scan.operation import Operation
from veckm.scan.run import TILE, run

#: Larger clouds are processed in tiles by default.
LARGE = 2_000_000


@dataclass(frozen=True)
class Tiles:
    """Options for clouds larger than memory."""

    tile: Count = None
    """Process the cloud in tiles of at most K points: resumable, with memory that does not depend
    on its size. The default above 2 million points, with tiles of 200,000."""
    workers: Count = None
    """Process tiles in K processes on this machine, with Dask."""
    scheduler: Annotated[str | None, option("ADDRESS")] = None
    """Process tiles on the workers of a running Dask scheduler, for example tcp://host:8786."""

    def needed(self, cloud: Path, columns: tuple[str, ...] = ()) -> bool:
        """Whether the cloud is processed in tiles: on request, or because it is large."""
        if self.tile is not None or self.workers is not None or self.scheduler is not None:
            open_source(cloud, columns)  # raises for formats that cannot be read by range
            return True
        source = source_if_by_range(cloud, columns)
        return source is not None and source.count > LARGE


@dataclass(frozen=True)
class CloudVerb(BatchVerb):
    """A verb that computes something for every point of a cloud, in memory or in tiles."""

    tiles: OmitArgPrefixes[Tiles] = Tiles()

    def process(self) -> dict[str, object] | None:
        """Read, compute, write."""
        if self.cloud is not None and self.tiles.needed(self.cloud, self.columns):
            return self.run_in_tiles(self.cloud)
        return self.run_in_memory()

    @abstractmethod
    def run_in_memory(self) -> dict[str, object] | None:
        """Process the whole cloud at once; returns what is reported."""

    @abstractmethod
    def run_in_tiles(self, cloud: Path) -> dict[str, object] | None:
        """Process the cloud tile by tile, from a file to a file; returns what is reported."""

    def show_cloud(self, pos: Tensor) -> dict[str, object]:  # (N, 3)
        """Print the title and the size of the cloud, in its own units; returns the same."""
        sides, dtype = (pos.amax(0) - pos.amin(0)).tolist(), str(pos.numpy().dtype)
        self.title(type(self).__name__.lower())
        source, count = str(self.cloud or "sample scan"), counted(len(pos), "point")
        self.show(labeled("cloud", f"{source}: {count}, {dtype}, box {box(sides)}"))
        return {"source": source, "points": len(pos), "box": sides, "dtype": dtype}

    def written(self) -> None:
        """Print where the output is, and note what changed on the way."""
        if self.output is not None:
            self.show(labeled("written", str(self.output)))
            for text in changes(self.cloud, self.output) if self.cloud is not None else ():
                note(text)

    def scan(self, cloud: Path, operation: Operation, **about: object) -> dict[str, object]:
        """Run an operation on all tiles, and report it with `about`."""
        if self.output is None:
            raise ValueError(f"{cloud}: is processed in tiles, to a file: give one with -o")
        done = run(
            open_source(cloud, self.columns),
            self.output,
            operation,
            tile=TILE if self.tiles.tile is None else self.tiles.tile,
            workers=self.tiles.workers,
            scheduler=self.tiles.scheduler,
            progress=False if self.silent else None,
        )
        resumed = f", {done.resumed} of them in an earlier run" if done.resumed else ""
        self.show(
            labeled("cloud", f"{cloud}: {counted(done.points, 'point')}"),
            labeled("tiles", f"{done.tiles}{resumed}"),
            labeled("time", f"{seconds(done.seconds)}, {done.points / done.seconds:,.0f} points/s"),
        )
        if done.missing:
            note(f"{done.missing:,} of {done.points:,} points have no coordinates, and no result")
        self.written()
        return self.report(cloud=cloud, **about, **asdict(done), output=self.output)
