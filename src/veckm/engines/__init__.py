"""Engines: ways of computing the same sums. `prepare` takes the fastest within eps."""

from __future__ import annotations

from torch import Tensor

from veckm.engines.base import Ball, Engine, Gaussian, Norm, Problem, Rates, Task, Window
from veckm.engines.dense import Dense
from veckm.engines.grid import Grid, GridTask
from veckm.engines.lattice import TooFine
from veckm.engines.neighbors import Neighbors
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

#: Below this nothing is gained by looking at other engines.
_SOON = 2e-3


def prepare(problem: Problem, name: str = "auto") -> tuple[Engine, Task]:
    """The engine called `name`, or for "auto" the one that expects to be fastest within eps."""
    if name != "auto":
        engine = find(name, problem)
        return engine, engine.prepare(problem)
    dense, neighbors, _, grid = ENGINES
    able: list[tuple[Engine, Task]] = [(dense, dense.prepare(problem))]
    if able[0][1].seconds > _SOON:
        if isinstance(problem.window, Gaussian):
            task = grid.prepare(problem)
            able.append((grid, Task(task.seconds, lambda: _grid_or_neighbors(problem, task))))
            if not (isinstance(task, GridTask) and _crowded(problem, task)):
                able.append((neighbors, neighbors.prepare(problem)))
        else:
            able.append((neighbors, neighbors.prepare(problem)))
    return min(able, key=lambda pair: pair[1].seconds)


def _grid_or_neighbors(problem: Problem, task: Task) -> Tensor:
    """The grid knows how many nodes it needs only when it has counted them."""
    try:
        return task.run()
    except TooFine:
        return ENGINES[1].prepare(problem).run()


def choose(problem: Problem, name: str = "auto") -> Engine:
    """The engine that `prepare` takes."""
    return find(name, problem) if name != "auto" else prepare(problem)[0]


def _crowded(problem: Problem, task: GridTask) -> bool:
    """Whether windows hold so many points that the neighbours need not be counted.

    A block of n points of the grid is narrower than the window of the neighbours, so each of its
    points has at least n neighbours; 4 n on any surface.
    """
    pairs = 4 * float(task.blocks.count.double().square().sum())
    return pairs * 4 * problem.columns.shape[1] * Rates.FLOP > task.seconds


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
