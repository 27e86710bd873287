"""veckm view: a cloud in the browser, or in one HTML file."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from veckm.cli.text import bytes_of, labeled, seconds
from veckm.cli.verb import Flag, Verb, check_output, read_cloud
from veckm.cloud import PointCloud
from veckm.data import shapes
from veckm.extras import need
from veckm.palette import Color

if TYPE_CHECKING:
    from veckm.viewer import Shown
    from veckm.viewer.encode import Settings

_File = Annotated[Path | None, arg(metavar="[FILE]", help_behavior_hint="(default: a statue)")]
_Other = Annotated[Path | None, arg(metavar="[OTHER]", help_behavior_hint="(default: none)")]
_Save = Annotated[
    Path | None, arg(metavar="FILE.html", help_behavior_hint="(default: served, not saved)")
]
_Number = Annotated[float | None, arg(metavar="R", help_behavior_hint="(default: suggested)")]
_SAMPLE_POINTS = 50_000


@dataclass(frozen=True)
class View(Verb):
    """See a cloud in the browser: its encodings as colors, and what they remember of it.

    veckm view scan.ply

    Click a point to see every point that is like it, and the neighborhood that its encoding
    alone still knows. A second file stands beside the first, with the similarity of matching
    points. With --save the scene goes into one file that opens without a server. Without a file
    it shows a statue.
    """

    cloud: Positional[_File] = None
    """LAS, LAZ, PLY, PCD, E57, XYZ, CSV, PTS, NPY, NPZ, KITTI .bin."""
    other: Positional[_Other] = None
    """Another cloud to stand beside it, as a corrupted one beside the clean one."""
    save: _Save = None
    """Write the scene into this file instead of serving it."""
    color: Color = "encoding"
    """What the points are colored by at first."""
    radius: _Number = None
    """Size of the neighborhood at first, in the file's units."""
    dim: int = 256
    """D, complex numbers of an encoding at first."""
    noise: float = 0.0
    """Noise added at first, in percent of the diagonal of the box."""
    points: int = 2_000_000
    """The most points that are shown; more are thinned where they are dense."""
    host: str = "127.0.0.1"
    """Where it is served; any other address lets others see and move it."""
    port: int = 8080
    """At which port; 0 for any that is free."""
    headless: Flag = False
    """Do not open a browser; only print the address."""

    def run(self) -> None:
        """Read, show, and wait for Ctrl-C; or save."""
        need("viser", "the viewer", "viewer")
        if self.save is not None:
            check_output(self.save, self.cloud, "scenes", (".html",))
        else:
            from veckm.viewer.server import check_free

            check_free(self.host, self.port)  # before a large file is read in vain
        clouds = self._clouds()
        settings = self._settings(clouds[0])
        if self.save is not None:
            self._save(self.save, clouds, settings)
        else:
            self._serve(clouds, settings)

    def _clouds(self) -> list[Shown]:
        from veckm.viewer import show

        if self.cloud is None:
            sample = PointCloud(shapes.statue(_SAMPLE_POINTS).pos.numpy())
            first = show(sample, "sample statue", limit=self.points)
        else:
            first = show(read_cloud(self.cloud), self.cloud.name, limit=self.points)
        if self.other is None:
            return [first]
        return [
            first,
            show(read_cloud(self.other), self.other.name, limit=self.points, frame=first),
        ]

    def _settings(self, first: Shown) -> Settings:
        from veckm.inputs import check_positive
        from veckm.viewer.encode import Settings, suggested

        if self.dim < 2:
            raise ValueError(f"--dim must be at least 2, got {self.dim}")
        if not 0 <= self.noise <= 100:
            raise ValueError(f"--noise must be from 0 to 100 percent, got {self.noise}")
        if self.radius is None:
            settings = suggested(first)
        else:
            settings = Settings(check_positive(self.radius, "--radius"))
        return replace(settings, dim=self.dim, noise=self.noise / 100)

    def _save(self, path: Path, clouds: list[Shown], settings: Settings) -> None:
        from veckm.viewer import Page, save_html, serve

        start = time.perf_counter()
        with serve(port=0) as server:
            page = Page(server, *clouds, settings=settings, color=self.color)
            page.update()
            size = save_html(path, server, clouds, page.legend)
        spent = time.perf_counter() - start
        self._show_clouds(clouds)
        self.show(labeled("written", f"{path}: {bytes_of(size)}, in {seconds(spent)}"))
        self.report(clouds=[c.name for c in clouds], output=path, bytes=size, seconds=spent)

    def _serve(self, clouds: list[Shown], settings: Settings) -> None:
        from veckm.viewer import Page, serve
        from veckm.viewer.server import address

        with serve(self.host, self.port) as server:
            page = Page(server, *clouds, settings=settings, color=self.color)
            page.start()
            url = address(server)
            self._show_clouds(clouds)
            self.show(labeled("page", f"{url} (Ctrl-C ends it)"))
            self.report(clouds=[c.name for c in clouds], page=url)
            if not self.headless and _has_screen():
                webbrowser.open(url)
            try:
                while True:
                    time.sleep(3600)
            except KeyboardInterrupt:
                self.show("", "ended")
            finally:
                page.stop()

    def _show_clouds(self, clouds: list[Shown]) -> None:
        self.title("view")
        self.show(*(labeled("cloud", f"{cloud.name}: {cloud.note}") for cloud in clouds))


def _has_screen() -> bool:
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
