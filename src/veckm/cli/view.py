"""veckm view: a cloud in the browser, or in one HTML file."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor
from tyro.conf import Positional

from veckm.cli.text import bytes_of, labeled, seconds
from veckm.cli.verb import Flag, InputFileOrSample, Verb, check_output, option
from veckm.cloud import PointCloud
from veckm.data import shapes
from veckm.extras import need
from veckm.inputs import check_positive
from veckm.io import read

if TYPE_CHECKING:
    from veckm.tasks.registration import Registration
    from veckm.viewer import Alignment, DisplayCloud
    from veckm.viewer.encodings import Settings

_SAMPLE_POINTS = 50_000
#: Variables that tell of a screen, except on Windows and macOS.
_SCREENS = {"DISPLAY", "WAYLAND_DISPLAY"}


@dataclass(frozen=True)
class View(Verb):
    """Show a cloud in the browser.

    veckm view scan.laz

    It is colored by its own colors, classes, intensity or height at first, and by any field, by
    normals, curvature or encodings when asked. Click a point to see its fields and what is similar
    to it. A second file is displayed beside the first, or before and after alignment with
    --align. With --save the scene is written to one file that opens without a server. Without a
    file a statue is displayed.
    """

    cloud: InputFileOrSample = None
    other: Positional[Annotated[Path | None, option("[OTHER]", "none")]] = None
    """A second cloud to compare with, for example a noisy one."""
    save: Annotated[Path | None, option("FILE.html", "served, not saved")] = None
    """Write the scene into this file instead of serving it."""
    align: Flag = False
    """Move the first cloud onto the second as veckm register does; shows before and after."""
    color: Annotated[str | None, option("NAME", "what there is")] = None
    """What the points are colored by first: file (its own colors), a field of the file, height,
    normals, curvature, confidence, encoding, or match and cloud with two files."""
    radius: Annotated[float | None, option("R", "suggested")] = None
    """Initial radius of the neighborhood, in the file's units."""
    dim: int = 256
    """Initial D, complex numbers per encoding."""
    noise: float = 0.0
    """Initial noise, in percent of the diagonal of the box."""
    points: int = 5_000_000
    """The largest number of displayed points; larger clouds are subsampled where they are dense."""
    host: str = "127.0.0.1"
    """Address to listen at; any other lets others see the cloud and move the sliders."""
    port: int = 8080
    """Port to listen at; 0 for any that is free."""
    headless: Flag = False
    """Do not open a browser; only print the address."""

    def run(self) -> None:
        """Read, then save, or serve until Ctrl-C."""
        need("viser", "the viewer", "viewer")
        from veckm.viewer import Page, save_html, serve
        from veckm.viewer.server import address, check_free

        host, port = self.host, self.port
        if self.save is not None:
            check_output(self.save, self.cloud, "scenes", (".html",))
            host, port = "127.0.0.1", 0
        check_free(host, port)  # before a large file is read in vain
        clouds, settings = self._prepare()
        about = {"clouds": [cloud.name for cloud in clouds]}
        lines = [labeled("cloud", f"{cloud.name}: {cloud.note}") for cloud in clouds]
        found = self._align(clouds) if self.align else None
        if found is not None:
            lines.append(labeled("aligned", _confidence(found)))
        start = time.perf_counter()
        with serve(host, port) as server:
            page = Page(
                server,
                *clouds,
                settings=settings,
                color=self.color,
                alignment=None if found is None else _alignment(found),
                describe=_describe if found else None,
            )
            if self.save is not None:
                page.update()
                size = save_html(self.save, server, clouds, page.legend)
                spent = time.perf_counter() - start
                self.title("view")
                written = f"{self.save}: {bytes_of(size)}, in {seconds(spent)}"
                self.show(*lines, labeled("written", written))
                self.report(**about, output=self.save, bytes=size, seconds=spent)
                return
            page.start()
            url = address(server)
            self.title("view")
            self.show(*lines, labeled("page", f"{url} (Ctrl-C ends it)"))
            self.report(**about, page=url)
            screen = sys.platform in ("win32", "darwin") or _SCREENS & set(os.environ)
            if screen and not self.headless:
                webbrowser.open(url)
            try:
                while True:
                    time.sleep(3600)
            except KeyboardInterrupt:
                self.show("", "ended")
            finally:
                page.stop()

    def _align(self, clouds: list[DisplayCloud]) -> Registration:
        from veckm.tasks.registration import register

        source, target = (torch.from_numpy(cloud.cloud.xyz) for cloud in clouds)
        return register(source, target)

    def _prepare(self) -> tuple[list[DisplayCloud], Settings]:
        from veckm.viewer.display import DisplayCloud
        from veckm.viewer.encodings import Settings

        if self.align and self.other is None:
            raise ValueError("--align moves the first cloud onto a second one; name both")
        if self.dim < 2:
            raise ValueError(f"--dim must be at least 2, got {self.dim}")
        if not 0 <= self.noise <= 100:
            raise ValueError(f"--noise must be from 0 to 100 percent, got {self.noise}")
        if self.cloud is None:
            name, cloud = "sample statue", PointCloud(shapes.statue(_SAMPLE_POINTS).pos.numpy())
        else:
            name, cloud = self.cloud.name, read(self.cloud)
        clouds = [DisplayCloud.of(cloud, name, limit=self.points)]
        if self.other is not None:
            frame = None if self.align else clouds[0]
            name = self.other.name
            clouds.append(DisplayCloud.of(read(self.other), name, limit=self.points, frame=frame))
        radius = Settings.suggested(clouds[0]).radius if self.radius is None else self.radius
        noise = self.noise / 100
        return clouds, Settings(check_positive(radius, "--radius"), dim=self.dim, noise=noise)


def _alignment(found: Registration) -> Alignment:
    from veckm.viewer import Alignment

    parts = (found.transform, found.matches, found.inliers)
    return Alignment(*(part.numpy() for part in parts))


def _confidence(found: Registration) -> str:
    claim = f"confidence {found.confidence:.2f}, overlap {found.overlap:.0%}"
    return claim if found.aligned else f"no, {claim}: {found.note}"


def _describe(pos: Tensor, at: Tensor, radius: float) -> Tensor:  # (N, 3), (M, 3) -> (M, F)
    from veckm.descriptors import describe

    with torch.inference_mode():
        return describe(pos, radius=radius, queries=at)
