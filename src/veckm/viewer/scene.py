"""The objects in the scene: points, normals as lines, and the marker of a picked point."""

from __future__ import annotations

from typing import Any

import numpy as np
import viser
from torch import Tensor

from veckm.viewer.display import DisplayCloud

#: More lines than this hide the cloud, and the page becomes slow.
_MAX_LINES = 20_000
#: Length of a line, in units of the scene.
_LENGTH = 0.03
_BLACK = (20, 20, 20)
#: Distance between the centers of two clouds side by side, in widths of the first.
_APART = 1.35
#: The largest distance of a picked point from the ray, as a share of its distance from the camera.
_TOLERANCE = 0.012

Place = tuple[float, float, float]


class SceneCloud:
    """One cloud in the scene, whose unit is half of the diagonal of the first cloud's box."""

    def __init__(
        self, scene: viser.SceneApi, unit: float, name: str, shift: Place = (0.0, 0.0, 0.0)
    ) -> None:
        self._scene, self._unit, self._name, self.shift = scene, unit, name, shift
        self._points: viser.PointCloudHandle | None = None
        self._marks: list[viser.SceneNodeHandle] = []
        self.placed: np.ndarray = np.zeros((0, 3), dtype=np.float32)

    def draw(self, at: Tensor, rgb: np.ndarray, point_size: float) -> None:  # (M, 3), (M, 3) uint8
        """Add the points, or move and color them if they are there; removes lines and marker.

        They are relative to the cloud's center, in the file's units.
        """
        self._remove_marks()
        placed = (at.numpy() / self._unit + np.asarray(self.shift)).astype(np.float32)
        if self._points is None:
            self._points = self._scene.add_point_cloud(
                f"/{self._name}/points",
                placed,
                rgb,
                point_size=point_size,
                point_shape="circle",
                point_shading="flat",  # shading would change the colors of the legend
                precision="float32",
            )
        else:
            if not np.array_equal(placed, self.placed):
                self._points.points = placed
            self._points.colors = rgb
            self._points.point_size = point_size
        self.placed = placed

    def draw_normals(self, normal: np.ndarray) -> None:  # (M, 3)
        """Draw normals as lines, a subset of them if there are many."""
        step = -(-len(normal) // _MAX_LINES)
        start = self.placed[::step]
        ends = np.stack([start, start + _LENGTH * normal[::step]], axis=1)
        self._draw_lines("normals", ends, 0.002)

    def draw_marker(self, row: int, radius: float, point_size: float) -> None:
        """Mark a displayed point and its radius, in the file's units, by three circles."""
        place = self.placed[row].astype(np.float64)
        self._marks.append(
            self._scene.add_icosphere(
                f"/{self._name}/picked", 0.8 * point_size, color=_BLACK, position=place
            )
        )
        angle = np.linspace(0, 2 * np.pi, 73)
        flat = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)
        circles = [np.roll(flat, axis, axis=1) for axis in range(3)]  # a ball would hide the colors
        ends = np.concatenate([np.stack([c[:-1], c[1:]], axis=1) for c in circles])
        self._draw_lines("radius", place + radius / self._unit * ends, 0.003)

    def clear(self) -> None:
        """Remove the cloud from the scene."""
        self._remove_marks()
        if self._points is not None:
            self._points.remove()
            self._points = None

    def _draw_lines(self, name: str, ends: np.ndarray, thickness: float) -> None:
        path = f"/{self._name}/{name}"
        self._marks.append(self._scene.add_line_segments(path, ends, _BLACK, thickness=thickness))

    def _remove_marks(self) -> None:
        while self._marks:
            self._marks.pop().remove()


def side_by_side(display: DisplayCloud) -> Place:
    """Position of the center of a second cloud: to the right of the first."""
    width = float(display.pos[:, 0].max() - display.pos[:, 0].min()) / display.size
    return (max(width, 0.4) * _APART, 0.0, 0.0)


def place_camera(server: viser.ViserServer, shift: Place | None) -> None:
    """Put all cameras in front and a little above, further away from two clouds."""
    middle = np.zeros(3) if shift is None else np.asarray(shift) / 2
    away = 1.9 if shift is None else 1.9 + 0.6 * float(np.linalg.norm(shift))
    clients = server.get_clients().values()
    cameras: list[Any] = [server.initial_camera, *(client.camera for client in clients)]
    for camera in cameras:
        camera.position = tuple((middle + away * np.array([0.25, -0.88, 0.4])).tolist())
        camera.look_at = tuple(middle.tolist())


def pick(points: np.ndarray, origin: Place, direction: Place) -> tuple[int, float] | None:
    """The row of the point (of M, (M, 3)) under a click, and its distance from the camera.

    It is the first along the ray of those close to it, but the distance from the ray counts too, so
    that a point under the cursor wins over a nearer one at the edge.
    """
    offset = points - np.asarray(origin)
    along = offset @ np.asarray(direction)
    across = np.sqrt(np.maximum((offset**2).sum(1) - along**2, 0))
    close = np.flatnonzero((along > 0) & (across <= _TOLERANCE * along))
    if not len(close):
        return None
    row = close[np.argmin(along[close] + 4 * across[close])]
    return int(row), float(along[row])
