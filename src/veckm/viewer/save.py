"""The scene as one file that opens without a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import viser

from veckm.io.whole import writing
from veckm.viewer.colors import Legend
from veckm.viewer.display import DisplayCloud
from veckm.viewer.panel import list_clouds


def save_html(
    path: str | Path,
    server: viser.ViserServer,
    clouds: Sequence[DisplayCloud],
    legend: Legend,
) -> int:
    """Write the scene and its legend to a file, atomically. Returns the number of bytes.

    The file contains the points, the colors and the program that displays them, and makes no
    requests. The panel is left out: nothing can be encoded without Python.

    Args:
        path: of the file.
        server: whose scene it is.
        clouds: whose names and counts are listed.
        legend: of the colors.
    """
    page = server.scene.as_html()
    box = (
        '<div id="veckm-legend" style="position:fixed;left:12px;bottom:12px;z-index:10;'
        "max-width:340px;padding:8px 4px;background:#fffffff0;color:#222;border-radius:4px;"
        f'box-shadow:0 1px 6px #0003;font-family:sans-serif">{list_clouds(clouds)}{legend.html()}'
        "</div>"
    )
    end = page.rindex("</body>")
    data = (page[:end] + box + page[end:]).encode()
    with writing(Path(path)) as file:
        file.write(data)
    return len(data)
