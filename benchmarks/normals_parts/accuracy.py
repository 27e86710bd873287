"""The error of every method in the six sets, on shapes that no weights were trained on."""

from __future__ import annotations

from collections import Counter
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
MEAN, AIM = 0.77, 0.70
NOISY = {"med": (0.90, 0.85), "high": (0.94, 0.89)}
#: What the network that read no encodings had on the validation meshes, in the page of 2026-11-16.
BEFORE = {
    "none": 4.54 / 7.74,
    "low": 9.12 / 11.56,
    "med": 18.04 / 19.24,
    "high": 25.55 / 26.20,
    "stripe": 4.61 / 7.48,
    "gradient": 4.49 / 7.70,
}
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
    """Against the best that PCA can do: the mean, both noisy sets, and each set against before."""
    rows, _ = complete(rows)
    ratio, out = _ratios(rows), against_pca(rows, "meshes")
    for key, (least, aim) in NOISY.items():
        if key in ratio:
            out.append(Claim.at_most(f"RMSE / {best_of('PCA')}, {key}", ratio[key], least, aim))
    worse = [key for key in ratio if key in BEFORE and ratio[key] > BEFORE[key]]
    text = f"sets with a larger RMSE / {best_of('PCA')} than the last version's"
    said = ", ".join(f"{key} {ratio[key]:.2f} > {BEFORE[key]:.2f}" for key in worse)
    return [*out, Claim(text, "none", said or "none", not worse)]


def _ratios(rows: Sequence[Row]) -> dict[str, float]:
    """RMSE of ours in parts of that of PCA with the best k, by set and of the mean."""
    table = scores_of(list(rows)).table()
    mine, best = table[OURS], table[best_of("PCA")]
    return {key: mine[key] / best[key] for key in mine}


def against_pca(rows: Sequence[Row], where: str) -> list[Claim]:
    """The mean over the sets, and every set against PCA with the usual k, on one collection."""
    table, ratio = scores_of(list(rows)).table(), _ratios(rows)
    mine, usual = table[OURS], table[_RIVAL]
    sets = [name for name in SETS if name in mine]
    worst = max(sets, key=lambda name: mine[name] / usual[name])
    wall = max(sets, key=lambda name: ratio[name])
    mean = f"RMSE / {best_of('PCA')}, mean over {len(sets)} sets, {where}"
    return [
        Claim.at_most(mean, ratio["mean"], MEAN, AIM),
        Claim(
            f"ours / {_RIVAL}, worst set, {where}",
            "< 1x",
            f"{mine[worst] / usual[worst]:.3g}x ({worst}); / best k {ratio[wall]:.3g}x ({wall})",
            mine[worst] < usual[worst],
            "/ best k < 1x",
        ),
    ]


def markdown(rows: Sequence[Row]) -> str:
    """The table, what else is known of the same answers, and the field's beside it.

    A method that was not run on all clouds has a table of its own, with the others on those.
    """
    whole, others = complete(rows)
    out = [table_of(whole), "", *_more(whole)]
    for name in others:
        both = [row for row in rows if row.method == name or row in whole]
        out += [f"On the clouds that {name} was run on:", "", scores_of(both).markdown(), ""]
    return "\n".join([*out, field.markdown()])


def complete(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows of the methods that were run on as many clouds as ours, and the other methods."""
    counts = Counter(row.method for row in rows)
    others = [name for name, count in counts.items() if count < counts[OURS]]
    return [row for row in rows if row.method not in others], others


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
