"""Registration of real pairs beside Open3D and KISS-Matcher, in one run.

    python -m benchmarks.register --data FOLDER                      everything
    python -m benchmarks.register --data FOLDER --pairs 3dmatch      names that contain a word
    python -m benchmarks.register --data FOLDER --parts pair memory
    python -m benchmarks.register --data FOLDER --methods none      ours alone
    python -m benchmarks.register --data FOLDER --meshes FOLDER     shapes for the confidence

The folder has pairs as .npz: `source`, `target`, and `T`, which moves the source into the target.
Every source is turned at random, by a seed made from the name of its file. Methods of others run at
our voxel size and at twice that, for they do not choose one; they are left out where they are not
installed. Runs are merged case by case and method by method: the page shows the last that
measured it.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

import veckm
from benchmarks.harness import log, metadata, seconds
from benchmarks.register_parts import peak, peers, solvers, views
from benchmarks.register_parts.page import COARSER, page
from benchmarks.register_parts.pairs import Pair, pairs, right_matches
from veckm.data import shapes
from veckm.tasks.registration.surface import Surface

ROOT = Path(__file__).resolve().parents[1]
_RADIUS = 0.1

Part = Literal["pair", "solvers", "others", "speed", "memory"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """Registration of real pairs beside Open3D and KISS-Matcher."""

    data: Path
    """Folder of pairs."""
    pairs: tuple[str, ...] = ()
    """Only pairs whose names contain one of these."""
    meshes: Path | None = None
    """Folder of meshes: views of two of them must not be aligned."""
    methods: tuple[str, ...] = ()
    """Only methods of others whose names contain one of these."""
    parts: tuple[Part, ...] = ("pair", "solvers", "others", "speed", "memory")
    """What to measure."""
    points: int = 100_000
    """Points of the cloud whose descriptors are timed."""
    large: int = 1_000_000
    """Points of the clouds whose memory is measured."""
    out: Path = ROOT / "benchmarks" / "results"
    """Folder for the results."""


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and the result."""
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def align(pair: Pair, only: tuple[str, ...]) -> Row:
    """All methods on one pair, and right matches at the same keypoints."""
    wanted = {
        name: method
        for name, method in peers.methods().items()
        if not only or any(word in name for word in only)
    }
    spent, found = timed(lambda: peers.ours(pair.source, pair.target))
    T = found.transform.numpy()
    rows = {peers.OURS: _judged(pair, T, spent)}
    rows[peers.OURS] |= {"claimed": found.aligned, "confidence": found.confidence}
    rows[peers.OURS] |= {"overlap": found.overlap, "matches": len(found.matches)}
    rows[peers.OURS] |= {"parts": found.seconds, "inliers": int(found.inliers.sum())}
    spent, plain = timed(lambda: peers.ours(pair.source, pair.target, learnt=False))
    rows[peers.UNTRAINED] = _judged(pair, plain.transform.numpy(), spent)
    rows[peers.UNTRAINED] |= {"claimed": plain.aligned, "confidence": plain.confidence}
    for name, method in wanted.items():
        for k in COARSER:
            voxel = k * found.voxel
            call = _bound(method, pair, voxel)
            spent, T = timed(call)
            rows[f"{name}, {k} voxels"] = _judged(pair, T, spent)
    p, q = (Surface.of(x, found.voxel) for x in (pair.source, pair.target))
    matches = peers.our_matches(p, q)
    if peers.RANSAC in wanted:
        matches["FPFH"] = peers.fpfh_matches(p, q)
    shares = {
        name: right_matches(p.pos, q.pos, rows, pair.truth, found.voxel)
        for name, rows in matches.items()
    }
    return {"set": pair.set, "voxel": found.voxel, "methods": rows, "matches": shares}


def _bound(method: peers.Method, pair: Pair, voxel: float) -> Callable[[], np.ndarray]:
    return lambda: method(pair.source, pair.target, voxel)


