"""auto: one of the engines that keep eps, chosen by what they expect to cost."""

from __future__ import annotations

import pytest
import torch
from clouds import CLOUDS, frequencies
from conformance import EngineConformance
from tolerance import ROUNDING, mean_error
from torch import Generator

from veckm import encode
from veckm.engines import ENGINES, Engine, Geometry, GridTooLarge, Points, choose, grid
from veckm.sizes import make_window


class TestAuto(EngineConformance):
    name = "auto"
    accuracies = (5e-2, 1e-3, 1e-8)

    def error(self, eps: float, window: str) -> float:
        return eps if window == "gaussian" else ROUNDING[torch.float64]


def geometry(window: str, generator: Generator, n: int = 500, beta: float = 4.0) -> Geometry:
    points = Points(CLOUDS["surface"](n, 3, generator))
    B = frequencies(3, 2, beta, generator)
    return Geometry(points, points, make_window(window, beta, None), 1e-2, B)


@pytest.mark.parametrize("window", ["gaussian", "ball"])
@pytest.mark.parametrize("n", [1, 50, 3000])
@pytest.mark.parametrize("beta", [1e-3, 4.0, 1e3])
def test_auto_takes_an_engine_that_can_do_the_window_and_keeps_eps(
    window: str, n: int, beta: float, generator: Generator
) -> None:
    made = geometry(window, generator, n, beta)
    chosen, seconds, _ = choose(made)
    assert isinstance(made.window, chosen.windows)
    assert chosen.name != "random"  # cheapest of all with two columns, and of no accuracy
    assert 0 < seconds < float("inf")


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_engine_is_found_by_its_name(engine: Engine, generator: Generator) -> None:
    assert choose(geometry("gaussian", generator), engine.name)[0] is engine


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_costs_are_positive_and_grow_with_the_cloud(engine: Engine, generator: Generator) -> None:
    made = (geometry("gaussian", generator, n) for n in (300, 6000))
    small, large = (engine.propose(g, 32).seconds for g in made)
    assert 0 < small < large < float("inf")


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("columns", [2, 512])
def test_no_proposal_is_below_the_least_that_the_engine_announced(
    engine: Engine, columns: int, generator: Generator
) -> None:
    for n in (1, 300, 6000):
        made = geometry("gaussian", generator, n)
        if engine.meets_eps:
            assert engine.least(made, columns) <= engine.propose(made, columns).seconds


def test_where_the_grid_is_too_large_auto_takes_the_next_best(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = geometry("gaussian", generator, 3000, 1.0)
    assert choose(made)[0].name == "grid"

    def refuse(*_: object) -> None:
        raise GridTooLarge("too many nodes")

    monkeypatch.setattr(grid, "_refuse_if_too_many", refuse)
    assert choose(made)[0].name in ("dense", "neighbors")
    with pytest.raises(GridTooLarge, match="too many nodes"):
        choose(made, "grid")


@pytest.mark.parametrize("in_dim", [5, 6, 7])
@pytest.mark.parametrize("n", [30, 3000])
def test_auto_works_in_many_dimensions(in_dim: int, n: int, generator: Generator) -> None:
    pos, A = CLOUDS["clusters"](n, in_dim, generator), frequencies(in_dim, 4, 2.0, generator)
    some = slice(0, n, 100)
    G = encode(pos, A, beta=1.0)[some]
    assert mean_error(G, encode(pos, A, beta=1.0, queries=pos[some], engine="dense")) <= 1e-2


def test_names_are_distinct_and_the_definition_comes_first() -> None:
    names = [engine.name for engine in ENGINES]
    assert names == ["dense", "neighbors", "random", "grid"]


def test_neighbors_take_over_from_a_grid_that_turns_out_too_large(
    monkeypatch: pytest.MonkeyPatch, generator: Generator
) -> None:
    made = geometry("gaussian", generator, 30_000, 20.0)
    assert choose(made, columns=16)[0].name == "grid"
    monkeypatch.setattr(grid, "_MAX_BYTES", 0)
    monkeypatch.setattr(grid, "_MAX_TIMES_RESULT", 0.0)
    assert choose(made, columns=16)[0].name == "neighbors"  # not dense, of N^2 cost
