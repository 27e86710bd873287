"""Test cases run over what their engine can do: its windows, the accuracies it heeds."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, attribute in (("window", "windows"), ("eps", "accuracies")):
        values = getattr(metafunc.cls, attribute, None)
        if fixture in metafunc.fixturenames and values is not None:
            metafunc.parametrize(fixture, values)
