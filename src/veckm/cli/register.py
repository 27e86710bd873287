"""veckm register: clouds moved into the frame of another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from tyro.conf import Positional, arg

from veckm.cli.text import labeled, number, seconds
from veckm.cli.verb import Flag, OutputFile, Verb, check_output, coordinates, option, read_cloud
from veckm.cloud import PointCloud
from veckm.io import WRITABLE, write
from veckm.tasks.registration import Registration, register


@dataclass(frozen=True, kw_only=True)
class Register(Verb):
    """Move clouds into the frame of another one, without a first guess or parameters.

    veckm register source.laz target.laz -o aligned.laz

    The last file is the target; all others are moved. The output is the source with new
    coordinates; everything else is kept, and the CRS is that of the target. With several sources
    the output is a folder, and the files keep their names. Nothing is written for a source that
    does not seem to overlap with the target.
    """

    files: Positional[
        Annotated[tuple[Path, ...], arg(metavar="SOURCE [SOURCE ...] TARGET", help="Clouds.")]
    ]
    output: OutputFile = None
    """The moved source, or a folder for several; the name chooses the format."""
    up: Annotated[tuple[float, float, float] | None, option("X Y Z", "none")] = None
    """A direction that all clouds share, such as 0 0 1: rotations are about it then."""
    untrained: Flag = False
    """Compare descriptors by their principal components, not by the learnt projection."""

    def run(self) -> None:
        *sources, target = self._checked()
        reference = read_cloud(target)
        self.title("register")
        fixed = coordinates(reference).double()
        up = None if self.up is None else torch.tensor(self.up)
        reports = []
        for path in sources:
            cloud = read_cloud(path)
            found = register(coordinates(cloud).double(), fixed, up=up, learnt=not self.untrained)
            out = self._output(path, len(sources))
            self.show(labeled("source", f"{path}, {len(cloud):,} points"), *_lines(found))
            if out is not None and found.aligned:
                moved = _moved(cloud, found, reference)
                write(out, moved, **_options(out, moved))
                self.show(labeled("written", f"{out}"))
            elif out is not None:
                self.show(labeled("written", "nothing"))
            reports.append(_report(path, found, out if found.aligned else None))
        self.report(target=target, sources=reports)

    def _checked(self) -> tuple[Path, ...]:
        """At least two files, and outputs that can be written."""
        if len(self.files) < 2:
            raise ValueError("give the clouds to move and, last, the one to move them to")
        *sources, target = self.files
        if self.output is not None and len(sources) > 1:
            self.output.mkdir(exist_ok=True)
            if len({path.name for path in sources}) < len(sources):
                raise ValueError("sources of one name cannot go to one folder: rename them")
        for source in sources:
            out = self._output(source, len(sources))
            if out is not None:
                check_output(out, source, "moved clouds", WRITABLE)
                check_output(out, target, "moved clouds", WRITABLE)
        return self.files

    def _output(self, source: Path, count: int) -> Path | None:
        if self.output is None or count == 1:
            return self.output
        return self.output / source.name


def _lines(found: Registration) -> list[str]:
    agree = int(found.inliers.sum())
    if found.aligned:
        claim = f"aligned, confidence {found.confidence:.2f}, overlap {found.overlap:.0%}"
    else:
        claim = f"not aligned, confidence {found.confidence:.2f}: {found.note}"
    rows = ["  ".join(f"{value:13.6f}" for value in row) for row in found.transform.tolist()]
    parts = ", ".join(f"{name} {seconds(spent)}" for name, spent in found.seconds.items())
    return [
        labeled("result", claim),
        labeled("matches", f"{agree:,} of {len(found.matches):,} agree, at {number(found.voxel)}"),
        *(labeled("transform" if k == 0 else "", row) for k, row in enumerate(rows)),
        labeled("time", parts),
    ]


def _report(path: Path, found: Registration, out: Path | None) -> dict[str, object]:
    return {
        "source": str(path),
        "aligned": found.aligned,
        "confidence": found.confidence,
        "overlap": found.overlap,
        "transform": found.transform.tolist(),
        "matches": len(found.matches),
        "inliers": int(found.inliers.sum()),
        "resolution": found.voxel,
        "note": found.note,
        "seconds": found.seconds,
        "output": None if out is None else str(out),
    }


def _options(path: Path, cloud: PointCloud) -> dict[str, np.ndarray]:
    """LAS counts steps from an offset: that of the source may be too far from where it is now."""
    if path.suffix.lower() not in (".las", ".laz"):
        return {}
    return {"offset": np.floor(cloud.xyz.mean(0))}


def _moved(cloud: PointCloud, found: Registration, target: PointCloud) -> PointCloud:
    """The cloud with new coordinates and turned normals, about the origin of the target."""
    pos = found.apply(torch.from_numpy(cloud.xyz)).numpy()
    origin = target.origin
    moved = replace(
        cloud,
        pos=(pos - origin).astype(np.promote_types(cloud.pos.dtype, target.pos.dtype)),
        origin=origin,
        crs=cloud.crs if target.crs is None else target.crs,
    )
    if cloud.normals is None:
        return moved
    R = found.transform[:3, :3].numpy()
    return moved.with_normals((cloud.normals @ R.T).astype(cloud.normals.dtype))
