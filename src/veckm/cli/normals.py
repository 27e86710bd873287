"""veckm normals: the normal of every point of a cloud file, the error to expect, and curvature."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor
from tyro.conf import FlagCreatePairsOff, Positional, arg

from veckm import __version__, scan
from veckm.cli import files
from veckm.cli.text import counted, entry, number, seconds
from veckm.cli.tiles import Tiled, scanned
from veckm.cloud import PointCloud
from veckm.data import shapes
from veckm.data.protocol import angle_error, rmse
from veckm.io import WRITABLE
from veckm.tasks.normals import Estimate, Method, Orientation, estimate
from veckm.tasks.normals.classical import pca_normals

_SAMPLE_POINTS = 20_000
#: Neighbors of the PCA that is shown beside, the field's usual choices.
_PCA = (18, 122)

_File = Annotated[Path | None, arg(metavar="[FILE]", help_behavior_hint="(default: a sample scan)")]
_Output = Annotated[
    Path | None, arg(aliases=["-o"], metavar="FILE", help_behavior_hint="(default: not written)")
]
_Place = Annotated[
    tuple[float, float, float] | None,
    arg(metavar="X Y Z", help_behavior_hint="(default: none)"),
]
_Orient = Annotated[
    Orientation | None,
    arg(help_behavior_hint="(default: consistent; up for a cloud in tiles)"),
]
_Flag = Annotated[bool, arg(help_behavior_hint=""), FlagCreatePairsOff]


@dataclass(frozen=True)
class Row:
    """One way of estimating, on the sample whose normals are known."""

    name: str
    seconds: float
    rmse: float  # degrees


@dataclass(frozen=True)
class Normals(Tiled):
    """Estimate the normal of every point of a cloud, in any units, with nothing to choose.

    Without a file it takes a sample scan whose normals are known, to show how right it is.

    Your own cloud: veckm normals scan.laz -o normals.laz

    The output is the input with normals, the angle error to expect in degrees (normal_error) and
    principal curvatures (curvature_1, curvature_2); all else is as it was. Killed and run again, a
    cloud in tiles goes on where it was.
    """

    cloud: Positional[_File] = None
    """Points: LAS, LAZ, PLY, PCD, E57, XYZ, CSV, PTS, NPY, NPZ, KITTI .bin."""
    output: _Output = None
    """Where they go with their normals; the name says the format."""
    orient: _Orient = None
    """Which of the two directions: consistent between neighbors, up, viewpoint, or none."""
    viewpoint: _Place = None
    """Where the scanner stood; normals look towards it."""
    curvature: _Flag = True
    """Leave principal curvatures out, which saves time."""
    method: Method = "network"
    """The trained network, or moments for the estimator without training."""
    quiet: _Flag = False
    """Say nothing unless it fails; compares nothing."""
    json: _Flag = False
    """Print a report for programs instead of one for people."""
    debug: _Flag = False
    """Show the traceback of an error."""

    def run(self) -> None:
        """Read, estimate, write, compare; say so as it goes."""
        if self.output is not None:
            files.check_output(self.output, self.cloud, "normals", WRITABLE)
        if self.cloud is not None and self.in_tiles(self.cloud):
            self._tiles(self.cloud)
        else:
            self._whole()

    def _whole(self) -> None:
        """All points at once, in memory."""
        shape = shapes.scan(_SAMPLE_POINTS) if self.cloud is None else None
        cloud = None if self.cloud is None else files.read_cloud(self.cloud)
        pos = files.points_of(cloud) if cloud is not None else shape.pos  # type: ignore[union-attr]
        source = "sample scan" if self.cloud is None else str(self.cloud)
        box = " x ".join(number(s) for s in (pos.amax(0) - pos.amin(0)).tolist())
        self._say(f"veckm {__version__} normals", "")
        self._say(*entry("cloud", f"{source}: {counted(len(pos), 'point')}, box {box}"))
        orient = self._orient("consistent")
        start = time.perf_counter()
        found = estimate(
            pos,
            orient=orient,
            viewpoint=None if self.viewpoint is None else torch.tensor(self.viewpoint),
            curvature=self.curvature and self.output is not None,
            method=self.method,
        )
        spent = time.perf_counter() - start
        self._say(*self._result(found, spent, orient))
        if self.output is not None:
            if cloud is None:
                cloud = PointCloud(pos.numpy())
            files.write_cloud(self.output, _with(cloud, found))
            self._say(*entry("written", str(self.output)))
        compared = [] if shape is None or self.quiet else self._compare(shape, spent, found)
        self._say(*_table(compared))
        if self.json:
            print(json.dumps(self._report(source, found, spent, orient, compared)))

    def _tiles(self, cloud: Path) -> None:
        """Tile by tile, from the file to the output."""
        if self.method != "network":
            raise ValueError(f"--method {self.method}: only the network goes in tiles")
        orient = self._orient("up")
        operation = scan.Normals(orient, self.viewpoint, self.curvature)
        self._say(f"veckm {__version__} normals", "")
        self._say(*entry("method", f"network, directions: {orient}, in tiles"))
        done = self.scan(cloud, self.output, operation, self.quiet or self.json)
        self._say(*scanned(cloud, self.output, done))
        if self.json:
            about = {"veckm": __version__, "cloud": str(cloud), "orient": orient, **asdict(done)}
            print(json.dumps({**about, "output": str(self.output)}))

    def _orient(self, usual: Orientation) -> Orientation:
        if self.viewpoint is not None and self.orient in (None, "viewpoint"):
            return "viewpoint"
        return usual if self.orient is None else self.orient

    def _say(self, *lines: str) -> None:
        if not (self.quiet or self.json):
            print(*lines, sep="\n", end="\n" if lines else "", flush=True)

    def _result(self, found: Estimate, spent: float, orient: Orientation) -> list[str]:
        speed = f"{len(found.normal) / spent:,.0f} points/s"
        threads = counted(torch.get_num_threads(), "thread")
        low, middle, high = torch.quantile(
            found.error[:: max(1, len(found.error) // 100_000)].double(),
            torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64),
        ).tolist()
        spread = f"10 % below {low:.2g}, half below {middle:.2g}, 10 % above {high:.2g} degrees"
        out = entry("method", f"{self.method}, directions: {orient}")
        out += entry("time", f"{seconds(spent)}, {speed} on {threads}")
        return out + entry("expected", f"angle error: {spread}")

    def _compare(self, shape: shapes.Shape, spent: float, found: Estimate) -> list[Row]:
        assert shape.normal is not None
        rows = [Row(f"veckm {self.method}", spent, _rmse(found.normal, shape.normal))]
        for k in _PCA:
            start = time.perf_counter()
            normal = pca_normals(shape.pos, k)
            took = time.perf_counter() - start
            rows.append(Row(f"PCA, k = {k}", took, _rmse(normal, shape.normal)))
        return rows

    def _report(
        self,
        source: str,
        found: Estimate,
        spent: float,
        orient: Orientation,
        compared: list[Row],
    ) -> dict[str, object]:
        return {
            "veckm": __version__,
            "cloud": source,
            "points": len(found.normal),
            "method": self.method,
            "orient": orient,
            "seconds": spent,
            "expected_error_degrees": float(found.error.double().mean()),
            "output": None if self.output is None else str(self.output),
            "compared": [asdict(row) for row in compared],
        }


def _rmse(normal: Tensor, truth: Tensor) -> float:
    return float(rmse(angle_error(normal, truth)))


def _table(rows: list[Row]) -> list[str]:
    if not rows:
        return []
    out = ["", "Against the known normals of the sample (root mean square angle):", ""]
    out += [f"  {row.name:<20} {seconds(row.seconds):>9} {row.rmse:>8.2f} degrees" for row in rows]
    return out


def _with(cloud: PointCloud, found: Estimate) -> PointCloud:
    """The cloud with what was found, under the names of its format."""
    new = {"normal_error": found.error.numpy().astype(np.float32)}
    if found.curvature is not None:
        bend = found.curvature.numpy().astype(np.float32)
        new |= {"curvature_1": bend[:, 0], "curvature_2": bend[:, 1]}
    return cloud.with_normals(found.normal.numpy().astype(np.float32)).with_fields(**new)