def _judged(pair: Pair, T: np.ndarray, spent: float) -> Row:
    degrees, rmse = pair.error(T)
    return {"right": pair.right(T), "degrees": degrees, "rmse": rmse, "seconds": spent}


def different(options: Options) -> Iterator[tuple[str, Pair]]:
    """Pairs of clouds of different shapes, scaled to one size: all views of the objects without
    noise, a room and a street; and views of meshes, all pairs of them."""
    kept: dict[tuple[str, str], Pair] = {}
    for pair in pairs(options.data, options.pairs):
        kind, *rest = pair.name.split("_")
        if pair.set == "objects, noise 0":
            kept[rest[1], rest[2]] = pair
        elif not pair.set.startswith("objects"):
            kept.setdefault((kind, ""), pair)
    for a, b in itertools.combinations(kept, 2):
        if a[0] != b[0]:
            x, y = (p.target / np.linalg.norm(np.ptp(p.target, 0)) for p in (kept[a], kept[b]))
            name = f"{' '.join(a)} / {' '.join(b)}"
            yield "real", Pair(name, "different", x, y, np.eye(4))
    if options.meshes is not None:
        for pair in views.different(views.meshes(options.meshes)):
            yield "meshes", pair


def measure(options: Options) -> Iterator[Row]:
    """All rows, part by part."""
    if "pair" in options.parts:
        for k, pair in enumerate(pairs(options.data, options.pairs)):
            if k == 0:
                align(pair, options.methods)  # libraries are loaded, threads started
            yield {"part": "pair", "name": pair.name, **align(pair, options.methods)}
    if "solvers" in options.parts:
        for pair in pairs(options.data, options.pairs):
            yield {"part": "solvers", "name": pair.name, **solvers.compare(pair)}
    if "others" in options.parts:
        for kind, pair in different(options):
            found = peers.ours(pair.source, pair.target)
            rest = {"kind": kind, "claimed": found.aligned, "confidence": found.confidence}
            rest |= {"inliers": int(found.inliers.sum()), "matches": len(found.matches)}
            rest |= {"overlap": found.overlap, "note": found.note}
            yield {"part": "others", "name": pair.name, **rest}
    if "speed" in options.parts and peers.RANSAC in peers.methods():
        yield {"part": "speed", "name": f"{options.points}", **speed(options.points)}
    if "memory" in options.parts:
        for call in peak.CALLS:
            name = f"{call}, {options.large:,} points"
            yield {"part": "memory", "name": name, "peak": peak.of(call, options.large)}


def speed(points: int) -> Row:
    """Descriptors of every point about normals, against FPFH over all neighbors."""
    some = shapes.statue(points)
    made = peers.cloud(some.pos.double().numpy())
    import open3d

    made.normals = open3d.utility.Vector3dVector(some.normal.double().numpy())
    veckm.describe(some.pos[:1000], radius=_RADIUS, axis=some.normal[:1000])
    ours = [
        timed(lambda: veckm.describe(some.pos, radius=_RADIUS, axis=some.normal))[0]
        for _ in range(3)
    ]
    theirs = [timed(lambda: peers.fpfh(made, _RADIUS, None))[0]]
    return {"points": points, "radius": _RADIUS, "veckm": ours, "fpfh": theirs}


def main(options: Options) -> int:
    """Measure, save after every row, print."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"register-{time.strftime('%Y%m%d-%H%M%S')}.json"
    results: dict[str, Any] = {"meta": metadata(), "rows": []}
    for row in measure(options):
        results["rows"].append(row)
        path.write_text(json.dumps(results, indent=1) + "\n")
        if row["part"] == "pair":
            told = ", ".join(
                f"{name} {'right' if m['right'] else 'WRONG'} {seconds(m['seconds'])}"
                for name, m in row["methods"].items()
            )
        else:
            told = json.dumps({k: v for k, v in row.items() if k not in ("part", "name")})
        log(f"{row['part']} {row['name']}: {told}")
    print(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
