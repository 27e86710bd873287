"""veckm convert: a cloud in another format, with everything that the new format can hold."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from veckm.cli.text import bytes_of, counted, labeled, seconds
from veckm.cli.verb import Count, InputFile, Verb, check_output
from veckm.io import WRITABLE, Source, create_sink, read, source_if_by_range, write
from veckm.io.formats import find, output_note
from veckm.progress import bar
from veckm.scan.spool import chunks_of

#: Points that are read and written at a time where both formats support it.
_BLOCK = 500_000


@dataclass(frozen=True)
class Convert(Verb):
    """Write a cloud in another format, chosen by the name of the output.

    Fields keep their names, order and types where the new format supports them; normals and colors
    get its usual names. Large files are converted in blocks.

    veckm convert scan.laz scan.ply
    """

    cloud: InputFile
    output: Positional[Annotated[Path, arg(metavar="OUTPUT")]]
    """The file to write; E57 and meshes are only read."""
    samples: Count = None
    """Sample K points from a mesh, uniformly by area."""
    seed: int = 0
    """Seed of the sampling."""

    def run(self) -> None:
        """Read and write."""
        check_output(self.output, self.cloud, "clouds", WRITABLE)
        start = time.perf_counter()
        source = source_if_by_range(self.cloud) if self.samples is None else None
        in_blocks = find(self.output, write=True).writer is not None
        if source is not None and source.count > _BLOCK and in_blocks:
            points = self._in_blocks(source)
        else:
            cloud = read(self.cloud, samples=self.samples, seed=self.seed)
            write(self.output, cloud)
            points = len(cloud)
        spent = time.perf_counter() - start
        size = bytes_of(self.output.stat().st_size)
        note = output_note(self.cloud, self.output)
        self.show(
            labeled("written", f"{self.output}: {counted(points, 'point')}, {size}{note}"),
            labeled("time", seconds(spent)),
        )
        self.report(cloud=self.cloud, output=self.output, points=points, seconds=spent)

    def _in_blocks(self, source: Source) -> int:
        label = None if self.silent else "convert"
        with (
            create_sink(self.output, source) as append,
            bar(source.count, label, unit="points") as advance,
        ):
            for part in chunks_of(source.count, _BLOCK):
                append(source.read(part.start, part.stop))
                advance(part.stop - part.start)
        return source.count
