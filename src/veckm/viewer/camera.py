"""Where the camera stands: so far away that the cloud fills the page, with its up direction up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import viser

#: The views of the page: where the camera stands, along right, front and up.
VIEWS = {
    "Fit": (0.35, 0.8, 0.5),
    "Top": (0.0, 1e-3, 1.0),
    "Front": (0.0, 1.0, 1e-3),
    "Side": (1.0, 0.0, 1e-3),
}
#: Directions that may be up.
UPS = ("z", "y", "-y", "-z", "x", "-x")
#: Vertical field of view; width by height, and height in pixels, before a page is open.
FOV, _ASPECT, _HEIGHT = float(np.deg2rad(50.0)), 0.9, 860
#: Share of the points that need not be in the picture: a few are often far away.
_OUTSIDE = 0.01
#: The view of a depth camera: tangents of half its angles, how far off its middle they may be, as a
#: share of them, and the least ratio of the farthest and the nearest point.
_VIEW, _DEPTHS = (0.25, 0.8, 0.25), 1.5
_MARGIN, _SAMPLE = 1.04, 20_000
#: A change of size too small to be seen.
_SAME = 0.02


def likely_up(points: np.ndarray) -> str:  # (M, 3) in the coordinates of the file
    """-y for what a camera at the origin sees, in its frame (x right, y down, z ahead); else z."""
    x, y, z = points.T
    if not z.min() > 0 or z.max() < _DEPTHS * z.min():
        return "z"
    ends = np.quantile([x / z, y / z], [_OUTSIDE / 2, 1 - _OUTSIDE / 2], axis=1)  # low, high
    middle, half = np.abs(ends.mean(0)), np.diff(ends, axis=0)[0] / 2
    seen = (half > _VIEW[0]) & (half < _VIEW[1]) & (middle < _VIEW[2] * half)
    return "-y" if seen.all() else "z"


def basis(up: str) -> np.ndarray:  # (3, 3)
    """Right, front (towards the viewer) and up, as rows."""
    above = np.zeros(3)
    above["xyz".index(up[-1])] = -1.0 if up.startswith("-") else 1.0
    right = np.array([0.0, 1, 0]) if up[-1] == "x" else np.array([1.0, 0, 0])
    return np.stack([right, np.cross(right, above), above])


def fit(
    points: np.ndarray,  # (M, 3)
    view: str,
    up: str = "z",
    aspect: float = _ASPECT,
    fov: float = FOV,
) -> tuple[np.ndarray, np.ndarray]:  # (3,), (3,)
    """Position of the camera, and where it looks, so that 99 % of the points fill the page."""
    points = points[:: max(1, len(points) // _SAMPLE)].astype(np.float64)
    back = np.array(VIEWS[view]) @ basis(up)
    back /= np.linalg.norm(back)
    right = np.cross(basis(up)[2], back)
    right /= np.linalg.norm(right)
    above = np.cross(back, right)
    ends = np.quantile(points, [_OUTSIDE / 2, 1 - _OUTSIDE / 2], axis=0)
    middle, tangent = ends.mean(0), np.tan(fov / 2)
    for _ in range(3):  # perspective moves the middle of the picture
        x, y, z = ((points - middle) @ np.stack([right, above, back]).T).T
        needed = np.maximum(np.abs(x) / aspect, np.abs(y)) / tangent + z
        away = max(float(np.quantile(needed, 1 - _OUTSIDE)), 1e-3) * _MARGIN
        depth = np.maximum(away - z, 0.05 * away)
        x_ends, y_ends = (np.quantile(v / depth, [_OUTSIDE, 1 - _OUTSIDE]) for v in (x, y))
        middle = middle + away * (x_ends.mean() * right + y_ends.mean() * above)
    return middle + away * back, middle


class Cameras:
    """The cameras of all pages. A page that changes its shape is shown the cloud anew.

    Attributes:
        pixel: the size that a page draws as one pixel at the middle of the picture.
        fitted: the same where the whole cloud fills the page.
    """

    def __init__(self, server: viser.ViserServer, moved: Callable[[], None]) -> None:
        self._server, self._moved = server, moved
        self._points, self._view, self._up = np.zeros((1, 3)), "Fit", "z"
        self._last: dict[int, tuple[np.ndarray, float]] = {}  # position and shape of each page
        self.pixel = self.fitted = 1e-3
        self._answered = False  # whether a page has told where its camera is

    def follow(self) -> None:
        """Place the cameras of pages that open from now on, and call ``moved`` when one moves."""
        self._server.on_client_connect(self._connected)

    def show(self, points: np.ndarray, view: str, up: str) -> None:
        """Show points (M, 3) in all pages, and in those to come."""
        clients = self._server.get_clients().values()
        if up != self._up or not clients:  # an open page would go back to the initial camera
            self._server.scene.set_up_direction(("+" + up)[-2:])  # type: ignore[arg-type]
            position, target = fit(points, view, up)
            self._server.initial_camera.fov = FOV
            _place(self._server.initial_camera, position, target)
            self.pixel = self.fitted = _pixel(position - target, FOV, _HEIGHT)
        self._points, self._view, self._up = points, view, up
        for client in clients:
            self._place(client)

    def _connected(self, client: viser.ClientHandle) -> None:
        self._place(client)
        client.camera.on_update(lambda camera: self._follow(client, camera))

    def _place(self, client: viser.ClientHandle) -> None:
        camera = client.camera
        position, target = fit(self._points, self._view, self._up, camera.aspect, camera.fov)
        self._last[client.client_id] = position, camera.aspect
        self.fitted = _pixel(position - target, camera.fov, camera.image_height)
        with client.atomic():
            _place(camera, position, target)

    def _follow(self, client: viser.ClientHandle, camera: viser.CameraHandle) -> None:
        position, aspect = self._last[client.client_id]
        away = camera.position - camera.look_at
        still = np.linalg.norm(camera.position - position) < 0.01 * np.linalg.norm(away)
        if still and abs(camera.aspect - aspect) > 0.01 * aspect:
            self._place(client)  # the page answers with its new camera
            return
        now = _pixel(away, camera.fov, camera.image_height)
        if abs(now - self.pixel) > _SAME * self.pixel or not self._answered:
            self.pixel, self._answered = now, True
            self._moved()


def _place(camera: Any, position: np.ndarray, target: np.ndarray) -> None:
    camera.position, camera.look_at = tuple(position.tolist()), tuple(target.tolist())


def _pixel(away: np.ndarray, fov: float, height: int) -> float:
    """viser draws a point of size s at depth z with s / tan(fov / 2) * height / z pixels."""
    return float(np.linalg.norm(away) * np.tan(fov / 2) / max(height, 1))
