"""The rows of the normals' benchmark, the clouds, and the methods as things to call."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments.evaluation import (
    METHODS,
    Estimator,
    Score,
    Scores,
    classical,
    in_all_sets,
    pcpnet_clouds,
    procedural,
)
from experiments.table1.paper import DenseNormalNet, paper_network
from safetensors.torch import load_file
from scipy.spatial import cKDTree
from torch import Tensor

from benchmarks import harness
from benchmarks.normals_parts import lenssen
from veckm.data.meshes import load_meshes
from veckm.data.protocol import LabeledCloud
from veckm.tasks.normals import estimate, load
from veckm.tasks.normals.estimate import shipped
from veckm.tasks.normals.network import NormalNet

PAPER, OPEN3D = "VecKM, the paper's network", "Open3D, k = 122"
#: Where there is no folder of meshes.
_SURFACES = 6

#: What tells a row from all others of a part.
Key = tuple[str, str, int, str]


@dataclass(frozen=True)
class Row:
    """One method on one cloud: times, or whatever else was measured."""

    part: str
    cloud: str
    n: int
    method: str
    set: str = ""
    values: dict[str, Any] = field(default_factory=dict)  # degrees, bytes or shares, by name
    seconds: list[float] = field(default_factory=list)
    note: str = ""  # why there is nothing

    median, spread, estimate = harness.Row.median, harness.Row.spread, None

    @property
    def key(self) -> Key:
        """Within its part."""
        return self.cloud, self.set, self.n, self.method


@dataclass
class Results(harness.Results):
    """Everything that one run measured about normals."""

    rows: list[Row] = field(default_factory=list)  # type: ignore[assignment]

    @classmethod
    def load(cls, path: Path) -> Results:
        """From JSON."""
        data = json.loads(path.read_text())
        rows = [Row(**row) for row in data["rows"]]
        return cls(data["meta"], data["options"], rows)

    @classmethod
    def merged(cls, runs: Sequence[Results]) -> Results:  # type: ignore[override]
        """Each part from the last run that has it: a table is of one run and one set of weights."""
        last = {part: run for run in runs for part in dict.fromkeys(r.part for r in run.rows)}
        rows = [row for part, run in last.items() for row in run.of(part)]
        return cls(runs[-1].meta, runs[-1].options, rows)  # type: ignore[arg-type]


_ESTIMATED: dict[Any, tuple[Tensor, Tensor]] = {}


@dataclass(frozen=True)
class Config:
    """What a part needs to know about the run."""

    quick: bool = False
    meshes: Path | None = None
    pcpnet: Path | None = None
    weights: Path | None = None
    paper: Path | None = None
    points: int = 100_000
    limit: int | None = None
    frames: tuple[Path, ...] = ()
    lenssen: Path | None = None

    @property
    def evaluated(self) -> int:
        """Points of a cloud that count."""
        return 500 if self.quick else 5_000

    @property
    def net(self) -> NormalNet:
        """Ours."""
        return _net(self.weights)

    def clouds(self) -> Iterator[LabeledCloud]:
        """Of the meshes, or of procedural surfaces where there are none, in the six sets."""
        if self.meshes is None:
            sources: Any = procedural(self.limit or _SURFACES)
        else:
            sources = dict(islice(load_meshes(self.meshes).items(), self.limit))
        return in_all_sets(sources, self.points, self.evaluated)

    def shapes(self) -> Iterator[LabeledCloud]:
        """Of PCPNet."""
        if self.pcpnet is None:
            return iter(())
        return pcpnet_clouds(self.pcpnet, self.limit, self.evaluated)

    def estimated(self, name: str, cloud: LabeledCloud) -> tuple[Tensor, Tensor]:  # (M, 3), (M,)
        """Normals and expected errors of one of our estimators at the evaluated points.

        Kept for the parts that ask for the same clouds again.
        """
        key = name, cloud.name, cloud.set, len(cloud.pos), self.weights
        if key not in _ESTIMATED:
            found = estimate(cloud.pos, net=self.net, method=METHODS[name])
            _ESTIMATED[key] = found.normal[cloud.subset], found.error[cloud.subset]
        return _ESTIMATED[key]

    def methods(self) -> dict[str, Estimator]:
        """All rows of the table."""
        found: dict[str, Estimator] = {
            name: lambda cloud, name=name: self.estimated(name, cloud)[0]  # type: ignore[misc]
            for name in METHODS
        }
        if self.paper is not None:
            net = _paper(self.paper)
            found[PAPER] = lambda cloud: _of_paper(net, cloud)
        found |= classical()
        if has_open3d():
            found[OPEN3D] = lambda cloud: open3d_normals(cloud.pos, 122)[cloud.subset]
        if self.lenssen is not None:
            run = lenssen.estimator(self.lenssen)
            found[lenssen.NAME] = lambda cloud: run(cloud.pos)[cloud.subset]
        return found


@lru_cache(maxsize=1)
def _net(weights: Path | None) -> NormalNet:
    return shipped() if weights is None else load(weights)


@lru_cache(maxsize=1)
def _paper(path: Path) -> DenseNormalNet:
    """From .safetensors, or from a checkpoint of experiments.table1_normals."""
    if path.suffix == ".safetensors":
        state = load_file(path)
    else:
        state = torch.load(path, weights_only=True)
    net = paper_network()
    net.load_state_dict(state.get("net", state))
    return net.eval().requires_grad_(False)


def _of_paper(net: DenseNormalNet, cloud: LabeledCloud) -> Tensor:  # (M, 3)
    answer: Tensor = net(cloud.pos, cloud.subset)
    return answer


def installed(name: str) -> bool:
    """Whether there is such a library."""
    return importlib.util.find_spec(name) is not None


def has_open3d() -> bool:
    """Whether it is installed."""
    return installed("open3d")


def open3d_normals(
    pos: Tensor,  # (N, 3)
    k: int | None = None,
    radius: float | None = None,
) -> Tensor:  # (N, 3) float64
    """What users of Open3D call, the copies there and back included."""
    import open3d  # not a dependency

    points = open3d.utility.Vector3dVector(pos.double().numpy())
    cloud = open3d.geometry.PointCloud(points)
    o = open3d.geometry
    cloud.estimate_normals(
        o.KDTreeSearchParamKNN(k) if radius is None else o.KDTreeSearchParamRadius(radius)
    )
    return torch.from_numpy(np.array(cloud.normals))


def jakteristics_normals(pos: Tensor, radius: float) -> Tensor:  # (N, 3) -> (N, 3) float64
    """What its documentation shows; NaN where it has no answer."""
    from jakteristics import compute_features  # not a dependency

    found = compute_features(
        pos.double().numpy(),
        search_radius=radius,
        num_threads=torch.get_num_threads(),
        feature_names=["nx", "ny", "nz"],
    )
    return torch.from_numpy(found).double()


def scipy_normals(pos: Tensor, k: int) -> Tensor:  # (N, 3) -> (N, 3) float64
    """PCA as one writes it with scipy and numpy: a tree, the k nearest, eigh of the covariances."""
    x = pos.double().numpy()
    k = min(k, len(x))
    near = cKDTree(x).query(x, k, workers=torch.get_num_threads())[1].reshape(len(x), k)
    out = np.empty_like(x)
    for rows in np.array_split(np.arange(len(x)), 1 + len(x) * k // (1 << 22)):
        d = x[near[rows]]
        d -= d.mean(1, keepdims=True)
        out[rows] = np.linalg.eigh(d.swapaxes(1, 2) @ d)[1][:, :, 0]
    return torch.from_numpy(out)


def scores_of(rows: list[Row]) -> Scores:
    """Rows with an RMSE as scores, which make the tables."""
    return Scores([Score(r.method, r.cloud, r.set, r.values["rmse"], r.values) for r in rows])


def percent(share: float) -> str:
    """A share of one, as text."""
    return f"{share * 100:.1f} %"
