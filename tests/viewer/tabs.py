"""A page of a real browser, and what it looks like in pixels."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

WIDTH, HEIGHT = 1100, 860
#: Pixels of the scene: left of the panel, which is docked to the right.
SCENE = slice(0, WIDTH - 420)


class Tab:
    """A page of the browser, what it complained of, and what it looks like."""

    def __init__(self, page, url: str, shots: Path) -> None:
        self.page, self._shots = page, shots
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(url)
        # Without a graphics card viser warns; the warning would cover part of the scene.
        page.add_style_tag(content='[class*="mantine-Notification"] { display: none !important }')

    def picture(self, name: str | None = None) -> np.ndarray:  # (H, W, 3) uint8
        """The scene as it is now; with a name, the whole page is kept under it."""
        import imageio.v3 as iio

        data = self.page.screenshot(timeout=120_000)
        if name is not None:
            (self._shots / f"{name}.png").write_bytes(data)
        return iio.imread(io.BytesIO(data))[:, SCENE, :3]

    def until(self, holds: Callable[[np.ndarray], bool], what: str, seconds: float = 120):
        """The first picture that holds; fails if there is none in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            image = self.picture()
            if holds(image):
                return image
            self.page.wait_for_timeout(150)
        self.picture("failed")
        raise AssertionError(f"the page never showed {what}")

    def still(self) -> np.ndarray:
        """The scene once it has points and no longer changes."""
        last = self.until(lambda image: drawn(image).mean() > 0.02, "any points")
        for _ in range(40):
            self.page.wait_for_timeout(300)
            now = self.picture()
            if np.array_equal(now, last):
                return now
            last = now
        raise AssertionError("the scene never came to rest")

    def slider(self, k: int, key: str) -> None:
        """Move the k-th slider by a key."""
        self.page.get_by_role("slider").nth(k).focus()
        self.page.keyboard.press(key)


def drawn(image: np.ndarray) -> np.ndarray:  # (H, W) bool
    """Where there is something else than white."""
    return (image < 250).any(-1)


def changed(before: np.ndarray, after: np.ndarray) -> float:
    """Share of the drawn pixels that differ clearly."""
    far = np.abs(before.astype(int) - after.astype(int)).max(-1) > 24
    return far.sum() / max(1, (drawn(before) | drawn(after)).sum())
