"""Real frames of a spinning scanner: error on road and on buildings, expected error, curvature.

The truth is a plane through many points. In a labeled frame these are the points of one label
around the point. Where there are no labels, the surroundings themselves have to be flat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from experiments.evaluation import METHODS, OURS
from scipy.spatial import cKDTree
from torch import Tensor

from benchmarks import tables
from benchmarks.harness import Contender, log, race
from benchmarks.normals_parts import lenssen
from benchmarks.normals_parts.cases import (
    Config,
    Key,
    Row,
    has_open3d,
    installed,
    jakteristics_normals,
    open3d_normals,
    percent,
)
from benchmarks.tables import Claim
from veckm import io
from veckm.tasks.normals import estimate
from veckm.tasks.normals.evaluate import angle_error, rmse
from veckm.tasks.normals.network import NormalNet

NAME = "lidar"
TITLE = "Frames of a spinning scanner"
#: By surface: the label of SemanticKITTI, and the meters around a point that make its plane.
LABELED = {"road": (40, 2.5), "building": (50, 1.5)}
#: Without labels: by surface the range of |z| of the plane's normal.
UNLABELED = {"flat ground": (0.95, 1.0), "flat wall": (0.0, 0.2)}
RADIUS = 1.5  # meters, of these surroundings
#: Meters that the points may be from their plane, root mean square: facades have more than planes.
ROUGH = {"labels": 0.06, "no labels": 0.04}
FEWEST, NARROWEST = 30, 0.02  # points of a plane; its second variance in parts of the first
JAKTERISTICS = "jakteristics, radius 0.15 m"
CURVATURE = 0.02  # one over meters, half of what a road may seem to bend

Call = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Frame:
    """A cloud and the planes at some of its points."""

    name: str
    pos: Tensor  # (N, 3)
    planes: dict[str, tuple[Tensor, Tensor]]  # by surface: rows (M,), normals (M, 3)


def read(path: Path, evaluated: int) -> Frame:
    """A labeled frame (.npz with xyzi and label), or any cloud without labels."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            pos, label = file["xyzi"][:, :3].astype(np.float64), file["label"]
        planes = {}
        for name, (number, radius) in LABELED.items():
            among = np.flatnonzero(label == number)
            rows, normal, rough = planes_at(pos, among, among, radius)
            flat = rough < ROUGH["labels"]
            planes[name] = rows[flat], normal[flat]
    else:
        pos = io.read(path).xyz.astype(np.float64)
        some = np.random.default_rng(0).permutation(len(pos))[: 4 * evaluated]
        rows, normal, rough = planes_at(pos, some, np.arange(len(pos)), RADIUS)
        up = np.abs(normal[:, 2])
        planes = {}
        for name, (low, high) in UNLABELED.items():
            fits = (rough < ROUGH["no labels"]) & (up >= low) & (up <= high)
            planes[name] = rows[fits], normal[fits]
    as_tensors = {k: (torch.from_numpy(a), torch.from_numpy(b)) for k, (a, b) in planes.items()}
    return Frame(path.stem, torch.from_numpy(pos).float(), as_tensors)


