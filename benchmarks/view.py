"""The viewer in a real browser: seconds from letting go of a slider to the new colors.

    python -m benchmarks.view
    python -m benchmarks.view --points 1000000 --dim 64

Needs chromium, playwright and the extra `viewer`. Each slider is moved by a key, several times; the
clock stops in the first frame after the page has got its new colors.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import tyro

from benchmarks import tables
from benchmarks.harness import log, metadata
from veckm.cloud import PointCloud
from veckm.data import shapes
from veckm.viewer import DisplayCloud, Page, serve
from veckm.viewer.encodings import Settings
from veckm.viewer.server import address

#: Sliders in the order of the page.
SLIDERS = {"radius": 1, "detail": 2, "D": 3, "noise": 4}
#: A card that is not there is imitated; windows are not opened.
ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


@dataclass(frozen=True)
class Options:
    """The viewer in a real browser: seconds from letting go of a slider to the new colors."""

    points: int = 100_000
    """Points of the cloud."""
    dim: int = 256
    """D, complex numbers of an encoding."""
    repeats: int = 4
    """How often each slider is moved."""


@contextmanager
def browser_page(url: str) -> Iterator[Any]:
    """The address in a browser without a window."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("there is no chromium: on Debian, apt-get install chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=ARGUMENTS)
        tab = browser.new_page(viewport={"width": 1100, "height": 860})
        tab.goto(url)
        yield tab
        browser.close()


def until(tab: Any, text: str) -> None:
    """Wait until the page says so; to look in every frame would keep the browser busy."""
    said = "text => document.body.textContent.includes(text)"
    tab.wait_for_function(said, arg=text, polling=30)


def moved(tab: Any, slider: int) -> float:
    """Seconds from the key to the frame with the new colors."""
    tab.get_by_role("slider").nth(slider).focus()
    start = time.perf_counter()
    tab.keyboard.press("ArrowRight")  # never back: the last few encodings are kept
    until(tab, "working")
    until(tab, "shown after")
    return time.perf_counter() - start


def measure(options: Options) -> dict[str, list[float]]:
    """Every slider, step by step."""
    cloud = DisplayCloud.of(PointCloud(shapes.statue(options.points).pos.numpy()), "statue")
    with serve(port=0) as server:
        page = Page(server, cloud, settings=replace(Settings.suggested(cloud), dim=options.dim))
        page.start()
        with browser_page(address(server)) as tab:
            until(tab, "shown after")
            tab.wait_for_timeout(3000)  # the first picture, and what the browser sets up once
            out: dict[str, list[float]] = {}
            for name, slider in SLIDERS.items():
                times = [moved(tab, slider) for _ in range(options.repeats + 1)]
                out[name] = times[1:]
                log(f"{name}: {statistics.median(out[name]):.2f} s")
        page.stop()
    return out


def main(options: Options) -> int:
    """Measure and print."""
    times = measure(options)
    m = metadata()
    print(f"{m['date']}, commit {m['commit']}, {m['cpu']}, {m['cores']} cores, torch {m['torch']}")
    print(f"{options.points:,} points, D = {options.dim}, browser without a graphics card\n")
    lines = [
        [name, f"{statistics.median(each):.2f} s", f"{max(each):.2f} s"]
        for name, each in times.items()
    ]
    print(tables.table(["slider", "median", "slowest"], lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
