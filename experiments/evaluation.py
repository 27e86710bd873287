"""Scores of estimators of normals on the same clouds, by the protocol of PCPNet.

The RMSE of every cloud over its evaluated points, the mean over the clouds of a set, and the mean
over the six sets.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from experiments.jets import jet_normals
from veckm import io
from veckm.data.pcpnet import PCPNet
from veckm.data.protocol import SETS, LabeledCloud, make_cloud
from veckm.data.random_solids import random_surface
from veckm.data.sampling import Density, Seed, Shape, Surface, make_generator, uniform
from veckm.data.solids import Solid
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.estimate import Method
from veckm.tasks.normals.evaluate import angle_error, rmse
from veckm.tasks.normals.network import NormalNet

#: From a cloud to unit normals (M, 3) of its evaluated points, cloud.subset; either sign.
Estimator = Callable[[LabeledCloud], Tensor]

OURS, BEST, UNTRAINED = "veckm", "veckm, best", "veckm, no training"
#: What they are called in `estimate`.
METHODS: dict[str, Method] = {OURS: "network", BEST: "best", UNTRAINED: "moments"}
#: Neighbors of PCA and jets in the published tables.
KS = (18, 122, 450)
#: Procedural surfaces from this seed on: training has those below.
FIRST_SEED = 10_000
#: Of a shape that is given as points, the share that a set of uneven density leaves.
_UNEVEN = 0.4


#: What is said of a method on a cloud, and whether more is better. Chamfer is the RMSE against the
#: normal of the nearest point of the cloud without noise.
MEASURES = {"rmse": False, "chamfer": False, "below 5": True, "below 10": True}


@dataclass(frozen=True)
class Score:
    """How one method did on one cloud: degrees, and shares of the points."""

    method: str
    cloud: str
    set: str
    rmse: float
    more: Mapping[str, float] = field(default_factory=dict)  # the other measures that are known

    def value(self, measure: str) -> float:
        """One of the measures."""
        return self.rmse if measure == "rmse" else self.more[measure]


@dataclass(frozen=True)
class Scores:
    """Scores of several methods, and the table that they make.

    A family is methods that differ in the number of neighbors, called ``"PCA, k = 18"`` and so
    on. It has one more row in the table: of each set that with the best k.
    """

    rows: list[Score] = field(default_factory=list)

    @property
    def methods(self) -> list[str]:
        """In the order in which they were first scored."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def clouds(self) -> list[tuple[str, str]]:
        """Name and set of the clouds that all methods were scored on: the table is of these."""
        scored = [
            {(row.cloud, row.set): None for row in self.rows if row.method == method}
            for method in self.methods
        ]
        return [key for key in scored[0] if all(key in s for s in scored)] if scored else []

    def table(self, measure: str = "rmse") -> dict[str, dict[str, float]]:
        """Of every method the mean of each set, and under ``"mean"`` the mean over the sets."""
        common = set(self.clouds)
        if not common:
            raise ValueError("there is no cloud that all methods were scored on")
        found: dict[str, dict[str, list[float]]] = {name: {} for name in self.methods}
        for row in self.rows:
            if (row.cloud, row.set) in common:
                found[row.method].setdefault(row.set, []).append(row.value(measure))
        means = {name: mean_over_sets(scores) for name, scores in found.items()}
        return _with_best(means, max if MEASURES[measure] else min)

    def markdown(self) -> str:
        """The table, with a column for each of the six sets and any others that there are."""
        table = self.table()
        others = {name for row in table.values() for name in row} - {*SETS, "mean"}
        columns = [*SETS, *sorted(others), "mean"]
        lines = [["RMSE in degrees", *columns]]
        for method, row in table.items():
            cells = [f"{row[name]:.2f}" if name in row else "-" for name in columns]
            lines.append([method, *cells])
        return _aligned(lines)


def _with_best(
    table: dict[str, dict[str, float]], choose: Callable[[list[float]], float]
) -> dict[str, dict[str, float]]:
    """The same table with a row for each family behind its last member."""
    families: dict[str, list[str]] = {}
    for name in table:
        family, mark, _ = name.partition(", k = ")
        if mark:
            families.setdefault(family, []).append(name)
    out = {}
    for name, row in table.items():
        out[name] = row
        family = name.partition(", k = ")[0]
        members = families.get(family, [])
        if len(members) > 1 and name == members[-1]:
            sets = [key for key in row if key != "mean"]
            best = {key: [choose([table[member][key] for member in members])] for key in sets}
            out[best_of(family)] = mean_over_sets(best)
    return out


def mean_over_sets(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The row of a table: the mean of every set over its clouds, and the mean of those.

    Args:
        scores: of every set one number per cloud, such as its RMSE.

    Returns:
        by set, in the order of ``SETS`` and then of ``scores``, and under ``"mean"`` the mean
        over the sets.
    """
    empty = [name for name, values in scores.items() if not len(values)]
    if empty or not scores:
        raise ValueError(f"no scores for {', '.join(empty) or 'any set'}")
    order = [name for name in SETS if name in scores] + [k for k in scores if k not in SETS]
    row = {name: fmean(scores[name]) for name in order}
    return {**row, "mean": fmean(row.values())}


def best_of(family: str) -> str:
    """The name of the row with the best number of neighbors in each set."""
    return f"{family}, best k per set"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table that can be read as it is; the first line is its head."""
    width = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]

    def text(line: Sequence[str]) -> str:
        numbers = [cell.rjust(w) for cell, w in zip(line[1:], width[1:], strict=True)]
        return "| " + " | ".join([line[0].ljust(width[0]), *numbers]) + " |"

    rule = ["-" * width[0], *("-" * (w - 1) + ":" for w in width[1:])]
    return "\n".join(text(line) for line in (lines[0], rule, *lines[1:]))


