"""veckm normals: the normal of every point of a cloud file, its expected error, and curvature."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from tyro.conf import arg

from veckm import scan
from veckm.cli.text import labeled, pace
from veckm.cli.tiles import CloudVerb
from veckm.cli.verb import Flag, OutputFile, coordinates, option, read_cloud
from veckm.cloud import PointCloud
from veckm.io import WRITABLE, write
from veckm.io.formats import output_note
from veckm.tasks.normals import Estimate, Method, Orientation, estimate
from veckm.tasks.normals.evaluate import angle_error, rmse


@dataclass(frozen=True)
class Normals(CloudVerb):
    """Estimate the normal of every point of a cloud, in any units, without parameters to choose.

    Without a file it takes a sample scan whose normals are known, and prints the error.

    veckm normals scan.laz -o normals.laz

    The output is the input with normals, the expected angle error in degrees (normal_error) and
    principal curvatures (curvature_1, curvature_2); everything else is kept. An interrupted run in
    tiles is resumed by the same command.
    """

    contents, suffixes = "normals", WRITABLE

    output: OutputFile = None
    """The cloud with its normals; the name chooses the format."""
    orient: Annotated[Orientation | None, arg(help_behavior_hint="(default: consistent)")] = None
    """Which of the two directions: consistent between neighbors, up, viewpoint, or none."""
    viewpoint: Annotated[tuple[float, float, float] | None, option("X Y Z", "none")] = None
    """Position of the scanner; normals point towards it."""
    curvature: Flag = True
    """Leave principal curvatures out, which saves time."""
    method: Method = "network"
    """The trained network, or moments for the estimator without training."""

    def run_in_memory(self) -> None:
        cloud = read_cloud(self.cloud)
        pos = coordinates(cloud)
        source = self.show_cloud(pos)["source"]
        orient = self._orientation()
        start = time.perf_counter()
        found = estimate(
            pos,
            orient=orient,
            viewpoint=None if self.viewpoint is None else torch.tensor(self.viewpoint),
            curvature=self.curvature and self.output is not None,
            method=self.method,
        )
        spent = time.perf_counter() - start
        sample = found.error[:: max(1, len(pos) // 100_000)]
        low, middle, high = np.quantile(sample.numpy(), [0.1, 0.5, 0.9]).tolist()
        spread = f"10 % below {low:.2g}, half below {middle:.2g}, 10 % above {high:.2g} degrees"
        self.show(
            labeled("method", f"{self.method}, directions: {orient}"),
            labeled("time", pace(len(pos), spent)),
            labeled("expected", f"angle error: {spread}"),
        )
        error = None
        if self.cloud is None:  # the normals of the sample are known
            error = rmse(angle_error(found.normal, torch.from_numpy(cloud.normals)))
            known = f"{error:.2f} degrees, root mean square over the known normals of the sample"
            self.show(labeled("true", f"angle error: {known}"))
        if self.output is not None:
            write(self.output, _with(cloud, found))
            note = "" if self.cloud is None else output_note(self.cloud, self.output)
            self.show(labeled("written", f"{self.output}{note}"))
        self.report(
            cloud=source,
            points=len(pos),
            method=self.method,
            orient=orient,
            seconds=spent,
            expected_error_degrees=float(found.error.double().mean()),
            true_error_degrees=error,
            output=self.output,
        )

    def run_in_tiles(self, cloud: Path) -> None:
        orient = self._orientation()
        operation = scan.Normals(orient, self.viewpoint, self.curvature, self.method)
        self.title("normals")
        self.show(labeled("method", f"{self.method}, directions: {orient}, in tiles"))
        self.scan(cloud, operation, orient=orient)

    def _orientation(self) -> Orientation:
        if self.orient is not None:
            return self.orient
        return "consistent" if self.viewpoint is None else "viewpoint"


def _with(cloud: PointCloud, found: Estimate) -> PointCloud:
    """The cloud with the normals, under the names of its format, and the fields."""
    fields = {"normal_error": found.error.numpy().astype(np.float32)}
    if found.curvature is not None:
        curvature = found.curvature.numpy().astype(np.float32)
        fields |= {"curvature_1": curvature[:, 0], "curvature_2": curvature[:, 1]}
    return cloud.with_normals(found.normal.numpy().astype(np.float32)).with_fields(**fields)
