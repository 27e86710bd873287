"""From results to a page: claims first, then each part's table and plot."""

from __future__ import annotations

from types import ModuleType

from benchmarks import tables
from benchmarks.harness import Results, Row, seconds
from benchmarks.parts import accuracy, batches, counts, gradients, headline, matrix, plans, scaling

#: In the order in which they are measured and shown.
PARTS: dict[str, ModuleType] = {
    part.NAME: part
    for part in (headline, plans, batches, counts, gradients, accuracy, scaling, matrix)
}
_PLOT = {
    "headline": ("speed", "Time of each engine against the number of points"),
    "accuracy": ("accuracy", "Error against time of the engines"),
    "scaling": ("memory", "Peak memory against the number of points"),
    "batches": ("batches", "Time of a batch with each engine"),
}


def page(results: Results, plots: list[str], images: str = "_static") -> str:
    """The whole report as Markdown, to be included below a heading of the second level."""
    out = [where(results), ""]
    if results.options.get("quick"):
        out += ["A quick run: fewer points and cases than the targets are about.", ""]
    out += [
        tables.claims(c for part in _measured(results) for c in part.claims(_rows(results, part)))
    ]
    for part in _measured(results):
        out += ["", f"### {part.TITLE}", "", part.markdown(_rows(results, part))]
        name, text = _PLOT.get(part.NAME, ("", ""))
        if name in plots:
            out += [f"![{text}]({images}/encode_{name}.png)", ""]
    return "\n".join(out).rstrip() + "\n"


def short(results: Results) -> str:
    """The table for the README: the headline case and the batch."""
    rows = [r for r in results.of("headline") if r.cloud == "statue"]
    betas = sorted({r.beta for r in rows})
    by = {(r.method, r.beta): r for r in rows}
    n = rows[0].n if rows else 0
    header = [f"N = {n:,}, D = 256, alpha = 60"]
    for beta in betas:
        header += [f"beta = {beta:g}", "error"]
    names = {
        "random": "`random`, p = 4096 (the paper)",
        "neighbors": "`neighbors`",
        "grid": "`grid`",
        "floor": "floor: cos and sin of N x D, written",
    }
    lines = []
    for method, name in names.items():
        found = [by.get((method, beta)) for beta in betas]
        if any(found):
            cells = [cell for row in found for cell in (tables.brief(row), tables.error(row))]
            lines.append([name, *cells])
    out = [tables.table(header, lines)] if rows else []
    pair = {r.method: r for r in results.of("batches")}
    if "paper" in pair and "auto" in pair:
        ours, paper = pair["auto"].median, pair["paper"].median
        out += ["", f"32 clouds of 1,024 points, beta = 6: {seconds(ours)} per batch at "
                f"{tables.error(pair['auto'])} error; the paper's exact dense product takes "
                f"{seconds(paper)}."]  # fmt: skip
    return "\n".join(out) + "\n"


def _measured(results: Results) -> list[ModuleType]:
    return [part for name, part in PARTS.items() if results.of(name)]


def _rows(results: Results, part: ModuleType) -> list[Row]:
    return results.of(part.NAME)


def where(results: Results) -> str:
    """When, at which commit, on what and with what it was measured."""
    m = results.meta
    return (
        f"Measured on {m['date']} at commit {m['commit']}: {m['cpu']}, {m['cores']} cores, "
        f"{m['threads']} threads, torch {m['torch']}, Python {m['python']}, veckm {m['veckm']}."
    )
