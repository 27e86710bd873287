"""The page on a port of this machine, which must be free, or its scene as one file."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import viser

from veckm.io.atomic import writing
from veckm.viewer.colors import Legend
from veckm.viewer.display import DisplayCloud
from veckm.viewer.panel import list_clouds


@contextmanager
def serve(host: str = "127.0.0.1", port: int = 8080) -> Iterator[viser.ViserServer]:
    """A server that stops at the end of the block.

    Args:
        host: the address to listen at. 127.0.0.1 can be reached from this machine only; whoever
            reaches any other address sees the cloud and can move the sliders.
        port: 0 takes any that is free.

    Raises:
        OSError: if the port is busy or the address is not one of this machine's.
    """
    check_free(host, port)
    with redirect_stdout(io.StringIO()):  # viser prints the address; that is up to the caller
        server = viser.ViserServer(host=host, port=port, verbose=False)
    try:
        yield server
    finally:
        with redirect_stdout(io.StringIO()):
            server.stop()


def address(server: viser.ViserServer) -> str:
    """The address to open in a browser."""
    host = server.get_host()
    host = "127.0.0.1" if host in ("0.0.0.0", "") else host
    return f"http://{f'[{host}]' if ':' in host else host}:{server.get_port()}"


def check_free(host: str, port: int) -> None:
    """Raise if the port cannot be used: viser would silently take another one."""
    if not 0 <= port < 65536:
        raise ValueError(f"port must be from 0 to 65535, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        advice = "choose another with --port, or --port 0 for any"
        raise OSError(f"cannot listen at {host} port {port}: {error.strerror}; {advice}") from error


def save_html(
    path: str | Path, server: viser.ViserServer, clouds: Sequence[DisplayCloud], legend: Legend
) -> int:
    """Write the scene and its legend to a file, atomically. Returns the number of bytes.

    The file contains all that displays it, and makes no requests. The panel is left out: nothing
    can be encoded without Python. The clouds are listed above the legend.
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
