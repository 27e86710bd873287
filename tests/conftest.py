"""Fixtures of all tests: generators instead of global seeds, and real data where there is some."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Shared test cases: their asserts should show the values too.
pytest.register_assert_rewrite("conformance", "gradients", "invariance", "tolerance")

# The same examples in every run, and no deadline: a slow machine is not a failure.
settings.register_profile("veckm", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("veckm")


#: What the reason of a skip says if a package is missing.
MISSING = ("could not import", "is not installed", "needs the extra")


def _fail_if_missing(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With VECKM_REQUIRE_EXTRAS, a test that is skipped for a missing package is a failure."""
    if not os.environ.get("VECKM_REQUIRE_EXTRAS") or not report.skipped:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if any(words in reason for words in MISSING):
        report.outcome = "failed"
        report.longrepr = f"VECKM_REQUIRE_EXTRAS is set, but this was skipped. {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a test."""
    report = yield
    _fail_if_missing(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The report of a file, whose top may skip it as a whole."""
    report = yield
    _fail_if_missing(report)
    return report


@pytest.fixture(autouse=True)
def dropout_of_its_own() -> Generator[None, None, None]:
    """Dropout draws from torch's global state: the same for a test alone and among others."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


@pytest.fixture
def generator() -> torch.Generator:
    """A generator of this test's own."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real clouds, from the environment variable VECKM_DATA."""
    name = os.environ.get("VECKM_DATA")
    if not name:
        pytest.skip("VECKM_DATA is not set: it names the folder with pcpnet/, lidar/ and the rest")
    folder = Path(name)
    if not folder.is_dir():
        pytest.skip(f"VECKM_DATA={name} is not a folder")
    return folder
