"""veckm normals: the normal of every point of a cloud file, its expected error, and curvature."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from veckm import scan
from veckm.cli.text import labeled, pace, seconds
from veckm.cli.tiles import CloudVerb
from veckm.cli.verb import Flag, OutputFile, coordinates, finite_rows, note, option, read_all
from veckm.cloud import BEFORE, NORMAL_NAMES, PointCloud
from veckm.io import WRITABLE, write
from veckm.io.formats import open_source
from veckm.io.output import check_missing, check_writable
from veckm.io.source import Source
from veckm.io.trajectory import sensor_positions
from veckm.progress import begin, passes
from veckm.scan.normals import with_estimate
from veckm.scan.spool import Arrays, chunks_of, scatter
from veckm.tasks.normals import Estimate, Method, Orientation, choose_direction, estimate
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.estimate import network
from veckm.tasks.normals.evaluate import angle_error, best_k, rmse
from veckm.tasks.normals.stats import Chunks

#: The field of LAS that a trajectory is looked up by.
_TIME = "gps_time"
#: Neighbors of PCA as users take them.
_USUAL = 30


@dataclass(frozen=True)
class Normals(CloudVerb):
    """Estimate the normal of every point of a cloud, in any units, without parameters to choose.

    Without a file it takes a sample scan whose normals are known, and prints the error.

    veckm normals scan.laz -o normals.laz

    veckm normals scans/ --out-dir normals

    The output is the input with normals, the expected angle error in degrees (normal_error) and
    principal curvatures (curvature_1, curvature_2); everything else is kept, earlier normals under
    names that end in _before. An interrupted run in tiles is resumed by the same command.
    """

    contents, suffixes = "normals", WRITABLE

    output: OutputFile = None
    """The cloud with its normals; the name chooses the format."""
    orient: Orientation = "auto"
    """Which of the two directions: viewpoint, up, consistent between neighbors and outwards, none,
    or auto: the viewpoint where the file tells where the sensor was, up in LAS files and for sheets
    seen from above, else consistent."""
    viewpoint: Annotated[tuple[float, float, float] | None, option("X Y Z", "of the file")] = None
    """Position of the scanner; normals point towards it."""
    trajectory: Annotated[Path | None, option("FILE", "none")] = None
    """Positions of a moving scanner, a table of time, x, y, z: normals point to where it was at the
    gps_time of their points. For clouds in memory."""
    curvature: Flag = True
    """Leave principal curvatures out, which saves time."""
    method: Method = "network"
    """The trained network; best, the mean of two of its estimates in twice the time; or moments,
    the estimator without training."""
    weights: Annotated[Path | None, option("FILE", "those of the package")] = None
    """Weights of a network from `veckm train normals` (.safetensors, its .json beside it)."""

    def run_in_memory(self) -> dict[str, object]:
        names = ["read", "normals", "orient", "curvature", "write"]
        absent = {"orient": self.orient == "none", "curvature": not self._curved}
        absent["write"] = self.output is None
        with passes([name for name in names if not absent.get(name)], not self.silent):
            return self._run_in_memory()

    def _run_in_memory(self) -> dict[str, object]:
        begin("read")
        cloud = read_all(self.cloud, self.columns)
        rows = finite_rows(cloud, self.cloud)
        xyz = cloud.xyz[rows]
        orient, place, why = self._orientation(cloud, lambda: [xyz])
        net = None if self.weights is None else network(self.weights)
        if self.output is not None:
            self._check_room(self.output, cloud[:0], len(rows) < len(cloud))
        pos = coordinates(cloud)[torch.from_numpy(rows)]
        source = self.show_cloud(pos)["source"]
        start = time.perf_counter()
        found = estimate(
            pos,
            orient=orient,
            viewpoint=place if place is None or place.ndim == 1 else place[rows],
            curvature=self._curved,
            method=self.method,
            net=net,
        )
        spent = time.perf_counter() - start
        sample = found.error[:: max(1, len(pos) // 100_000)]
        low, middle, high = np.quantile(sample.numpy(), [0.1, 0.5, 0.9]).tolist()
        spread = f"10 % below {low:.2g}, half below {middle:.2g}, 10 % above {high:.2g} degrees"
        self.show(
            labeled("method", f"{self.method}, directions: {why}"),
            labeled("time", pace(len(pos), spent)),
            labeled("expected", f"angle error: {spread}"),
        )
        known: dict[str, float] = {}
        if self.cloud is None:  # the normals of the sample are known
            lines, known = _compare(pos, torch.from_numpy(cloud.normals), found.normal, spent)
            self.show("", *lines)
        if self.output is not None:
            begin("write")
            new = {name: scatter(v, rows, len(cloud)) for name, v in _fields(found).items()}
            write(self.output, with_estimate(cloud, new))
            self.written()
        return self.report(
            cloud=source,
            points=len(cloud),
            method=self.method,
            orient=orient,
            why=why,
            seconds=spent,
            expected_error_degrees=float(found.error.double().mean()),
            true_error_degrees=next(iter(known.values()), None),
            pca_error_degrees={k: v for k, v in known.items() if k.startswith("PCA")} or None,
            output=self.output,
        )

    def run_in_tiles(self, cloud: Path) -> dict[str, object]:
        source = open_source(cloud, self.columns)
        header = source.like()
        orient, place, why = self._orientation(header, lambda: _finite_parts(source))
        x, y, z = (0.0, 0.0, 0.0) if place is None else place.tolist()
        viewpoint = None if place is None else (x, y, z)
        weights = None if self.weights is None else str(self.weights)
        operation = scan.Normals(orient, viewpoint, self.curvature, self.method, weights)
        if self.output is not None:
            self._check_room(self.output, header)
        self.title("normals")
        self.show(labeled("method", f"{self.method}, directions: {why}, in tiles"))
        return self.scan(cloud, operation, orient=orient, why=why)

    @property
    def _curved(self) -> bool:
        return self.curvature and self.output is not None

    def _orientation(
        self, cloud: PointCloud, chunks: Chunks
    ) -> tuple[Orientation, Tensor | None, str]:
        """Which way normals are turned, from where, and why."""
        orient: Orientation = self.orient
        why: str = orient
        place = None if cloud.viewpoint is None else torch.from_numpy(cloud.viewpoint)
        given = "--viewpoint" if self.trajectory is None else "--trajectory"
        if self.viewpoint is not None:
            place = torch.tensor(self.viewpoint, dtype=torch.float64)
        if self.trajectory is not None:
            if self.viewpoint is not None:
                raise ValueError("--viewpoint and --trajectory exclude each other")
            if _TIME not in cloud.fields:
                raise ValueError(f"{self.cloud}: has no {_TIME}, which --trajectory needs")
            if not len(cloud):
                raise ValueError(
                    f"{self.cloud}: is processed in tiles, and --trajectory needs it in memory; "
                    "give --viewpoint, or split it"
                )
            place = torch.from_numpy(sensor_positions(self.trajectory, cloud.fields[_TIME]))
        if (self.viewpoint or self.trajectory) and orient not in ("auto", "viewpoint"):
            raise ValueError(f"{given} and --orient {orient} exclude each other")
        if orient == "auto":
            survey = self.cloud is not None and self.cloud.suffix.lower() in (".las", ".laz")
            orient, why = choose_direction(chunks, sensor=place is not None, survey=survey)
        if orient == "viewpoint" and place is None:
            raise ValueError(
                "--orient viewpoint needs --viewpoint X Y Z or --trajectory: the file gives none"
            )
        return orient, place if orient == "viewpoint" else None, why

    def _check_room(self, output: Path, header: PointCloud, missing: bool = False) -> None:
        """Raise now if the output cannot hold the result; note what it replaces."""
        if missing:
            check_missing(output)
        blank = scan.Normals("none", curvature=self.curvature, method=self.method).blank()
        made = with_estimate(header, blank)
        check_writable(output, made)
        had, kept = header.fields, [name for name in made.fields if name not in header.fields]
        kept = [name for name in kept if name.endswith(BEFORE)]
        replaced = [name for name in blank if name in had]
        if kept:
            note(f"the normals that the file had are kept as {' '.join(kept)}")
        elif any(set(names) <= set(had) for names in NORMAL_NAMES):
            note("the normals that the file had are replaced")
        if replaced:
            note(f"{' '.join(replaced)} that the file had are replaced")


def _finite_parts(source: Source) -> Iterator[np.ndarray]:  # (n, 3) each
    """The coordinates of a file, some at a time, without missing points."""
    for part in chunks_of(source.count):
        xyz = source.read_xyz(part.start, part.stop)
        yield xyz[np.isfinite(xyz).all(1)]


def _compare(
    pos: Tensor,  # (N, 3)
    truth: Tensor,  # (N, 3)
    normal: Tensor,  # (N, 3)
    spent: float,
) -> tuple[list[str], dict[str, float]]:
    """A table of the true errors beside PCA's, and the errors by method."""
    rows = [("veckm, directions included", normal, spent)]
    for k, about in ((_USUAL, ""), (best_k(pos, truth), ", the best k for the true normals")):
        start = time.perf_counter()
        estimated = pca_normals(pos, k)
        rows.append((f"PCA, k = {k}{about}", estimated, time.perf_counter() - start))
    lines = [f"{'angle error, true normals known':<44} {'RMSE':>6} {'< 5 deg':>8} {'time':>8}"]
    known = {}
    for name, estimated, taken in rows:
        error = angle_error(estimated, truth)
        good = f"{float((error < 5).double().mean()):.0%}"
        known[name] = rmse(error)
        lines.append(f"{name:<44} {known[name]:>6.2f} {good:>8} {seconds(taken):>8}")
    return lines, known


def _fields(found: Estimate) -> Arrays:
    """The new fields of a file."""
    out = {"normal": found.normal, "normal_error": found.error}
    if found.curvature is not None:
        out |= {"curvature_1": found.curvature[:, 0], "curvature_2": found.curvature[:, 1]}
    return {name: values.numpy().astype(np.float32) for name, values in out.items()}
