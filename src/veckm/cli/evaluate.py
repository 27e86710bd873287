"""veckm evaluate normals: the error of our normals against the truth, beside PCA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Annotated

import torch
from tyro.conf import Positional, arg

from veckm.cli.verb import Verb, coordinates, read_cloud
from veckm.data import shapes
from veckm.data.pcpnet import PCPNet
from veckm.data.protocol import SETS, LabeledCloud
from veckm.inputs import check_count
from veckm.tasks.normals import load
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.estimate import estimate, shipped
from veckm.tasks.normals.evaluate import angle_error, rmse

_SAMPLE_POINTS = 20_000
#: Neighbors of PCA, the usual choices.
_NEIGHBORS = (18, 122)

_Source = Annotated[
    Path | None, arg(metavar="[PATH]", help_behavior_hint="(default: a sample scan)")
]
_Weights = Annotated[
    Path | None, arg(metavar="FILE", help_behavior_hint="(default: those of the package)")
]
_Limit = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: all)")]


@dataclass(frozen=True)
class EvaluateNormals(Verb):
    """Measure the RMSE of the estimated normals against known ones, beside PCA.

    Unoriented angles in degrees: of every cloud over its evaluated points, then the mean over
    the clouds of a set.
    """

    source: Positional[_Source] = None
    """Folder with test shapes in the layout of PCPNet, or a cloud file with known normals."""
    weights: _Weights = None
    """Weights (.safetensors), with their settings (.json) beside them."""
    limit: _Limit = None
    """Take the first K clouds only."""

    def run(self) -> None:
        """Score every cloud; print the table."""
        if self.limit is not None:
            check_count(self.limit, "--limit")
        net = shipped() if self.weights is None else load(self.weights)
        scores: dict[str, dict[str, list[float]]] = {}
        for cloud in islice(self._clouds(), self.limit):
            self.show(f"{cloud.name}, {cloud.set}: {len(cloud.pos):,} points")
            at, truth = cloud.subset, cloud.normal[cloud.subset]
            found = {"veckm": estimate(cloud.pos, net=net).normal[at]}
            found |= {f"PCA, k = {k}": pca_normals(cloud.pos, k, at=at) for k in _NEIGHBORS}
            for method, normal in found.items():
                error = rmse(angle_error(normal, truth))
                scores.setdefault(method, {}).setdefault(cloud.set, []).append(error)
        table = {m: {key: fmean(v) for key, v in sets.items()} for m, sets in scores.items()}
        table = {method: {**row, "mean": fmean(row.values())} for method, row in table.items()}
        self.show(*_lines(table))
        self.report(rmse_degrees=table)

    def _clouds(self) -> Iterator[LabeledCloud]:
        if self.source is None:
            shape = shapes.scan(_SAMPLE_POINTS)
            yield _whole("sample scan", shape.pos, shape.normal)
        elif self.source.is_dir():
            yield from PCPNet(self.source, "test")
        else:
            cloud = read_cloud(self.source)
            if cloud.normals is None:
                raise ValueError(f"{self.source}: has no normals to compare with")
            normal = torch.from_numpy(cloud.normals.astype("float32"))
            yield _whole(self.source.stem, coordinates(cloud), normal)


def _whole(name: str, pos: torch.Tensor, normal: torch.Tensor) -> LabeledCloud:
    """A cloud of which every point is evaluated."""
    return LabeledCloud(name, "cloud", pos, normal, torch.arange(len(pos)))


def _lines(table: dict[str, dict[str, float]]) -> list[str]:
    """A table of the sets in the order of the published ones."""
    first = next(iter(table.values()))
    columns = sorted(first, key=[*SETS, "cloud", "mean"].index)
    head = f"{'RMSE, degrees':<16}" + "".join(f"{name:>10}" for name in columns)
    rows = [
        f"{method:<16}" + "".join(f"{row[name]:>10.2f}" for name in columns)
        for method, row in table.items()
    ]
    return ["", head, *rows]
