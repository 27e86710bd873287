"""A real browser with a real page in it; skipped with a reason where there is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tabs import HEIGHT, WIDTH, Tab

import veckm
from veckm.cloud import PointCloud
from veckm.data import shapes

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser():
    """Chromium, without a window."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install 'veckm[browser]'"
    )
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("there is no chromium: on Debian, apt-get install chromium")
    arguments = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def open_tab(browser, tmp_path):
    """Open an address; VECKM_SHOTS names a folder that keeps the screenshots."""
    shots = Path(os.environ.get("VECKM_SHOTS") or tmp_path)
    shots.mkdir(parents=True, exist_ok=True)
    opened = []

    def open_(url: str, offline: bool = False) -> Tab:
        context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, offline=offline)
        context.set_default_timeout(120_000)  # a busy machine without a graphics card is slow
        opened.append(context)
        return Tab(context.new_page(), url, shots)

    yield open_
    for context in opened:
        context.close()


@pytest.fixture
def cloud() -> PointCloud:
    """A statue of 8,000 points, in tens and far from zero."""
    pos = shapes.statue(8000).pos.double().numpy() * 10 + np.array([5e5, 4e6, 100.0])
    return PointCloud(pos - pos.mean(0), pos.mean(0))


@pytest.fixture
def path(cloud, tmp_path) -> Path:
    """The same as a file."""
    out = tmp_path / "statue.ply"
    veckm.write(out, cloud)
    return out
