"""veckm features: named numbers of every point's surroundings, for random forests and the like."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from veckm import scan
from veckm.cli.text import labeled, number, pace
from veckm.cli.tiles import CloudVerb
from veckm.cli.verb import Flag, OutputFile, coordinates, finite_rows, option, read_all
from veckm.io import WRITABLE, write
from veckm.io.formats import open_source
from veckm.io.output import check_writable
from veckm.progress import begin, passes
from veckm.scan.spool import scatter
from veckm.tasks.features import FeatureConfig, Invariants, features, suggest_radii


@dataclass(frozen=True)
class Features(CloudVerb):
    """Add named features to every point: planarity, density, height and more, at several radii.

    The cloud must have z upwards. Every feature becomes a field of the output, an extra field in
    LAS: planarity_0.5 is the planarity at a radius of 0.5. With .npy the output is an array of
    records with the coordinates and these fields.

    veckm features scan.laz -o features.laz --radii 0.5 1 2
    """

    contents, suffixes = "features", WRITABLE

    output: OutputFile = None
    """The cloud with its features; the name chooses the format."""
    radii: Annotated[tuple[float, ...], option("R [R ...]", "three suggested")] = ()
    """Radii of the neighborhoods, in the units of the cloud."""
    invariants: Invariants = "gravity"
    """Numbers of the encoding as well: those that stay when the cloud is turned about the vertical
    axis, those that stay under any rotation, or none."""
    height: Flag = True
    """Leave the height above the lowest points nearby out."""
    eps: float = 1e-2
    """Mean relative error of the sums that is allowed."""

    def _config(self, radii: tuple[float, ...]) -> FeatureConfig:
        return FeatureConfig(radii, self.invariants, self.height, self.eps)

    def run_in_memory(self) -> dict[str, object]:
        with passes(("read", "features", "write"), not self.silent):
            begin("read")
            cloud = read_all(self.cloud, self.columns)
            rows = finite_rows(cloud, self.cloud)
            pos = coordinates(cloud)[torch.from_numpy(rows)]
            config = self._config(self.radii or suggest_radii(pos))
            if self.output is not None:
                blank = dict.fromkeys(config.columns, np.zeros(0, np.float32))
                check_writable(self.output, cloud[:0].with_fields(**blank))
            source = self.show_cloud(pos)["source"]
            begin("features")
            start = time.perf_counter()
            found = features(
                pos, config.radii, invariants=self.invariants, height=self.height, eps=self.eps
            )
            spent = time.perf_counter() - start
            self._show(config)
            self.show(labeled("time", pace(len(pos), spent)))
            if self.output is not None:
                begin("write")
                new = {k: scatter(v.numpy(), rows, len(cloud)) for k, v in found.items()}
                write(self.output, cloud.with_fields(**new))
                self.written()
        return self.report(
            cloud=source,
            points=len(cloud),
            columns=config.columns,
            seconds=spent,
            output=self.output,
        )

    def run_in_tiles(self, cloud: Path) -> dict[str, object]:
        if not self.radii:
            raise ValueError(
                f"{cloud}: is processed in tiles: give --radii; `veckm info {cloud}` suggests one"
            )
        config = self._config(self.radii)
        if self.output is not None:
            blank = dict.fromkeys(config.columns, np.zeros(0, np.float32))
            header = open_source(cloud, self.columns).like()
            check_writable(self.output, header[:0].with_fields(**blank))
        self.title("features")
        self._show(config)
        return self.scan(cloud, scan.Features(config), columns=config.columns)

    def _show(self, config: FeatureConfig) -> None:
        each = (len(config.columns) - self.height) // len(config.radii)
        names = ", ".join(name.rpartition("_")[0] for name in config.columns[:each])
        radii = ", ".join(number(radius) for radius in config.radii)
        self.show(
            labeled("radii", radii),
            labeled("features", f"{len(config.columns)}: at every radius {names}"),
            *([labeled("", "and the height above the lowest points nearby")] * self.height),
        )
