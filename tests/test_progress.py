"""Progress: a bar on a terminal once the work takes more than a second, and nowhere else."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import partial
from typing import Any

import pytest
import torch
from clouds import frequencies, surface
from torch import Generator

from veckm import encode
from veckm.progress import bar


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(work: Callable[[], object]) -> str:
    """What the work writes to a terminal."""
    with redirect_stderr(Terminal()) as screen:
        work()
    return screen.getvalue()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second whenever it is read."""
    monkeypatch.setattr("tqdm.std.time", itertools.count(1.0).__next__)


def steps(label: str | None) -> None:
    with bar(10, label) as advance:
        for _ in range(4):
            advance()
        advance(6)


@pytest.mark.usefixtures("slow")
def test_off_a_terminal_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    steps("encode")
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("slow")
def test_without_a_label_nothing_is_written() -> None:
    assert on_terminal(partial(steps, None)) == ""


def test_work_of_less_than_a_second_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tqdm.std.time", lambda: 5.0)
    assert on_terminal(partial(steps, "encode")) == ""


@pytest.mark.usefixtures("slow")
def test_slow_work_on_a_terminal_shows_a_bar_and_wipes_it_out() -> None:
    shown = on_terminal(partial(steps, "encode"))
    assert "encode" in shown
    assert "10/10" in shown
    assert shown.endswith("\r")


@pytest.mark.usefixtures("slow")
def test_an_error_in_the_work_comes_out() -> None:
    with pytest.raises(ValueError, match="in the work"), bar(3, "encode"):
        raise ValueError("in the work")


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("engine", ["dense", "neighbors", "random", "grid"])
@pytest.mark.parametrize("progress", [None, True, False])
def test_every_engine_shows_progress_unless_told_not_to(
    engine: str, progress: bool | None, generator: Generator
) -> None:
    pos, A = surface(1000, 3, generator).float(), frequencies(3, 8, 9.0, generator)
    B = frequencies(3, 16, 3.0, generator)
    options: dict[str, Any] = {"beta": 3.0, "engine": engine, "B": B, "progress": progress}
    shown = on_terminal(lambda: encode(pos, A, **options))
    assert bool(shown) is (progress is not False)


@pytest.mark.parametrize("engine", ["dense", "neighbors", "random", "grid"])
def test_no_engine_writes_anything_off_a_terminal(
    engine: str, generator: Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    pos, A = surface(500, 3, generator), frequencies(3, 8, 9.0, generator)
    B = frequencies(3, 16, 3.0, generator)
    encode(pos, A, beta=3.0, engine=engine, B=B, progress=True)  # type: ignore[arg-type]
    assert capfd.readouterr() == ("", "")
    assert torch.is_grad_enabled()
