"""The page on a port of this machine, which must be free, or its scene as one file."""

from __future__ import annotations

import io
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import viser
import websockets.asyncio.server

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
    # viser prints the address; that is up to the caller.
    with redirect_stdout(io.StringIO()), _refusing_other_sites(host):
        server = viser.ViserServer(host=host, port=port, verbose=False)
    try:
        yield server
    finally:
        with redirect_stdout(io.StringIO()):
            server.stop()


def is_own_page(origin: str | None, asked: str | None, host: str) -> bool:
    """Whether a request comes from the page itself, or from no page at all.

    A browser names the page that asks (Origin) and the server that it asks (Host). They must be
    the same, and must not be a name that somebody else can point at this machine.

    Args:
        origin, asked: the two headers.
        host: the address that the server listens at.
    """
    if origin is None:  # not a browser: a page cannot leave it out
        return True
    if urlsplit(origin).netloc != asked:
        return False
    name = urlsplit(origin).hostname or ""
    if name in {"localhost", host, socket.gethostname(), socket.getfqdn()}:
        return True
    try:
        number = ipaddress.ip_address(name)
    except ValueError:
        return False
    return number.is_loopback or host in ("0.0.0.0", "::", "")


@contextmanager
def _refusing_other_sites(host: str) -> Iterator[None]:
    """Servers that viser starts in this block refuse other sites, for which it has no option."""
    library, begun = websockets.asyncio.server, []
    serve = library.serve

    def serve_own(*args: Any, process_request: Any, **more: Any) -> Any:
        begun.append(True)

        def check(connection: Any, request: Any) -> Any:
            headers = request.headers
            own = is_own_page(headers.get("Origin"), headers.get("Host"), host)
            if own:
                return process_request(connection, request)
            return connection.respond(HTTPStatus.FORBIDDEN, "only its own page may connect\n")

        return serve(*args, process_request=check, **more)

    library.serve = serve_own  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        library.serve = serve  # type: ignore[misc]
    if not begun:
        raise RuntimeError(f"viser {viser.__version__} serves in another way; install viser 1.1")


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
