"""Named features beside pgeof and jakteristics: time, and what a random forest makes of them.

    python -m benchmarks.features --clouds FILE ... --labeled FILE ...

`--clouds` are timed at radii with about 30, 100, 300 and 1,000 points within them, each method from
the coordinates to its columns, the search for neighbors included: ten columns of ours, the
eleven of pgeof, ten of jakteristics. `--labeled` are clouds with
a field `classification` (2 is ground) or `label` (0 is ground), or arrays `xyzi` and `label` of
SemanticKITTI: a forest learns ground against the rest on the half with the smaller x and is tested
on the other half. Needs pgeof, jakteristics and scikit-learn, which are not dependencies.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

import veckm
from benchmarks.harness import log, metadata
from benchmarks.scan_parts.pages import features_page
from veckm.knn import build_tree

ROOT = Path(__file__).resolve().parents[1]
NEIGHBORS = (30, 100, 300, 1000)
#: Most points of a cloud that is timed or learned from.
POINTS = 100_000
#: Labels of SemanticKITTI on the ground: road, parking, sidewalk, other ground, lane, terrain.
GROUND = (40, 44, 48, 49, 60, 72)
#: Seconds after which a method is run once only.
SLOW = 8.0
JAKTERISTICS = (
    "linearity", "planarity", "sphericity", "anisotropy", "omnivariance", "eigenentropy",
    "surface_variation", "verticality", "eigenvalue_sum", "number_of_neighbors",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What to measure."""

    clouds: tuple[Path, ...] = ()
    """Clouds to time."""
    labeled: tuple[Path, ...] = ()
    """Clouds to learn from."""
    turns: int = 3
    """Runs of each method, in turns."""
    out: Path = ROOT / "benchmarks" / "results"
    """Folder for the result."""


def main(options: Options) -> int:
    """Measure, save, print."""
    results: dict[str, Any] = {"meta": metadata(), "times": [], "forests": []}
    path = options.out / f"features-{time.strftime('%Y%m%d-%H%M%S')}.json"
    for file in options.clouds:
        xyz = part_of(veckm.read(file).xyz)
        for count in NEIGHBORS:
            results["times"].append(timed(file.name, xyz, count, options.turns))
            path.write_text(json.dumps(results, indent=1) + "\n")
    for file in options.labeled:
        results["forests"].append(learned(file))
        path.write_text(json.dumps(results, indent=1) + "\n")
    print(features_page([results]))
    log(f"results: {path}")
    return 0


def part_of(xyz: np.ndarray) -> np.ndarray:  # (N, 3) -> (n, 3)
    """The points nearest to the middle: as dense as the cloud, which a sample would not be."""
    middle = np.median(xyz, axis=0)
    order = np.argsort(np.square(xyz[:, :2] - middle[:2]).sum(1), kind="stable")[:POINTS]
    return np.ascontiguousarray(xyz[np.sort(order)] - middle)


