"""veckm evaluate normals: the error of the normals against the truth, beside PCA and jets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from veckm import __version__
from veckm.cli.text import counted
from veckm.cli.verb import OutputFile, Verb, check_output
from veckm.data.protocol import LabeledCloud, load_meshes
from veckm.data.sampling import check_count
from veckm.tasks.normals import load
from veckm.tasks.normals.estimate import shipped
from veckm.tasks.normals.evaluate import (
    OURS,
    Scores,
    best_of,
    classical,
    evaluate,
    fingerprint,
    in_all_sets,
    ours,
    pcpnet_clouds,
    procedural,
)

#: Procedural surfaces where there is no folder: a few minutes of work.
_SURFACES = 4

_Folder = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: none)")]
_Weights = Annotated[
    Path | None, arg(metavar="FILE", help_behavior_hint="(default: those of the package)")
]
_Limit = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: all)")]


@dataclass(frozen=True)
class EvaluateNormals(Verb):
    """Measure the normals against the truth by the protocol of PCPNet, with PCA and jets beside.

    Six sets of the same shapes: clean, three levels of noise, two of uneven density. Without a
    folder the shapes are procedural surfaces that training has not seen.
    """

    meshes: _Folder = None
    """Folder with .ply, .off, .obj or .stl meshes."""
    pcpnet: _Folder = None
    """Folder with the PCPNet release, or with .npz files of xyz and normal. They have their own
    number of points."""
    weights: _Weights = None
    """Weights (.safetensors), with their settings (.json) beside them."""
    points: int = 100_000
    """Points of a cloud, of which 5,000 are evaluated."""
    limit: _Limit = None
    """Take the first K shapes only."""
    output: OutputFile = None
    """Scores of every cloud, as .jsonl, saved as they come. A run that was stopped goes on."""

    def run(self) -> None:
        """Check, measure, print the table."""
        if self.meshes is not None and self.pcpnet is not None:
            raise ValueError("--meshes and --pcpnet are two benchmarks: give one of them")
        check_count(self.points)
        if self.limit is not None:
            check_count(self.limit)
        if self.output is not None:
            check_output(self.output, None, "scores", (".jsonl",))
        net = shipped() if self.weights is None else load(self.weights)
        about = {
            "veckm": __version__,
            "shapes": self._source(),
            "points": None if self.pcpnet is not None else self.points,
            "weights": fingerprint(net),
        }
        self.title(f"evaluate normals: {self._source()}")
        scores = evaluate(
            {**ours(net), **classical()}, self._noted(self._clouds()), self.output, about
        )
        self.report(**{**about, "clouds": len(scores.clouds), "rows": scores.table()})
        self.show("")
        if not self.common.json:
            print(scores.markdown(), "", _verdict(scores), sep="\n")

    def _source(self) -> str:
        folder = self.meshes or self.pcpnet
        return "procedural surfaces" if folder is None else str(folder)

    def _clouds(self) -> Iterable[LabeledCloud]:
        if self.pcpnet is not None:
            return pcpnet_clouds(self.pcpnet, self.limit)
        if self.meshes is not None:
            found = load_meshes(self.meshes)
            return in_all_sets(dict(islice(found.items(), self.limit)), self.points)
        return in_all_sets(procedural(self.limit or _SURFACES), self.points)

    def _noted(self, clouds: Iterable[LabeledCloud]) -> Iterator[LabeledCloud]:
        """The same clouds, each named before the work on it begins."""
        for number, cloud in enumerate(clouds, 1):
            size = counted(len(cloud.pos), "point")
            self.show(f"cloud {number}: {cloud.name}, {cloud.set}, {size}")
            yield cloud


def _verdict(scores: Scores) -> str:
    """Ours against the best that PCA can do, in one line."""
    table = scores.table()
    share = table[OURS]["mean"] / table[best_of("PCA")]["mean"] - 1
    side = "below" if share < 0 else "above"
    return (
        f"{counted(len(scores.clouds), 'cloud')}. {OURS} is {abs(share) * 100:.1f} % {side} PCA "
        "with the best k for each set, which a user would not know."
    )