def planes_at(
    pos: np.ndarray,  # (N, 3)
    rows: np.ndarray,  # (M,)
    among: np.ndarray,  # (K,)
    radius: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # (m,), (m, 3), (m,)
    """Least-squares planes of the points `among` within the radius of each row, and how far these
    are from it, root mean square; without the rows whose points are few or on a line."""
    tree = cKDTree(pos[among])
    kept, normals, rough = [], [], []
    for row in rows:
        d = pos[among[tree.query_ball_point(pos[row], radius)]]
        if len(d) < FEWEST:
            continue
        d = d - d.mean(0)
        spread, axes = np.linalg.eigh(d.T @ d / len(d))
        if spread[1] > NARROWEST * spread[2]:
            kept.append(row)
            normals.append(axes[:, 0])
            rough.append(max(spread[0], 0.0) ** 0.5)
    return np.array(kept, np.int64), np.array(normals).reshape(-1, 3), np.array(rough)


def calls(config: Config) -> dict[str, Call]:
    """From meters to normals, as users call it."""
    net = config.net
    out: dict[str, Call] = {
        name: lambda pos, method=method: estimate(pos, net=net, method=method).normal  # type: ignore[misc]
        for name, method in METHODS.items()
    }
    if has_open3d():
        out |= {f"Open3D, k = {k}": partial(open3d_normals, k=k) for k in (30, 122)}
        out["Open3D, radius 1 m"] = partial(open3d_normals, radius=1.0)
    if installed("jakteristics"):
        out[JAKTERISTICS] = partial(jakteristics_normals, radius=0.15)
    if config.lenssen is not None:
        out[lenssen.NAME] = lenssen.estimator(config.lenssen)
    return out


def measure(config: Config, known: Collection[Key]) -> Iterator[list[Row]]:
    """All frames, all methods in turns."""
    if not config.frames:
        log("lidar: left out, there are no frames (--frames)")
        return
    methods = config.net, calls(config)
    for path in config.frames[: config.limit]:
        if any(key[0] == path.stem for key in known):
            continue
        log(f"lidar: {path.name}")
        yield list(rows_of(read(path, config.evaluated), *methods, 1 if config.quick else 3))


def rows_of(frame: Frame, net: NormalNet, methods: dict[str, Call], repeats: int) -> Iterator[Row]:
    """Of every method its time and its errors on each surface; of ours what it expects too."""
    few = frame.pos[:2000]
    contenders = [
        Contender(name, partial(call, frame.pos), repeats, partial(call, few), lambda n: n)
        for name, call in methods.items()
    ]
    n = len(frame.pos)
    for name, timed in race(contenders).items():
        yield Row(NAME, frame.name, n, name, "time", {}, timed.seconds, timed.failure)
        if timed.kept is None:
            continue
        more = None
        if name in METHODS:
            more = estimate(frame.pos, net=net, method=METHODS[name], curvature=True)
        for surface, (rows, truth) in frame.planes.items():
            if len(rows):
                values = figures(timed.kept[rows], truth)
                if more is not None:
                    values["expected"] = float(more.error[rows].double().mean())
                    values["bend"] = float(more.mean_curvature[rows].abs().median())
                yield Row(NAME, frame.name, n, name, surface, values)


def figures(normal: Tensor, truth: Tensor) -> dict[str, float]:  # (M, 3), (M, 3)
    """Median, mean and root mean square of the error where there is an answer at all."""
    answered = normal.isfinite().all(1) & (normal.abs().sum(1) > 0)
    values = {"points": float(len(truth)), "answered": float(answered.double().mean())}
    if not bool(answered.any()):
        return values
    error = angle_error(normal[answered], truth[answered])
    middle, mean = float(error.median()), float(error.mean())
    return {**values, "median": middle, "mean": mean, "rmse": rmse(error)}


def claims(rows: Sequence[Row]) -> list[Claim]:
    """On the labeled surfaces, against the best of Open3D's settings in each column."""
    out = []
    for surface in LABELED:
        found = {row.method: row.values for row in rows if row.set == surface}
        rivals = [values for name, values in found.items() if name.startswith("Open3D")]
        mine = found.get(OURS)
        if mine is None or not rivals:
            continue
        for key in ("median", "rmse"):
            best = min(values[key] for values in rivals)
            text = f"{key} error on {surface}, ours / best of Open3D's settings"
            out.append(Claim.at_most(text, mine[key] / best, 1.0))
        off = mine["expected"] / mine["mean"] - 1
        text = f"expected error on {surface}, off the measured mean by"
        out.append(Claim(text, "≤ 30 %", percent(off), abs(off) <= 0.3))
        if surface == "road":
            bend = mine["bend"]
            text = "median |mean curvature| on the road"
            out.append(Claim(text, f"≤ {CURVATURE}/m", f"{bend:.3g}/m", bend <= CURVATURE))
    return out


def markdown(rows: Sequence[Row]) -> str:
    """A table a frame."""
    radii = " and ".join(f"{radius} m on {name}" for name, (_, radius) in LABELED.items())
    out = [
        f"Errors in degrees against planes through the points of one label within {radii}s, in a "
        "labeled frame; in frames without labels against the plane of all points within "
        f"{RADIUS} m. Only planes count from which their {FEWEST} points or more are at most "
        f"{ROUGH['labels'] * 100:.0f} or {ROUGH['no labels'] * 100:.0f} cm away, root mean square. "
        "Expected is the mean of the "
        "expected error, to be compared with the measured mean. Methods with a radius leave points "
        "without an answer; their errors are those of the others.",
        "",
    ]
    for cloud in dict.fromkeys(row.cloud for row in rows):
        out += [_table([row for row in rows if row.cloud == cloud]), ""]
    return "\n".join(out)


def _table(rows: Sequence[Row]) -> str:
    timed = {row.method: row for row in rows if row.set == "time"}
    surfaces = [s for s in dict.fromkeys(row.set for row in rows) if s != "time"]
    found = {(row.method, row.set): row.values for row in rows}
    first = next(iter(timed))
    head = [f"{rows[0].cloud}, {rows[0].n:,} points"]
    for s in surfaces:
        points = found[first, s]["points"]
        head += [f"{s} ({points:,.0f}): median", "RMSE", "mean", "expected", "answered"]
    lines = []
    for name, row in timed.items():
        cells = []
        for s in surfaces:
            values = found.get((name, s), {})
            for key in ("median", "rmse", "mean", "expected"):
                cells.append(f"{values[key]:.2f}" if key in values else "")
            cells.append(percent(values["answered"]) if "answered" in values else "")
        bend = [found.get((name, s), {}).get("bend") for s in surfaces]
        cells.append(" / ".join(f"{b:.3g}" for b in bend if b is not None))
        lines.append([name, *cells, tables.time(row)])
    flat = "/m on " + " / ".join(surfaces)
    return tables.table([*head, f"median mean curvature, {flat}", "time"], lines)
