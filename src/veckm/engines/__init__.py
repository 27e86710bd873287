"""Engines: ways of computing the same sums. `prepare` takes the fastest within eps."""

from __future__ import annotations

from torch import Tensor

from veckm.engines.base import Ball, Engine, Gaussian, Norm, Problem, Rates, Task, Window
from veckm.engines.dense import Dense
from veckm.engines.grid import Grid, GridTask, thin_seconds
from veckm.engines.lattice import TooFine
from veckm.engines.neighbors import BLOCK_POINTS, Neighbors
from veckm.engines.random import Random

__all__ = [
    "ENGINES",
    "Ball",
    "Dense",
    "Engine",
    "Gaussian",
    "Grid",
    "Neighbors",
    "Norm",
    "Problem",
    "Random",
    "Task",
    "Window",
    "choose",
    "find",
    "prepare",
]

#: All engines, the definition first.
ENGINES: tuple[Engine, ...] = (Dense(), Neighbors(), Random(), Grid())

#: Up to so many points planning is a good part of the work.
_SMALL = 20_000
#: A gain below this is not worth planning for.
_WORTH = 1.25


def prepare(problem: Problem, name: str = "auto") -> tuple[Engine, Task]:
    """The engine called `name`, or for "auto" the one that expects to be fastest within eps."""
    if name != "auto":
        engine = find(name, problem)
        return engine, engine.prepare(problem)
    dense = ENGINES[0]
    able: list[tuple[Engine, Task]] = [(dense, dense.prepare(problem))]
    if able[0][1].seconds > _WORTH * _search_seconds(problem):
        able += _linear(problem)
    return min(able, key=lambda pair: pair[1].seconds)


def _linear(problem: Problem) -> list[tuple[Engine, Task]]:
    """Neighbours, grid or both. Planning costs time too: who cannot win is not asked to plan."""
    _, neighbors, _, grid = ENGINES
    if not isinstance(problem.window, Gaussian):
        return [(neighbors, neighbors.prepare(problem))]
    thin = thin_seconds(problem) if len(problem.pos) <= _SMALL else 0.0
    if thin > _search_seconds(problem):
        task = neighbors.prepare(problem)
        if thin > task.seconds:
            return [(neighbors, task)]
        other = grid.prepare(problem)
    else:
        other = grid.prepare(problem)
        if isinstance(other, GridTask) and _crowded(problem, other):
            return [(grid, _or_neighbors(problem, other))]
        task = neighbors.prepare(problem)
    return [(grid, _or_neighbors(problem, other)), (neighbors, task)]


def _or_neighbors(problem: Problem, task: Task) -> Task:
    """The grid knows how many nodes it needs only when it has counted them."""

    def run() -> Tensor:
        try:
            return task.run()
        except TooFine:
            return ENGINES[1].prepare(problem).run()

    return Task(task.seconds, run)


def choose(problem: Problem, name: str = "auto") -> Engine:
    """The engine that `prepare` takes."""
    return find(name, problem) if name != "auto" else prepare(problem)[0]


def _search_seconds(problem: Problem) -> float:
    """What the neighbours cost even where nobody has any."""
    numbers = (len(problem.pos) + len(problem.queries)) * problem.columns.shape[1]
    found = len(problem.queries) * (Rates.SEARCH + 3 * Rates.BLOCK / BLOCK_POINTS)
    return Rates.CALL + found + numbers * (Rates.PHASOR + Rates.WRITE)


def _crowded(problem: Problem, task: GridTask) -> bool:
    """Whether windows hold so many points that the neighbours need not be counted.

    A block of n points of the grid is narrower than the window of the neighbours, so each of its
    points has at least n neighbours; in practice 3 n and more.
    """
    pairs = 3 * float(task.blocks.count.double().square().sum())
    seconds = pairs * 4 * problem.columns.shape[1] * Rates.FLOP
    return _WORTH * _search_seconds(problem) + seconds > task.seconds


def find(name: str, problem: Problem) -> Engine:
    """The engine called `name`, if it can do the window."""
    for engine in ENGINES:
        if engine.name == name:
            if not isinstance(problem.window, engine.windows):
                able_names = [e.name for e in ENGINES if isinstance(problem.window, e.windows)]
                window = type(problem.window).__name__.lower()
                raise ValueError(
                    f"engine {name!r} cannot compute the {window} window; "
                    f"use one of {able_names} or 'auto'"
                )
            return engine
    raise ValueError(f"unknown engine {name!r}: use 'auto' or one of {[e.name for e in ENGINES]}")
