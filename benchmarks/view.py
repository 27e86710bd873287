"""The viewer in a real browser: the first picture of a large scan, and how soon sliders act.

    python -m benchmarks.view
    python -m benchmarks.view --scan 1000000 --points 20000 --dim 64

Needs chromium, playwright and the extra `viewer`.

`first`: `veckm view scan.laz` in a process of its own, from its start to the page that says so, to
the first picture with something in it, and the largest memory of the process. The scan is
generated.

`sliders`: each is moved by a key, several times; the clock stops in the first frame after the page
has got its new colors.
"""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.harness import log, metadata
from benchmarks.scan_parts.pages import view_page
from veckm import write
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
    """The viewer in a real browser: the first picture of a large scan, and how soon sliders act."""

    scan: int = 5_000_000
    """Points of the scan whose first picture is timed."""
    points: int = 100_000
    """Points of the cloud of the sliders."""
    dim: int = 256
    """D, complex numbers of an encoding."""
    repeats: int = 4
    """How often each slider is moved."""
    output: Path = Path("benchmarks/results")
    """Folder of the results."""


@contextmanager
def browser_page(url: str, displayed: Callable[[np.ndarray], None] | None = None) -> Iterator[Any]:
    """The address in a browser without a window; every frame it displays goes to a function."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("there is no chromium: on Debian, apt-get install chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=ARGUMENTS)
        tab = browser.new_page(viewport={"width": 1100, "height": 860})
        if displayed is not None:
            record(tab, displayed)
        tab.goto(url)
        yield tab
        browser.close()


def record(tab: Any, displayed: Callable[[np.ndarray], None]) -> None:
    """Call a function with every displayed frame: screenshots would make the browser draw more."""
    import imageio.v3 as iio

    session = tab.context.new_cdp_session(tab)

    def got(event: dict[str, Any]) -> None:
        session.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})
        displayed(iio.imread(io.BytesIO(base64.b64decode(event["data"])))[..., :3])

    session.on("Page.screencastFrame", got)
    session.send("Page.startScreencast", {"format": "jpeg", "quality": 60})


def scan_file(path: Path, n: int) -> None:
    """A hilly square kilometer with boxes on it, as LAZ with intensity and classes."""
    rng = np.random.default_rng(0)
    pos = rng.random((n, 3)) * [1000.0, 1000.0, 0.3]
    pos[:, 2] += 12 * np.sin(pos[:, 0] / 90) * np.cos(pos[:, 1] / 70)
    house = ((pos[:, 0] % 50 < 14) & (pos[:, 1] % 40 < 11)).astype(np.uint8)
    pos[:, 2] += 7.0 * house
    fields = {
        "intensity": rng.integers(0, 4000, n).astype(np.uint16),
        "classification": 2 + 4 * house,
    }
    write(path, PointCloud(pos, np.array([5e5, 4.9e6, 100.0]), fields))


def first_picture(options: Options) -> dict[str, float]:
    """Seconds until the page has its points, until it shows them, and bytes of the process."""
    run = "import sys; from veckm.cli import main; sys.exit(main(sys.argv[1:]))"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scan.laz"
        scan_file(path, options.scan)
        start = time.perf_counter()
        command = [sys.executable, "-c", run, "view", str(path), "--port", "0", "--headless"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("page"))
            served = time.perf_counter() - start
            times: list[float] = []

            def displayed(image: np.ndarray) -> None:
                if drawn(image):
                    times.append(time.perf_counter() - start)

            with browser_page(line.split()[1], displayed) as tab:
                until(tab, "shown after", 300)
                sent = time.perf_counter() - start
                while not times and time.perf_counter() - start < 300:
                    tab.wait_for_timeout(50)
                shown = times[0]
            peak = Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
        finally:
            process.kill()
    return {"served": served, "sent": sent, "shown": shown, "memory": int(peak) * 1024}


def drawn(image: np.ndarray) -> bool:  # (H, W, 3)
    """Whether a fiftieth of the scene, left of the panel and below messages, is no longer white."""
    height, width = image.shape[:2]
    scene = image[height // 4 :, : int(0.6 * width)]
    return float((scene < 235).any(-1).mean()) > 0.02


def until(tab: Any, text: str, seconds: float = 60) -> None:
    """Wait until the page says so; to look in every frame would keep the browser busy."""
    said = "text => document.body.textContent.includes(text)"
    tab.wait_for_function(said, arg=text, polling=30, timeout=1000 * seconds)


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
        settings = replace(Settings.suggested(cloud), dim=options.dim)
        page = Page(server, cloud, settings=settings, color="encoding")
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
    """Measure, print and save."""
    meta, load = metadata(), os.getloadavg()[0]
    first = first_picture(options)
    log(f"first picture: {first['shown']:.1f} s, {first['memory'] / 2**30:.2f} GiB")
    times = measure(options)
    result = {
        "meta": meta,
        "load": load,
        "options": {"scan": options.scan, "points": options.points, "dim": options.dim},
        "first": first,
        "sliders": times,
    }
    path = options.output / f"view-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(result, indent=1, default=str) + "\n")
    print(view_page(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
