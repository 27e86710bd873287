"""Mean curvature on surfaces whose curvature is known: ours against jets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from experiments.evaluation import FIRST_SEED, KS, OURS, procedural
from experiments.jets import jet
from torch import Tensor

from benchmarks import tables
from benchmarks.harness import log
from benchmarks.normals_parts.cases import Config, Key, Row, percent
from benchmarks.tables import Claim
from veckm.cli.text import counted
from veckm.data.protocol import LabeledCloud, make_cloud
from veckm.tasks.normals import estimate

NAME = "curvature"
TITLE = "Mean curvature"
SETS = ("none", "low", "med")
#: The surfaces are in the unit ball. Curved: bends at least as much as the ball. Flat: not at all.
CURVED, FLAT = 1.0, 1e-6
_SURFACES, _FEWEST = 12, 20

Bend = Callable[[LabeledCloud], tuple[Tensor, Tensor]]  # (M, 3) and (M, 2), at the subset


def methods(config: Config) -> dict[str, Bend]:
    """Normals, and curvatures that go with their signs."""
    net = config.net

    def mine(cloud: LabeledCloud) -> tuple[Tensor, Tensor]:
        found = estimate(cloud.pos, net=net, curvature=True)
        assert found.curvature is not None
        return found.normal[cloud.subset], found.curvature[cloud.subset]

    def of_jet(k: int) -> Bend:
        return lambda cloud: jet(cloud.pos, k, at=cloud.subset)

    return {OURS: mine, **{f"Jet, k = {k}": of_jet(k) for k in KS}}


def measure(config: Config, known: Collection[Key]) -> Iterator[list[Row]]:
    """Procedural surfaces, clean and with noise."""
    found = methods(config)
    for name, surface in procedural(config.limit or _SURFACES).items():
        for key in SETS:
            if all((name, key, config.points, method) in known for method in found):
                continue
            seed = int(name.split()[-1]) - FIRST_SEED
            cloud = make_cloud(surface, key, seed, config.points, config.evaluated, name)
            log(f"curvature: {name}, {key}")
            yield [
                Row(NAME, name, config.points, method, key, figures(*bend(cloud), cloud))
                for method, bend in found.items()
            ]


def figures(normal: Tensor, curvature: Tensor, cloud: LabeledCloud) -> dict[str, float]:
    """Median relative error of H where it is curved, median |H| where it is flat."""
    assert cloud.curvature is not None
    truth = cloud.curvature[cloud.subset].double()
    # A normal to the other side has the opposite curvature: both are right.
    side = (normal.double() * cloud.normal[cloud.subset].double()).sum(-1).sign()
    H, exact = curvature.double().mean(-1) * side, truth.mean(-1)
    curved = exact.isfinite() & (exact.abs() >= CURVED)
    flat = truth.abs().amax(-1) < FLAT
    out = {}
    if int(curved.sum()) >= _FEWEST:
        out["relative"] = float(((H - exact).abs() / exact.abs())[curved].median())
    if int(flat.sum()) >= _FEWEST:
        out["flat"] = float(H[flat].abs().median())
    return out


def claims(rows: Sequence[Row]) -> list[Claim]:  # noqa: ARG001 - every part has them
    """Nothing was promised here; the table shows how it is."""
    return []


def mean_of(rows: Sequence[Row], method: str, key: str, name: str) -> float | None:
    """Over the surfaces that have such points."""
    values = [
        row.values[name]
        for row in rows
        if (row.method, row.set) == (method, key) and name in row.values
    ]
    return float(torch.tensor(values).double().mean()) if values else None


def markdown(rows: Sequence[Row]) -> str:
    """Errors where it is curved, then what is said of planes."""
    names = list(dict.fromkeys(row.method for row in rows))
    sets = [key for key in SETS if any(row.set == key for row in rows)]
    lines = []
    for name in names:
        curved = [mean_of(rows, name, key, "relative") for key in sets]
        flat = [mean_of(rows, name, key, "flat") for key in sets]
        cells = ["-" if v is None else percent(v) for v in curved]
        lines.append([name, *cells, *("-" if v is None else f"{v:.3g}" for v in flat)])
    header = ["", *(f"{key}, curved" for key in sets), *(f"{key}, flat" for key in sets)]
    surfaces = counted(len({row.cloud for row in rows}), "procedural surface")
    intro = (
        f"{surfaces} in the unit ball, {rows[0].n:,} points each, clean and "
        "with noise. Curved: median relative error of the mean curvature where the surface bends "
        "at least as much as the ball. Flat: median absolute mean curvature on planes, where 0 is "
        "right. Mean over the surfaces:"
    )
    return "\n".join([intro, "", tables.table(header, lines), ""])
