"""The error of every method in the six sets, on shapes that no weights were trained on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from experiments.evaluation import MEASURES, OURS, best_of, score

from benchmarks import tables
from benchmarks.harness import log
from benchmarks.normals_parts import field
from benchmarks.normals_parts.cases import Config, Key, Row, percent, scores_of
from benchmarks.tables import Claim
from veckm.cli.text import counted
from veckm.data.protocol import SETS, LabeledCloud

NAME = "accuracy"
TITLE = "Error on meshes, by the protocol of PCPNet"
LESS, AIM = 0.15, 0.30
_RIVAL = "PCA, k = 122"
_SHOWN: dict[str, tuple[str, Callable[[float], str]]] = {
    "chamfer": (
        "Chamfer error: RMSE in degrees against the normal of the nearest point of the cloud "
        "without noise, which is what noise leaves to be known:",
        "{:.2f}".format,
    ),
    "below 5": ("Share of the points with an error below 5 degrees:", percent),
    "below 10": ("Share of the points with an error below 10 degrees:", percent),
}


def measure(config: Config, known: Collection[Key]) -> Iterator[list[Row]]:
    """Every cloud of the meshes, all methods on it."""
    yield from scored(NAME, config, config.clouds(), known)


def scored(
    part: str, config: Config, clouds: Iterable[LabeledCloud], known: Collection[Key]
) -> Iterator[list[Row]]:
    """The rows of each cloud that are not known yet."""
    methods = config.methods()
    for k, cloud in enumerate(clouds, 1):
        at = cloud.name, cloud.set, len(cloud.pos)
        todo = {name: run for name, run in methods.items() if (*at, name) not in known}
        log(f"{part} {k}: {cloud.name}, {cloud.set}" + ("" if todo else ", as before"))
        rows = []
        for s in score(todo, cloud):
            rows.append(Row(part, s.cloud, at[2], s.method, s.set, {"rmse": s.rmse, **s.more}))
        yield rows


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Against the best that PCA can do, and against PCA with the usual k in every set."""
    return against_pca(rows, "meshes")


def against_pca(rows: Sequence[Row], where: str) -> list[Claim]:
    """The two targets, on one collection of shapes."""
    table = scores_of(list(rows)).table()
    mine, usual, best = table[OURS], table[_RIVAL], table[best_of("PCA")]
    less = 1 - mine["mean"] / best["mean"]
    sets = [name for name in SETS if name in mine]
    worst = max(sets, key=lambda name: mine[name] / usual[name])
    wall = max(sets, key=lambda name: mine[name] / best[name])
    ratio, other = mine[worst] / usual[worst], mine[wall] / best[wall]
    mean = f"mean RMSE over {len(sets)} sets below PCA with the best k for each, {where}"
    return [
        Claim(mean, f"≥ {LESS * 100:.0f} %", percent(less), less >= LESS, f"≥ {AIM * 100:.0f} %"),
        Claim(
            f"ours / {_RIVAL}, worst set, {where}",
            "< 1x",
            f"{ratio:.3g}x ({worst}); / best k {other:.3g}x ({wall})",
            ratio < 1,
            "/ best k < 1x",
        ),
    ]


def markdown(rows: Sequence[Row]) -> str:
    """The table, what else is known of the same answers, and the field's beside it."""
    return "\n".join([table_of(rows), "", *_more(rows), field.markdown()])


def _more(rows: Sequence[Row]) -> list[str]:
    """Against the best PCA set by set, the Chamfer error, and the shares of good points."""
    known = [measure for measure in MEASURES if all(measure in row.values for row in rows)]
    scores = scores_of(list(rows))
    out = ["RMSE in parts of that of PCA with the best k of each set:", ""]
    table = scores.table()
    best, sets = table[best_of("PCA")], [key for key in SETS if key in table[OURS]]
    names = [name for name in table if not name.startswith(("PCA, k", "Jet, k"))]
    lines = [
        [name, *(f"{table[name][s] / best[s]:.3f}" for s in (*sets, "mean"))] for name in names
    ]
    out += [tables.table(["RMSE / PCA with the best k", *sets, "mean"], lines), ""]
    for measure in known[1:]:
        table = scores.table(measure)
        lines = [[n, *(_SHOWN[measure][1](table[n][s]) for s in (*sets, "mean"))] for n in names]
        out += [_SHOWN[measure][0], "", tables.table([measure, *sets, "mean"], lines), ""]
    return out


def table_of(rows: Sequence[Row]) -> str:
    """How many clouds of what, and the errors of all methods on them."""
    scores = scores_of(list(rows))
    names = {name for name, _ in scores.clouds}
    sizes = sorted({row.n for row in rows})
    points = " or ".join(f"{n:,}" for n in sizes)
    what = "procedural surface" if all(n.startswith("surface ") for n in names) else "shape"
    intro = (
        f"{counted(len(names), what)}, {len(scores.clouds)} clouds of {points} points. RMSE of "
        "each cloud over its evaluated points, mean over the clouds of a set, mean over the sets. "
        "The best k is chosen for every set with the truth in hand, which only a benchmark has:"
    )
    return "\n".join([intro, "", scores.markdown()])
