"""Tables of `features.py`, `together.py` and `view.py`, from their results alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import seconds
from benchmarks.tables import Claim, claims, table

FORESTS = ("ours", "theirs", "both")
PGEOF = ("pgeof, scipy's search", "pgeof, its own search")
METHODS = ("veckm", *PGEOF, "jakteristics")
#: Neighbors from which on ours are to be faster; how much slower they may be below.
MANY, SLOWER = 300, 1.5
#: Targets of the viewer: seconds to the first picture, bytes of the process, seconds of a slider.
FIRST, MEMORY, SLIDER = 15.0, 2 << 30, 2.0
#: Targets of four processes at once, and of the defaults of `veckm normals`.
TOGETHER, DEFAULTS = 2.5, 2.0


def about(meta: dict[str, Any]) -> str:
    """When, of what, and where."""
    return f"{meta['date'][:10]}, commit {meta['commit']}, {meta['cpu']}, {meta['cores']} cores."


def features_page(runs: Sequence[dict[str, Any]]) -> str:
    """Times beside pgeof and jakteristics, and forests; of several runs the last of each cloud."""
    times = {(row["cloud"], row["neighbors"]): row for run in runs for row in run["times"]}
    forests = {row["cloud"]: row for run in runs for row in run["forests"]}
    out = []
    if times:
        out.append(about([run for run in runs if run["times"]][-1]["meta"]))
        out += [claims(_feature_claims(list(times.values()))), _feature_times(list(times.values()))]
    if forests:
        out.append(f"Forests: {about([run for run in runs if run['forests']][-1]['meta'])}")
        out.append(_forests(list(forests.values())))
    return "\n\n".join(out) + "\n"


def _feature_claims(rows: list[dict[str, Any]]) -> list[Claim]:
    few = [row["veckm"] / min(row[m] for m in PGEOF) for row in rows if row["neighbors"] < MANY]
    many = [row["veckm"] / min(row[m] for m in PGEOF) for row in rows if row["neighbors"] >= MANY]
    return [
        Claim.at_most(
            f"veckm / the faster of pgeof's two, below {MANY} neighbors, worst case",
            max(few),
            SLOWER,
        ),
        Claim.at_most(
            f"veckm / the faster of pgeof's two, {MANY} or more, worst case", max(many), 1.0
        ),
    ]


def _feature_times(rows: list[dict[str, Any]]) -> str:
    lines = [
        [
            row["cloud"],
            f"{row['points']:,}",
            str(row["neighbors"]),
            *(f"{seconds(row[m])} ({row[m] / row['veckm']:.2g}x)" for m in METHODS),
        ]
        for row in rows
    ]
    return table(["cloud", "points", "neighbors", *METHODS], lines)


def _forests(rows: list[dict[str, Any]]) -> str:
    cell = "{accuracy:.1%}, F1 {f1:.3f}"
    some = [row for row in rows if any(row[k]["f1"] for k in FORESTS)]
    lines = [
        [row["cloud"], f"{row['ground']:.0%}", *(cell.format(**row[k]) for k in FORESTS)]
        if row in some
        else [row["cloud"], f"{row['ground']:.0%}", "no ground in the half for the test", "", ""]
        for row in rows
    ]
    mean = [
        f"{statistics.mean(row[k]['accuracy'] for row in some):.1%}, "
        f"F1 {statistics.mean(row[k]['f1'] for row in some):.3f}"
        for k in FORESTS
    ]
    return table(["cloud", "ground", *FORESTS], [*lines, ["mean", "", *mean]])


def together_page(run: dict[str, Any]) -> str:
    """Four processes at once, and the defaults of `veckm normals`."""
    alone = f"four `veckm normals` at once / one alone on one thread ({{}}), {len(run['alone'])}"
    found = [Claim.at_most(f"{alone.format('two threads each')} rounds", run["ratio"], TOGETHER)]
    if "defaults" in run:
        text = f"`veckm normals` with its defaults / the normals alone, {run['defaults']['cloud']}"
        found.append(Claim.at_most(text, run["defaults"]["ratio"], DEFAULTS))
    control = f"Four at once on one thread each took {run['control']:.2f} times one alone."
    return f"{about(run['meta'])}\n\n{claims(found)}\n\n{control}\n"


def view_page(run: dict[str, Any]) -> str:
    """The first picture and the sliders of the viewer."""
    first, options = run["first"], run["options"]
    n = f"{options['scan']:,} points"
    many = f"{options['points']:,} points, D = {options['dim']}"
    lines = [
        _row(f"first picture, {n}", first["shown"], FIRST, "s"),
        _row(f"memory of the process, {n}", first["memory"] / 2**30, MEMORY / 2**30, "GiB"),
        *(
            _row(f"{name}, {many}", statistics.median(times), SLIDER, "s")
            for name, times in run["sliders"].items()
        ),
    ]
    made = table(["what", "measured", "target", ""], lines)
    return f"{about(run['meta'])} The browser had no graphics card.\n\n{made}\n"


def _row(what: str, value: float, target: float, unit: str) -> list[str]:
    met = "PASS" if value <= target else "**MISS**"
    return [what, f"{value:.2f} {unit}", f"{target:g} {unit}", met]
