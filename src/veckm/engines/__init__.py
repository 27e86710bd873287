"""Engines: ways of computing the same products. `choose` takes the fastest within eps."""

from __future__ import annotations

from veckm.engines.dense import Dense
from veckm.engines.geometry import Geometry, Points
from veckm.engines.grid import Grid
from veckm.engines.lattice import GridTooLarge
from veckm.engines.neighbors import Neighbors
from veckm.engines.operator import Engine, Operator, Proposal
from veckm.engines.phasors import Modulation, Norm
from veckm.engines.random import Random
from veckm.engines.windows import Ball, Gaussian, Window

__all__ = [
    "ENGINES",
    "Ball",
    "Engine",
    "Gaussian",
    "Geometry",
    "GridTooLarge",
    "Modulation",
    "Norm",
    "Operator",
    "Points",
    "Proposal",
    "Window",
    "choose",
    "find",
    "proposals",
]

#: All engines, the definition first.
ENGINES: tuple[Engine, ...] = (Dense(), Neighbors(), Random(), Grid())


def choose(
    geometry: Geometry, name: str = "auto", columns: int = 512
) -> tuple[Engine, float, Operator]:
    """The engine called `name`, or for "auto" the cheapest, its expected seconds and its plan."""
    if name != "auto":
        engine = find(name, geometry.window)
        proposal = engine.propose(geometry, columns)
        return engine, proposal.seconds, proposal.plan()
    engine, proposal = proposals(geometry, columns)[0]
    try:
        return engine, proposal.seconds, proposal.plan()
    except GridTooLarge:  # among all others, also those that were not asked beside it
        engine, proposal = proposals(geometry, columns, without=(engine,))[0]
        return engine, proposal.seconds, proposal.plan()


def proposals(
    geometry: Geometry, columns: int, without: tuple[Engine, ...] = ()
) -> list[tuple[Engine, Proposal]]:
    """The engines that keep eps with what they expect to cost, cheapest first."""
    overhead = Engine.rates(geometry).call  # what a proposal costs: others must win by more
    able = [e for e in ENGINES if e.meets_eps and isinstance(geometry.window, e.windows)]
    able = [e for e in able if e not in without]
    able.sort(key=lambda engine: engine.least(geometry, columns))
    found: list[tuple[Engine, Proposal]] = []
    for engine in able:
        best = min((proposal.seconds for _, proposal in found), default=float("inf"))
        if engine.least(geometry, columns) + overhead < best:
            found.append((engine, engine.propose(geometry, columns)))
    return sorted(found, key=lambda pair: pair[1].seconds)


def find(name: str, window: Window) -> Engine:
    """The engine called `name`, if it can compute the window."""
    for engine in ENGINES:
        if engine.name == name:
            if not isinstance(window, engine.windows):
                able = [e.name for e in ENGINES if isinstance(window, e.windows)]
                raise ValueError(
                    f"engine {name!r} cannot compute the {window.name} window; "
                    f"use one of {able} or 'auto'"
                )
            return engine
    raise ValueError(f"unknown engine {name!r}: use 'auto' or one of {[e.name for e in ENGINES]}")
