"""Time of local encoders against points and neighbors (Fig. 1, right, and the runtime figure)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from experiments.figures.style import COLOR, MARKER, plain
from experiments.table1.baselines import DGCNN, KPConv, PointNet
from veckm.data import shapes
from veckm.encoder import VecKM
from veckm.frequencies import suggest_radius
from veckm.planning import EngineName

TITLE = "Time against points and neighbors (Fig. 1, right, and the runtime figure)"
DIM = 256
#: Neighbors where points vary, and points where neighbors vary.
NEIGHBORS, POINTS = 64, 4000
_SIZES, _QUICK_SIZES = (1000, 3000, 10_000, 30_000, 100_000), (300, 600, 1200)
_NEAR, _QUICK_NEAR = (16, 64, 256, 1024), (16, 64)
#: A method whose next case would take more seconds than this is left out from there on.
_PATIENCE, _QUICK_PATIENCE = 20.0, 1.0
_REPEATS = 3

Run = Callable[[], object]
Prepare = Callable[[Tensor, int], Run]

_LABEL = {"grid": "veckm, grid", "random": "VecKM as in the paper, p = 4096"}
_COLOR = {**COLOR, "PointNet": "#CC79A7", "KPConv": "#56B4E9", "DGCNN": "#000000"}
_MARKER = {**MARKER, "PointNet": "v", "KPConv": "P", "DGCNN": "X"}


@dataclass(frozen=True)
class Row:
    """One method on one cloud: the median of a few calls."""

    method: str
    points: int
    neighbors: int
    seconds: float


@dataclass(frozen=True)
class Times:
    """Against points at one number of neighbors, and against neighbors at one of points."""

    by_points: list[Row]
    by_neighbors: list[Row]
    threads: int


def compute(quick: bool = False) -> Times:
    """Time every method on a statue, in this process and with its threads.

    Args:
        quick: small clouds, and less patience.
    """
    sizes, near = (_QUICK_SIZES, _QUICK_NEAR) if quick else (_SIZES, _NEAR)
    at = _QUICK_SIZES[1] if quick else POINTS
    patience = _QUICK_PATIENCE if quick else _PATIENCE
    with torch.inference_mode():
        by_points = list(_race([(n, NEIGHBORS) for n in sizes], patience))
        by_neighbors = list(_race([(at, k) for k in near], patience))
    return Times(by_points, by_neighbors, torch.get_num_threads())


def _race(cases: list[tuple[int, int]], patience: float) -> Iterator[Row]:
    before: dict[str, float] = {}
    left_out: set[str] = set()
    for points, neighbors in cases:
        pos = shapes.statue(points).pos
        for method, prepare in _METHODS.items():
            if method in left_out:
                continue
            took = _median(prepare(pos, neighbors))
            yield Row(method, points, neighbors, took)
            growth = max(1.0, took / before[method]) if method in before else 4.0
            before[method] = took
            if took * growth * _REPEATS > patience:
                left_out.add(method)


def _median(run: Run) -> float:
    seconds = []
    for _ in range(_REPEATS + 1):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])  # the first pays for what is made once


def _engine(name: EngineName) -> Prepare:
    def prepare(pos: Tensor, neighbors: int) -> Run:
        radius = suggest_radius(pos, neighbors=neighbors, samples=200)
        encoder = VecKM(DIM, radius=radius, engine=name, p=4096 if name == "random" else 1)
        return lambda: encoder(pos, progress=False)

    return prepare


def _pointnet(pos: Tensor, neighbors: int) -> Run:
    network = PointNet(neighbors, (64, 128, DIM)).eval()
    return lambda: network(pos)


def _kpconv(pos: Tensor, neighbors: int) -> Run:
    radius = suggest_radius(pos, neighbors=neighbors, samples=200)
    network = KPConv(k=neighbors, radius=radius, channels=(128, DIM)).eval()
    return lambda: network(pos)


def _dgcnn(pos: Tensor, neighbors: int) -> Run:
    network = DGCNN(k=min(neighbors, len(pos)), dim=DIM).eval()
    return lambda: network(pos)


_METHODS: dict[str, Prepare] = {
    "grid": _engine("grid"),
    "neighbors": _engine("neighbors"),
    "dense": _engine("dense"),
    "random": _engine("random"),
    "PointNet": _pointnet,
    "KPConv": _kpconv,
    "DGCNN": _dgcnn,
}


def draw(times: Times) -> Figure:
    """Two plots, a line a method."""
    figure = Figure(figsize=(10.4, 4.8))
    left, right = figure.subplots(1, 2, sharey=True)
    _lines(left, times.by_points, lambda row: row.points)
    _lines(right, times.by_neighbors, lambda row: row.neighbors)
    left.set(xlabel="points", ylabel="time of one call, s")
    left.set_title(f"K = {times.by_points[0].neighbors} neighbors")
    right.set(xlabel="neighbors within the radius, K")
    right.set_title(f"N = {times.by_neighbors[0].points:,} points")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    figure.suptitle(
        f"Time of local encoders, {DIM} numbers per point (complex in VecKM), "
        f"CPU, threads: {times.threads}",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    return figure


def _lines(axes: Axes, rows: list[Row], of: Callable[[Row], int]) -> None:
    for method in _METHODS:
        mine = [row for row in rows if row.method == method]
        axes.loglog(
            [of(row) for row in mine], [row.seconds for row in mine],
            color=_COLOR[method], marker=_MARKER[method], label=_LABEL.get(method, method),
        )  # fmt: skip
    places = sorted({of(row) for row in rows})
    axes.set_xticks(places, [f"{place:,}" for place in places])
    axes.minorticks_off()
    plain(axes.yaxis)