def score(methods: Mapping[str, Estimator], cloud: LabeledCloud) -> list[Score]:
    """The scores of all methods on one cloud."""
    truth = cloud.normal[cloud.subset]
    nearest = nearest_clean(cloud)
    out = []
    for name, estimator in methods.items():
        normal = estimator(cloud)
        if normal.shape != truth.shape:
            raise ValueError(
                f"{name} returned shape {tuple(normal.shape)} for the {len(truth)} evaluated "
                f"points of {cloud.name} ({cloud.set}); expected (M, 3), at cloud.subset"
            )
        error = angle_error(normal, truth)
        more = {f"below {limit}": float((error < limit).double().mean()) for limit in (5, 10)}
        if nearest is not None:
            more["chamfer"] = rmse(angle_error(normal, cloud.normal[nearest]))
        out.append(Score(name, cloud.name, cloud.set, rmse(error), more))
    return out


def nearest_clean(cloud: LabeledCloud) -> Tensor | None:  # (M,)
    """For every evaluated point the nearest point of the cloud without noise, if it is known.

    Noise moves points to where the surface is another one: there the normal of where a point came
    from cannot be told.
    """
    if cloud.clean is None:
        return None
    tree = cKDTree(cloud.clean.double().numpy())
    return torch.from_numpy(tree.query(cloud.pos[cloud.subset].double().numpy())[1])


def classical(ks: Sequence[int] = KS) -> dict[str, Estimator]:
    """PCA and jets of the second order, each with every number of neighbors."""

    def run(normals: Callable[..., Tensor], k: int, cloud: LabeledCloud) -> Tensor:
        return normals(cloud.pos, k, at=cloud.subset)

    families: dict[str, Callable[..., Tensor]] = {"PCA": pca_normals, "Jet": jet_normals}
    return {f"{name}, k = {k}": partial(run, f, k) for name, f in families.items() for k in ks}


def fingerprint(net: NormalNet) -> str:
    """A short text that is the same for the same weights only."""
    digest = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def in_all_sets(
    sources: Mapping[str, Surface], n: int = 100_000, evaluated: int = 5_000
) -> Iterator[LabeledCloud]:
    """Every source in the six sets. A cloud depends on its name, not on what else there is."""
    for name, source in sources.items():
        for key in SETS:
            yield make_cloud(source, key, _seed(name), n, evaluated, name)


def procedural(count: int) -> dict[str, Solid]:
    """Surfaces that training does not see."""
    seeds = range(FIRST_SEED, FIRST_SEED + count)
    return {f"surface {seed}": random_surface(seed) for seed in seeds}


@dataclass(frozen=True, eq=False)
class Points(Surface):
    """The points of a shape, of which samples are taken; uneven density leaves about half."""

    shape: Shape

    def sample(self, n: int, seed: Seed = 0, density: Density | None = None) -> Shape:
        generator, kept = make_generator(seed), self.shape
        if density is not None:
            kept = kept[uniform(generator, len(kept.pos)).to(kept.pos) < density(kept.pos)]
        if len(kept.pos) < n:
            raise ValueError(
                f"the shape has {len(self.shape.pos)} points, of which {len(kept.pos)} are left at "
                f"this density, fewer than n = {n}; sample it more densely or pass a smaller n"
            )
        return kept[torch.randperm(len(kept.pos), generator=generator)[:n]]

    def extent(self, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        return self.shape.pos


def pcpnet_clouds(
    folder: str | Path, limit: int | None = None, evaluated: int = 5_000
) -> Iterator[LabeledCloud]:
    """The test clouds of the PCPNet release, or shapes of ``.npz`` files put into the six sets.

    Of such a shape the sets with noise have all points, and those of uneven density two fifths.

    Args:
        folder: has the files of the release with the lists, or ``.npz`` with xyz and normal.
        limit: so many shapes of each set at most.
        evaluated: points of a cloud to evaluate where the release does not say which.
    """
    folder = Path(folder)
    paths = sorted(folder.glob("*.npz"))[:limit]
    if not paths:
        release = PCPNet(folder, "test")
        for key in dict.fromkeys(key for key, _ in release.entries):
            mine = [k for k, entry in enumerate(release.entries) if entry[0] == key]
            yield from (release[k] for k in mine[:limit])
        return
    for path in paths:
        read = io.read(path)
        if read.normals is None:
            raise ValueError(f"{path}: has no array normal, the true normals to compare with")
        pos, normal = (torch.from_numpy(t).float() for t in (read.pos, read.normals))
        shape = Shape(pos, torch.nn.functional.normalize(normal, dim=-1))
        few = max(1, int(_UNEVEN * len(shape.pos)))
        for key in SETS:
            n = few if key in ("stripe", "gradient") else len(shape.pos)
            yield make_cloud(Points(shape), key, _seed(path.stem), n, evaluated, path.stem)


def _seed(name: str) -> int:
    return FIRST_SEED + zlib.crc32(name.encode())
