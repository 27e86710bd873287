"""veckm convert: a cloud in another format, with everything that the new format can hold."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from tyro.conf import Positional, arg

from veckm.cli.batch import BatchVerb
from veckm.cli.text import bytes_of, counted, labeled, seconds
from veckm.cli.verb import INPUTS, Count, OutputFile, note
from veckm.io import WRITABLE, Source, create_sink, read, source_if_by_range, write
from veckm.io.formats import find
from veckm.io.output import changes, check_missing
from veckm.progress import bar
from veckm.scan.spool import chunks_of

#: Points that are read and written at a time where both formats support it.
_BLOCK = 500_000


@dataclass(frozen=True)
class Convert(BatchVerb):
    """Write clouds in another format.

    Fields keep their names, order and types where the new format supports them; normals and colors
    get its usual names. Large files are converted in blocks.

    veckm convert scan.laz scan.ply

    veckm convert scans/ --out-dir clouds --suffix .ply
    """

    contents, suffixes = "clouds", WRITABLE

    files: Positional[
        Annotated[
            tuple[Path, ...],
            arg(metavar="FILE ...", help=f"{INPUTS}. Then the file to write, or --out-dir."),
        ]
    ]
    output: OutputFile = None
    """The file to write, unless it is the last FILE; E57 and meshes are only read."""
    samples: Count = None
    """Sample K points from a mesh, uniformly by area."""
    seed: int = 0
    """Seed of the sampling."""

    def run(self) -> int:
        """Of two files without a folder, the second is the output."""
        if self.batch.out_dir is None and self.output is None and len(self.files) == 2:
            *files, output = self.files
            return replace(self, files=tuple(files), output=output).run()
        if not self.files or (self.batch.out_dir is self.output is None and len(self.files) == 1):
            raise ValueError("name a cloud and the file to write, or several and --out-dir")
        return super().run()

    def process(self) -> dict[str, object]:
        """Read and write."""
        cloud, output = self.cloud, self.output
        assert cloud is not None
        assert output is not None
        start = time.perf_counter()
        source = source_if_by_range(cloud, self.columns) if self.samples is None else None
        in_blocks = find(output, write=True).writer is not None
        if source is not None and source.count > _BLOCK and in_blocks:
            points = self._in_blocks(source, output)
        else:
            found = read(cloud, samples=self.samples, seed=self.seed, columns=self.columns)
            if not np.isfinite(found.pos).all():
                check_missing(output)
            write(output, found)
            points = len(found)
        spent = time.perf_counter() - start
        self.show(
            labeled(
                "written",
                f"{output}: {counted(points, 'point')}, {bytes_of(output.stat().st_size)}",
            ),
            labeled("time", seconds(spent)),
        )
        for text in changes(cloud, output):
            note(text)
        return self.report(cloud=cloud, output=output, points=points, seconds=spent)

    def _in_blocks(self, source: Source, output: Path) -> int:
        label = None if self.silent else "convert"
        with (
            create_sink(output, source) as append,
            bar(source.count, label, unit="points") as advance,
        ):
            for part in chunks_of(source.count, _BLOCK):
                append(source.read(part.start, part.stop))
                advance(part.stop - part.start)
        return source.count
