"""How right normals are: any methods, on the same clouds, by the protocol of PCPNet.

Of every cloud the RMSE over its evaluated points, of every set the mean over its clouds, and the
mean over the six sets. What is done is saved after each cloud, so that a run that was stopped goes
on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from torch import Tensor

from veckm.data.solids import Solid
from veckm.data.meshes import Mesh
from veckm.data.pcpnet import PCPNet, read_shape
from veckm.data.protocol import (
    SETS,
    LabeledCloud,
    Surface,
    angle_error,
    make_cloud,
    mean_over_sets,
    rmse,
)
from veckm.data.random_solids import random_surface
from veckm.tasks.normals.classical import jet_normals, pca_normals
from veckm.tasks.normals.estimate import estimate
from veckm.tasks.normals.network import NormalNet

#: From a cloud to unit normals (M, 3) at its evaluated points, cloud.subset; signs do not count.
Answers = Callable[[LabeledCloud], Tensor]

OURS, FREE = "veckm", "veckm, no training"
#: Neighbors of PCA and jets in the published tables.
KS = (18, 122, 450)
#: Procedural surfaces from this seed on: training has those below.
FIRST_SEED = 10_000
#: Of a shape that is given as points, the share that a set of uneven density leaves.
_UNEVEN = 0.4


@dataclass(frozen=True)
class Score:
    """The RMSE of one method on one cloud, in degrees."""

    method: str
    cloud: str
    set: str
    rmse: float


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
        """Name and set of the clouds that all methods have answered for: the table is of these."""
        answered = [
            {(row.cloud, row.set): None for row in self.rows if row.method == method}
            for method in self.methods
        ]
        return [key for key in answered[0] if all(key in a for a in answered)] if answered else []

    def table(self) -> dict[str, dict[str, float]]:
        """Of every method the mean of each set, and under ``"mean"`` the mean over the sets."""
        common = set(self.clouds)
        if not common:
            raise ValueError("there is no cloud that all methods have answered for")
        found: dict[str, dict[str, list[float]]] = {name: {} for name in self.methods}
        for row in self.rows:
            if (row.cloud, row.set) in common:
                found[row.method].setdefault(row.set, []).append(row.rmse)
        return _with_best({name: mean_over_sets(scores) for name, scores in found.items()})

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


def _with_best(table: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
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
            best = {key: [min(table[member][key] for member in members)] for key in sets}
            out[best_of(family)] = mean_over_sets(best)
    return out


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


def score(methods: Mapping[str, Answers], cloud: LabeledCloud) -> list[Score]:
    """What every method makes of one cloud."""
    truth = cloud.normal[cloud.subset]
    out = []
    for name, answers in methods.items():
        normal = answers(cloud)
        if normal.shape != truth.shape:
            raise ValueError(
                f"{name} answered with shape {tuple(normal.shape)} for the {len(truth)} evaluated "
                f"points of {cloud.name} ({cloud.set}); a method answers at cloud.subset, (M, 3)"
            )
        out.append(Score(name, cloud.name, cloud.set, rmse(angle_error(normal, truth))))
    return out


def evaluate(
    methods: Mapping[str, Answers],
    clouds: Iterable[LabeledCloud],
    save: str | Path | None = None,
    about: Mapping[str, object] | None = None,
) -> Scores:
    """The scores of all methods on all clouds.

    Args:
        methods: what answers, by the name of its row.
        clouds: each with a name and a set that no other has.
        save: a file of JSON lines that is added to after every cloud. What it has already is not
            computed again.
        about: all that the scores depend on beside the names, such as the number of points and the
            weights. A file that was saved about something else is refused.
    """
    path = None if save is None else Path(save)
    said = json.loads(json.dumps(about or {}))
    known = {} if path is None else _read(path, said)
    rows: list[Score] = []
    seen: set[tuple[str, str]] = set()
    for cloud in clouds:
        if (cloud.name, cloud.set) in seen:
            raise ValueError(f"two clouds of the set {cloud.set} are called {cloud.name!r}")
        seen.add((cloud.name, cloud.set))
        todo = {m: f for m, f in methods.items() if (m, cloud.name, cloud.set) not in known}
        fresh = score(todo, cloud)
        if path is not None and fresh:
            _append(path, [asdict(row) for row in fresh])
        known.update({(row.method, row.cloud, row.set): row for row in fresh})
        rows += [known[method, cloud.name, cloud.set] for method in methods]
    return Scores(rows)


def _read(path: Path, about: dict[str, object]) -> dict[tuple[str, str, str], Score]:
    """The scores of a file; a new one is begun, and half a line of a killed run is cut off."""
    text = path.read_text() if path.is_file() else ""
    whole = text[: text.rfind("\n") + 1]
    if not whole:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"about": about}) + "\n")
        return {}
    if whole != text:
        path.write_text(whole)
    try:
        first, *lines = (json.loads(line) for line in whole.splitlines())
        then = first["about"]
        scores = [Score(**line) for line in lines]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: is not a file of scores: {error}") from error
    if then != about:
        keys = {*then, *about}
        other = ", ".join(sorted(key for key in keys if then.get(key) != about.get(key)))
        raise ValueError(
            f"{path}: has scores of another run, with other {other}; name another file or delete it"
        )
    return {(row.method, row.cloud, row.set): row for row in scores}


def _append(path: Path, lines: Sequence[object]) -> None:
    with path.open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


def ours(net: NormalNet | None = None) -> dict[str, Answers]:
    """The network, with the shipped weights unless there is another, and the training-free one."""

    def network(cloud: LabeledCloud) -> Tensor:
        return estimate(cloud.pos, net=net).normal[cloud.subset]

    def moments(cloud: LabeledCloud) -> Tensor:
        return estimate(cloud.pos, method="moments").normal[cloud.subset]

    return {OURS: network, FREE: moments}


def classical(ks: Sequence[int] = KS) -> dict[str, Answers]:
    """PCA and jets of the second order, each with every number of neighbors."""

    def answer(normals: Callable[..., Tensor], k: int, cloud: LabeledCloud) -> Tensor:
        return normals(cloud.pos, k, at=cloud.subset)

    families: dict[str, Callable[..., Tensor]] = {"PCA": pca_normals, "Jet": jet_normals}
    return {f"{name}, k = {k}": partial(answer, f, k) for name, f in families.items() for k in ks}


def fingerprint(net: NormalNet) -> str:
    """A short text that is the same for the same weights only."""
    digest = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def in_all_sets(
    sources: Mapping[str, Mesh | Surface], n: int = 100_000, evaluated: int = 5_000
) -> Iterator[LabeledCloud]:
    """Every source in the six sets. A cloud depends on its name, not on what else there is."""
    for name, source in sources.items():
        for key in SETS:
            yield make_cloud(source, key, _seed(name), n, evaluated, name)


def procedural(count: int) -> dict[str, Solid]:
    """Surfaces that training does not see."""
    seeds = range(FIRST_SEED, FIRST_SEED + count)
    return {f"surface {seed}": random_surface(seed) for seed in seeds}


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
        shape = read_shape(path)
        few = max(1, int(_UNEVEN * len(shape.pos)))
        for key in SETS:
            n = few if key in ("stripe", "gradient") else len(shape.pos)
            yield make_cloud(shape, key, _seed(path.stem), n, evaluated, path.stem)


def _seed(name: str) -> int:
    return FIRST_SEED + zlib.crc32(name.encode())
