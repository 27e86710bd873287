"""Engines: ways of computing the same sums. `choose` takes the fastest that meets the accuracy."""

from __future__ import annotations

from veckm.engines.base import Ball, Engine, Gaussian, Norm, Problem, Window
from veckm.engines.dense import Dense
from veckm.engines.grid import Grid
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
    "Window",
    "choose",
]

#: All engines, the definition first.
ENGINES: tuple[Engine, ...] = (Dense(), Neighbors(), Random(), Grid())

#: The ones that heed eps: what "auto" may take.
_EXACT: tuple[Engine, ...] = (ENGINES[0], ENGINES[1], ENGINES[3])


def choose(problem: Problem, name: str = "auto") -> Engine:
    """The engine called `name`; for "auto" the one that expects to be fastest within eps."""
    if name == "auto":
        able = [e for e in _EXACT if isinstance(problem.window, e.windows)]
        return min(able, key=lambda engine: engine.cost(problem))
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
