"""veckm convert: a cloud in another format, with all that the new one can hold."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from veckm import __version__
from veckm.cli import files
from veckm.cli.text import bytes_of, counted, entry, seconds
from veckm.io import WRITABLE, Source, create_sink, read, source_if_by_range, write
from veckm.io.formats import find
from veckm.progress import bar

_File = Positional[Annotated[Path, arg(metavar="FILE")]]
_Samples = Annotated[int | None, arg(metavar="K", help_behavior_hint="")]
_Flag = Annotated[bool, arg(help_behavior_hint=""), FlagCreatePairsOff]

#: Points that are read and written at a time where both formats go by range.
_BLOCK = 500_000


@dataclass(frozen=True)
class Convert:
    """Write a cloud in the format that the name of the output says.

    Fields keep their names, order and types where the new format has them; what has another custom
    there, as normals and colors, takes its names. Large files go through piece by piece.

    veckm convert scan.laz scan.ply
    """

    cloud: _File
    """LAS, LAZ, PLY, PCD, E57, XYZ, CSV, PTS, NPY, NPZ, KITTI .bin; meshes with --samples."""
    output: _File
    """The file to write."""
    samples: _Samples = None
    """Of a mesh, draw K points, uniform by area."""
    seed: int = 0
    """Of the draws."""
    quiet: _Flag = False
    """Say nothing unless it fails."""
    json: _Flag = False
    """Print a report for programs instead of one for people."""
    debug: _Flag = False
    """Show the traceback of an error."""

    def run(self) -> None:
        """Read and write."""
        files.check_output(self.output, self.cloud, "clouds", WRITABLE)
        start = time.perf_counter()
        source = self._source()
        points = self._whole() if source is None else self._stream(source)
        spent = time.perf_counter() - start
        if self.json:
            about = {"veckm": __version__, "cloud": str(self.cloud), "output": str(self.output)}
            print(json.dumps({**about, "points": points, "seconds": spent}))
        elif not self.quiet:
            size = bytes_of(self.output.stat().st_size)
            lines = entry("written", f"{self.output}: {counted(points, 'point')}, {size}")
            print(*lines, *entry("time", seconds(spent)), sep="\n")

    def _source(self) -> Source | None:
        """The cloud by range, if it is large and both formats go so."""
        if self.samples is not None or find(self.output, write=True).writer is None:
            return None
        source = source_if_by_range(self.cloud)
        return source if source is not None and source.count > _BLOCK else None

    def _whole(self) -> int:
        cloud = read(self.cloud, samples=self.samples, seed=self.seed)
        write(self.output, cloud)
        return len(cloud)

    def _stream(self, source: Source) -> int:
        sink = create_sink(self.output, source)
        label = None if self.quiet or self.json else "convert"
        try:
            with bar(source.count, label, unit="points") as advance:
                for start in range(0, source.count, _BLOCK):
                    stop = min(start + _BLOCK, source.count)
                    sink.append(source.read(start, stop))
                    advance(stop - start)
        except BaseException:
            sink.abort()
            raise
        sink.commit()
        return source.count