def radius_for(xyz: np.ndarray, count: int) -> float:
    """A radius with so many points within it, in the median."""
    some = xyz[:: max(1, len(xyz) // 2000)]
    return float(np.median(build_tree(xyz).query(some, [count])[0]))


def of_pgeof(xyz: np.ndarray, radius: float, _: int) -> np.ndarray:
    """Their features from lists of all neighbors, which they take from outside."""
    import pgeof

    lists = build_tree(xyz).query_ball_point(xyz, radius, workers=-1)
    ends = np.cumsum([0, *map(len, lists)]).astype(np.uint32)
    near = np.concatenate(lists).astype(np.uint32)
    found: np.ndarray = pgeof.compute_features(xyz.astype(np.float32), near, ends)
    return found


def of_pgeof_search(xyz: np.ndarray, radius: float, most: int) -> np.ndarray:
    """Their features with their own search, which wants the largest number of neighbors."""
    import pgeof

    x = xyz.astype(np.float32)
    near, _ = pgeof.radius_search(x, x, radius, most)
    some = near >= 0
    ends = np.concatenate(([0], np.cumsum(some.sum(1)))).astype(np.uint32)
    found: np.ndarray = pgeof.compute_features(x, near[some].astype(np.uint32), ends)
    return found


def of_jakteristics(xyz: np.ndarray, radius: float, most: int) -> np.ndarray:
    """Ten of their columns."""
    from jakteristics import compute_features

    names = list(JAKTERISTICS)
    found: np.ndarray = compute_features(xyz, radius, feature_names=names, max_k_neighbors=most)
    return found


def of_ours(xyz: np.ndarray, radius: float, _: int) -> np.ndarray:
    """Our ten columns."""
    pos = torch.from_numpy(xyz)
    found = veckm.features(pos, radius, invariants="none", height=False)
    return torch.stack(list(found.values()), 1).numpy()


METHODS: dict[str, Callable[[np.ndarray, float, int], np.ndarray]] = {
    "veckm": of_ours,
    "pgeof, scipy's search": of_pgeof,
    "pgeof, its own search": of_pgeof_search,
    "jakteristics": of_jakteristics,
}


def timed(name: str, xyz: np.ndarray, count: int, turns: int) -> dict[str, Any]:
    """Seconds of every method, the median of turns."""
    radius = radius_for(xyz, count)
    some = xyz[:: max(1, len(xyz) // 2000)]
    most = 2 * max(map(len, build_tree(xyz).query_ball_point(some, radius)))
    spent: dict[str, list[float]] = {method: [] for method in METHODS}
    for run in METHODS.values():
        run(xyz[: len(xyz) // 10], radius, most)  # what is set up once
    for _ in range(turns):
        for method, run in METHODS.items():
            if spent[method] and spent[method][0] > SLOW:
                continue
            start = time.perf_counter()
            run(xyz, radius, most)
            spent[method].append(time.perf_counter() - start)
    seconds = {method: statistics.median(runs) for method, runs in spent.items()}
    log(f"{name}, {count} neighbors: {seconds}")
    about = {"cloud": name, "points": len(xyz), "neighbors": count, "radius": radius}
    return {**about, "runs": spent, **seconds}


def labeled(path: Path) -> tuple[np.ndarray, np.ndarray]:  # (N, 3), (N,)
    """Coordinates, and which points are ground."""
    if "semantickitti" in path.name:
        held = np.load(path)
        return held["xyzi"][:, :3].astype(np.float64), np.isin(held["label"] & 0xFFFF, GROUND)
    cloud = veckm.read(path)
    name, code = ("classification", 2) if "classification" in cloud.fields else ("label", 0)
    return cloud.xyz, np.asarray(cloud.fields[name] == code)


def learned(path: Path) -> dict[str, Any]:
    """Accuracy of a forest with ours, theirs and both, at the same two radii."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import f1_score

    xyz, ground = labeled(path)
    rows = np.random.default_rng(0).permutation(len(xyz))[:POINTS]
    xyz, ground = xyz[rows] - xyz.mean(0), ground[rows]
    radii = tuple(radius_for(xyz, count) for count in (30, 300))
    ours = veckm.features(torch.from_numpy(xyz), radii)
    mine = torch.stack(list(ours.values()), 1).numpy()
    theirs = np.concatenate([of_jakteristics(xyz, radius, 2000) for radius in radii], 1)
    theirs = np.nan_to_num(theirs)
    left = xyz[:, 0] < np.median(xyz[:, 0])
    found: dict[str, Any] = {"cloud": path.name, "points": len(xyz), "ground": float(ground.mean())}
    for name, X in (("ours", mine), ("theirs", theirs), ("both", np.hstack((mine, theirs)))):
        forest = RandomForestClassifier(100, random_state=0, n_jobs=-1, max_depth=16)
        guess = forest.fit(X[left], ground[left]).predict(X[~left])
        found[name] = {
            "columns": X.shape[1],
            "accuracy": float((guess == ground[~left]).mean()),
            "f1": float(f1_score(ground[~left], guess)),
        }
    log(str(found))
    return found


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
