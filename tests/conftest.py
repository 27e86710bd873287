"""Fixtures of all tests: generators instead of global seeds, and real data where there is some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Shared test cases: their asserts should show the values too.
pytest.register_assert_rewrite("conformance", "gradients", "invariance", "tolerance")

# The same examples in every run, and no deadline: a slow machine is not a failure.
settings.register_profile("veckm", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("veckm")


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
