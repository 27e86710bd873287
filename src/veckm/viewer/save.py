"""The scene as one file that opens without a server."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import viser

from veckm.io.atomic import writing
from veckm.viewer.colors import Legend
from veckm.viewer.shown import Shown


def save_html(
    path: str | Path,
    server: viser.ViserServer,
    clouds: Sequence[Shown],
    legend: Legend,
) -> int:
    """Write what the scene shows, with its legend; the bytes written.

    The file holds the points, the colors and the program that shows them, and asks nothing of
    any server. The panel is not in it: nothing can be encoded without Python.

    Args:
        path: of the file, whole or not there.
        server: whose scene it is.
        clouds: whose names and counts stand on the page.
        legend: what the colors mean.
    """
    page = server.scene.as_html()
    lines = "".join(f"<div><b>{escape(c.name)}</b>: {escape(c.note)}</div>" for c in clouds)
    box = (
        '<div id="veckm-legend" style="position:fixed;left:12px;bottom:12px;z-index:10;'
        "max-width:340px;padding:8px 4px;background:#fffffff0;color:#222;border-radius:4px;"
        'box-shadow:0 1px 6px #0003;font-family:sans-serif;font-size:12px">'
        f'<div style="padding:0 12px 4px">{lines}</div>{legend.html()}</div>'
    )
    end = page.rindex("</body>")
    data = (page[:end] + box + page[end:]).encode()
    with writing(Path(path)) as file:
        file.write(data)
    return len(data)
