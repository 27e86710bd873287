"""The program behind Tables 2, 3 and 4: options, rows and times, one page."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from tyro.conf import Positional, arg

from experiments.common import header, save, where
from experiments.networks import pages
from experiments.networks.cases import Case
from experiments.networks.pages import Rows
from experiments.networks.runs import Sets, run
from experiments.networks.times import race, race_steps
from veckm.data.samples import Samples, collate, take
from veckm.memory import keep_freed_memory
from veckm.training import Recipe

Folder = Positional[Annotated[Path, arg(metavar="FOLDER")]]
Count = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: all)")]


@dataclass(frozen=True)
class Options:
    """What the tables have in common."""

    data: Folder
    """Folder with the data, in one of the layouts that veckm.data reads."""
    part: Literal["all", "accuracy", "times", "steps"] = "all"
    """What to run; steps are times of training steps, which are no part of all."""
    budget: Literal["own", "page"] = "own"
    """With page what the documentation shows: its rows (of those named by --rows), epochs, points,
    seeds and classes, whatever is given here; else that of the options below."""
    threads: int = torch.get_num_threads()
    """Threads of torch."""
    rows: tuple[str, ...] = ()
    """Networks, such as pointnet or veckm-pointnet; all of the table by default."""
    epochs: int = 30
    """Passes over the training set; the paper has 250."""
    batch: int = 32
    """Clouds of a step."""
    rate: float = 1e-3
    """First learning rate of Adam."""
    points: int = 1024
    """Points of a cloud."""
    limit: Count = None
    """Train on so many objects, chosen by seed 0; the same for all rows."""
    test_limit: Count = None
    """Test on so many."""
    seeds: tuple[int, ...] = (0,)
    """Trainings of each network."""
    bfloat16: bool = False
    """Train with products in bfloat16, where the processor has instructions for it."""
    turns: int = 5
    """Forward passes of each network that are timed."""
    out: Path = Path(__file__).resolve().parents[1] / "results"
    """Folder for results and checkpoints."""


@dataclass(frozen=True)
class Table:
    """One of the paper's tables: its rows, its data and a description for the page."""

    number: int
    cases: tuple[Case, ...]
    sets: Callable[[Any], Sets]
    metrics: tuple[str, ...]
    about: str  # a sentence or two for the page
    times: Callable[[Sequence[Case], Any], Rows] | None = None  # other than of one test batch
    budget: tuple[dict[str, Any], ...] = ()  # what the page shows, as options to change


def main(table: Table, options: Options) -> int:
    """Run the rows and the times, each saved when it is done; print the page."""
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    try:
        cases = _chosen(table, options.rows)
        budgets = table.budget if options.budget == "page" else ({},)
        parts = [replace(options, **{"rows": options.rows, **budget}) for budget in budgets]
        if options.part in ("all", "times"):
            timed = (table.times or _timed(table))(cases, parts[0])
            keep(table, options, "times", timed, SAME_TIME)
        if options.part == "steps":
            sets, recipe = table.sets(parts[0]), recipe_of(parts[0], 0)
            timed = race_steps(cases, sets, recipe, options.turns)
            keep(table, options, "steps", timed, SAME_STEP)
        for part in parts if options.part in ("all", "accuracy") else ():
            wanted = [case for case in _chosen(table, part.rows) if case in cases]
            if wanted:
                _accuracy(table, part, wanted)
    except (OSError, ValueError) as error:
        print(f"table{table.number}: error: {error}", file=sys.stderr)
        return 2
    print(page(table, _known(table, options)))
    return 0


def _accuracy(table: Table, options: Options, cases: Sequence[Case]) -> None:
    sets = table.sets(options)
    for seed in options.seeds:
        for case in cases:
            recipe = recipe_of(options, seed)
            row = run(case.key, _maker(case, sets, seed), sets, recipe, options.out)
            keep(table, options, "rows", [row], SAME)


#: Rows that agree in these are of the same run.
SAME = ("key", "seed", "tested", *pages.BUDGET)
SAME_TIME = ("key", "clouds", "points")
SAME_STEP = (*SAME_TIME, "precision")


def _chosen(table: Table, names: Sequence[str]) -> list[Case]:
    known = {case.key: case for case in table.cases}
    for name in names:
        if name not in known:
            raise ValueError(f"no row is called {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(table.cases)


def recipe_of(options: Options, seed: int) -> Recipe:
    """The same for both sides of a pair."""
    return Recipe(options.epochs, options.batch, options.rate, seed=seed, amp_cpu=options.bfloat16)


def _maker(case: Case, sets: Sets, seed: int) -> Callable[[], Any]:
    classes, channels = len(sets.learn.classes), sets.learn.in_channels
    return lambda: case.make(sets.task.name, classes, channels, seed)  # type: ignore[arg-type]


def _timed(table: Table) -> Callable[[Sequence[Case], Options], Rows]:
    """All networks on one batch of the test set."""

    def times(cases: Sequence[Case], options: Options) -> Rows:
        sets = table.sets(options)
        batch = collate([sets.test.draw(i) for i in range(min(options.batch, len(sets.test)))])
        return race(cases, sets.task.name, len(sets.learn.classes), batch, options.turns)  # type: ignore[arg-type]

    return times


def _path(table: Table, options: Options) -> Path:
    return options.out / f"table{table.number}.json"


def _known(table: Table, options: Options) -> dict[str, Any]:
    """What is known already: rows of other settings stay in the table, each saying its own."""
    results = {**header(asdict(options)), "times": [], "steps": []}
    path = _path(table, options)
    if path.exists():
        old = json.loads(path.read_text())
        results |= {part: old.get(part, []) for part in ("rows", "times", "steps")}
    return results


def keep(
    table: Table,
    options: Options,
    part: str,
    new: Rows,
    same: Sequence[str],
) -> None:
    """Add rows to those in the file, which another run may have written meanwhile, and save all."""
    results = _known(table, options)
    results[part] = pages.merged(results[part], new, same)
    save(results, _path(table, options))


def page(table: Table, results: dict[str, Any]) -> str:
    """Where it ran, how well, how fast."""
    out = [where(results), table.about, ""]
    known = pages.current(table.cases, results["rows"])
    for name in dict.fromkeys(row.get("set") for row in known):
        rows = [row for row in known if row.get("set") == name]
        out += [f"On {name}:", ""] if name else []
        out += [pages.accuracy(table.cases, rows, table.metrics, printed=name is None), ""]
    if results["times"]:
        out += ["Milliseconds of a whole forward pass, encoder included, median of turns in one "]
        out[-1] += "run; in brackets, how many times as fast as the network without VecKM:"
        out += ["", pages.times(table.cases, results["times"]), ""]
        out += [text, ""] if (text := pages.against_pointnet2(results["times"])) else []
    if results.get("steps"):
        out += ["Processor seconds of a training step, median of turns in one run:", ""]
        out += [pages.steps(table.cases, results["steps"]), ""]
    return "\n".join(out)


def limited(samples: Samples, count: int | None) -> Samples:
    """Some of the samples, the same for every row and seed."""
    return samples if count is None else take(samples, count)
