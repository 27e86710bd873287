"""What can be asked of the experiments on normals: the options, and the rows of Table 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.table1.baselines import DGCNN, KPConv, PointNet
from experiments.table1.paper import DenseNormalNet, LocalEncoder, paper_network

RowName = Literal[
    "kpconv-16", "kpconv-32", "kpconv-64", "dgcnn-32", "dgcnn-64", "dgcnn-128",
    "pointnet-300", "pointnet-500", "pointnet-700", "veckm",
]  # fmt: skip

#: Table 1 as printed, in degrees: none, low, med, high, stripe, gradient, average.
PAPER: dict[str, tuple[float, ...]] = {
    "kpconv-16": (22.68, 23.09, 25.21, 29.05, 25.61, 34.40, 26.67),
    "kpconv-32": (22.74, 22.21, 24.08, 28.25, 24.94, 32.24, 25.74),
    "kpconv-64": (22.09, 22.12, 23.90, 28.45, 24.05, 28.60, 24.86),
    "dgcnn-32": (24.08, 24.04, 25.19, 28.24, 27.55, 27.12, 26.03),
    "dgcnn-64": (23.21, 25.34, 25.66, 26.01, 28.20, 28.86, 26.21),
    "dgcnn-128": (18.46, 18.71, 20.38, 25.62, 21.29, 23.01, 21.24),
    "pointnet-300": (14.98, 16.30, 20.19, 26.83, 19.00, 23.68, 20.17),
    "pointnet-500": (16.10, 16.54, 21.38, 26.93, 18.89, 26.06, 20.99),
    "pointnet-700": (15.59, 16.25, 20.99, 26.21, 17.87, 24.66, 20.27),
    "veckm": (13.59, 13.99, 18.04, 22.21, 17.20, 18.98, 17.34),
}


@dataclass(frozen=True)
class Options:
    """Table 1, the runtime figure and the layers ablation of the VecKM paper."""

    part: Literal["table", "runtime", "layers"] = "table"
    """What to run."""
    quick: bool = False
    """A small run of the same, to see that it works."""
    meshes: Path | None = None
    """Folder with train/ and val/, or with meshes of which every third is tested on. Procedural
    shapes without it."""
    rows: tuple[RowName, ...] = ("kpconv-64", "dgcnn-128", "pointnet-300", "veckm")
    """Rows of the table: the encoder, and its kernel points or neighbors."""
    every_row: bool = False
    """All ten rows."""
    points: int = 100_000
    """Points of a cloud."""
    evaluated: int = 1_000
    """Points of a test cloud that count; PCPNet has 5,000."""
    shapes: int = 16
    """Shapes to train on, each with four levels of noise; PCPNet has 8."""
    tests: int = 4
    """Shapes to test on, each in the six sets; PCPNet has 19."""
    visits: int = 250
    """How often training turns a cloud at random and learns from some of its points."""
    minutes: float | None = None
    """Minutes of processor time for the training of each row, instead of a number of visits."""
    seeds: int = 1
    """Trainings of each row, from different weights."""
    graph: int = 2_000
    """Points of a graph of DGCNN; the authors take 10,000."""
    rate: float = 1e-3
    """Learning rate of Adam, as in the paper; it falls to zero along a cosine."""
    layers: tuple[int, ...] = (1, 2, 3, 4)
    """Numbers of layers in the ablation."""
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    """Numbers of points to time, with 500 neighbors."""
    neighbors: tuple[int, ...] = (32, 128, 500, 1_000)
    """Numbers of neighbors to time, with the second of the sizes."""
    budget: float = 60.0
    """Seconds: calls that would take longer are not timed."""
    out: Path = Path(__file__).resolve().parents[1] / "results"
    """Folder for results and checkpoints."""


#: What --quick makes of the options.
QUICK: dict[str, Any] = {
    "points": 2_000, "evaluated": 100, "shapes": 2, "tests": 1, "visits": 3, "graph": 500,
    "sizes": (200, 600), "neighbors": (32, 128), "budget": 3.0,
}  # fmt: skip


#: Points of a visit: the grid that gives their encodings costs as much for fewer.
_VECKM = 8_000
_LAYERS = 3  # of the paper's network


@dataclass(frozen=True)
class Row:
    """A network, and how many points it learns from at a time."""

    name: str
    title: str
    make: Callable[[], DenseNormalNet]
    points: int  # points of a visit: fewer where each costs more, so that visits take about as long
    batch: int  # points of a step of Adam; the paper has 200
    whole: bool = False  # a batch is a graph, and cannot be mixed with others


def row_of(name: str, options: Options) -> Row:
    """The row called ``name``: an encoder and its number."""
    kind, _, number = name.partition("-")
    if kind == "veckm":
        return Row(name, "VecKM", paper_network, _VECKM, 200)

    def net(encoder: LocalEncoder) -> DenseNormalNet:
        return DenseNormalNet(encoder, encoder.dim)

    k = int(number)
    if kind == "kpconv":
        return Row(name, f"KPConv, {k} kernel points", lambda: net(KPConv(k)), 2_000, 200)
    if kind == "pointnet":
        return Row(name, f"PointNet, {k} neighbors", lambda: net(PointNet(k)), 60_000 // k, 50)
    graph = options.graph
    return Row(name, f"DGCNN, {k} neighbors", lambda: net(DGCNN(k, graph)), 2 * graph, graph, True)


def layers_row(layers: int) -> Row:
    """VecKM with a number of layers; that of the table has three, and is not trained twice."""
    name = "veckm" if layers == _LAYERS else f"veckm-layers-{layers}"
    title = f"VecKM, {layers} layer{'s' if layers > 1 else ''}"
    return Row(name, title, lambda: paper_network(layers), _VECKM, 200)


def contenders(k: int) -> dict[str, LocalEncoder]:
    """The encoders of the runtime figure with K neighbors; VecKM has none to count."""
    return {
        "VecKM": paper_network().encoder,
        "VecKM, random features (the paper's)": paper_network(engine="random").encoder,
        "KPConv, 64 kernel points": KPConv(64, k),
        "PointNet": PointNet(k),
        "DGCNN": DGCNN(k),
    }
