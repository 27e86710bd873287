"""Only the page itself may connect: another site in the same browser must not see the cloud."""

from __future__ import annotations

import pytest

pytest.importorskip("viser", reason="viser is not installed: pip install 'veckm[viewer]'")

import urllib.request

import viser
import websockets.asyncio.server
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from veckm.viewer import serve
from veckm.viewer.server import address, is_own_page


@pytest.mark.parametrize(
    ("origin", "asked", "host", "own"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1", True),
        ("http://localhost:9000", "localhost:9000", "127.0.0.1", True),  # through a tunnel
        ("http://[::1]:8080", "[::1]:8080", "::1", True),
        (None, "127.0.0.1:8080", "127.0.0.1", True),  # a program, not a page
        ("http://example.com", "127.0.0.1:8080", "127.0.0.1", False),
        ("http://localhost:3000", "localhost:8080", "127.0.0.1", False),
        ("null", "127.0.0.1:8080", "127.0.0.1", False),
        ("http://rebound.example:8080", "rebound.example:8080", "127.0.0.1", False),
        ("http://rebound.example:8080", "rebound.example:8080", "0.0.0.0", False),
        ("http://192.0.2.7:8080", "192.0.2.7:8080", "0.0.0.0", True),
        ("http://192.0.2.7:8080", "192.0.2.7:8080", "127.0.0.1", False),
        ("http://scanner.example:8080", "scanner.example:8080", "scanner.example", True),
    ],
)
def test_a_page_is_the_own_one_or_not(origin, asked, host, own):
    assert is_own_page(origin, asked, host) is own


def test_other_sites_are_refused_and_the_page_is_not():
    with serve(port=0) as server:
        url = address(server)
        socket, protocol = url.replace("http", "ws"), [f"viser-v{viser.__version__}"]
        for origin in ("http://example.com", "http://127.0.0.1:1", "null"):
            with pytest.raises(InvalidStatus) as refused:
                connect(socket, origin=origin, subprotocols=protocol)
            assert refused.value.response.status_code == 403
        with connect(socket, origin=url, subprotocols=protocol) as own:
            assert own.recv(timeout=20)
        with urllib.request.urlopen(url, timeout=20) as page:  # the program is no secret
            assert page.status == 200


def test_websockets_are_as_they_were_after_the_server_began():
    before = websockets.asyncio.server.serve
    with serve(port=0):
        assert websockets.asyncio.server.serve is before
