"""auto: one of the engines that keep eps, chosen by what they expect to cost."""

from __future__ import annotations

import pytest
import torch
from clouds import CLOUDS, frequencies
from conformance import EngineConformance
from tolerance import ROUNDING
from torch import Generator

from veckm.engines import ENGINES, Engine, Problem, choose
from veckm.functional import make_problem, make_window


class TestAuto(EngineConformance):
    name = "auto"
    accuracies = (5e-2, 1e-3, 1e-8)

    def error(self, eps: float, window: str) -> float:
        return eps if window == "gaussian" else ROUNDING[torch.float64]


def problem(window: str, generator: Generator, n: int = 500, beta: float = 4.0) -> Problem:
    pos, A = CLOUDS["surface"](n, 3, generator), frequencies(3, 16, 24.0, generator)
    B = frequencies(3, 2, beta, generator)
    made, _ = make_problem(
        pos, A, window=make_window(window, beta, None), norm="unit", eps=1e-2, B=B
    )
    return made


@pytest.mark.parametrize("window", ["gaussian", "ball"])
@pytest.mark.parametrize("n", [1, 50, 3000])
@pytest.mark.parametrize("beta", [1e-3, 4.0, 1e3])
def test_auto_takes_an_engine_that_can_do_the_window_and_keeps_eps(
    window: str, n: int, beta: float, generator: Generator
) -> None:
    made = problem(window, generator, n, beta)
    chosen = choose(made)
    assert isinstance(made.window, chosen.windows)
    assert chosen.name != "random"  # cheapest of all with two columns, and of no accuracy
    assert chosen.cost(made) < float("inf")


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_engine_is_found_by_its_name(engine: Engine, generator: Generator) -> None:
    assert choose(problem("gaussian", generator), engine.name) is engine


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_costs_are_positive_and_grow_with_the_cloud(engine: Engine, generator: Generator) -> None:
    small, large = (engine.cost(problem("gaussian", generator, n)) for n in (300, 6000))
    assert 0 < small < large < float("inf")


def test_names_are_distinct_and_the_definition_comes_first() -> None:
    names = [engine.name for engine in ENGINES]
    assert names == ["dense", "neighbors", "random", "grid"]
