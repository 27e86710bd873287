"""The objects in the scene: points, normals as lines, and the marker of a picked point."""

from __future__ import annotations

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


class SceneCloud:
    """One cloud in the scene, whose unit is half of the diagonal of the first cloud's box.

    Args:
        scene: of the server.
        display: the cloud.
        name: of its nodes in the scene.
        shift: position of its center.
    """

    def __init__(
        self,
        scene: viser.SceneApi,
        display: DisplayCloud,
        name: str,
        shift: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> None:
        self._scene, self._unit, self._name = scene, display.size, name
        self.shift = shift
        self._points: viser.PointCloudHandle | None = None
        self._lines: list[viser.SceneNodeHandle] = []
        self._marker: list[viser.SceneNodeHandle] = []
        self.placed: np.ndarray = np.zeros((0, 3), dtype=np.float32)

    def draw(
        self,
        at: Tensor,  # (M, 3) relative to the cloud's center, in the file's units
        rgb: np.ndarray,  # (M, 3) uint8
        point_size: float,
    ) -> None:
        """Add the points, or move and color them if they are there."""
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

    def draw_normals(self, normal: np.ndarray | None) -> None:  # (M, 3)
        """Draw normals as lines, a subset of them if there are many; None removes them."""
        _remove(self._lines)
        if normal is not None:
            step = -(-len(normal) // _MAX_LINES)
            start = self.placed[::step]
            ends = np.stack([start, start + _LENGTH * normal[::step]], axis=1)
            self._lines = [self._segments("normals", ends, 0.002)]

    def draw_marker(self, row: int | None, radius: float, point_size: float) -> None:
        """Mark a displayed point and its radius, by three circles; None removes the marker.

        Args:
            row: of the displayed points.
            radius: in the file's units.
            point_size: in units of the scene.
        """
        _remove(self._marker)
        if row is not None:
            place = self.placed[row].astype(np.float64)
            dot = self._scene.add_icosphere(
                f"/{self._name}/picked", 0.8 * point_size, color=_BLACK, position=place
            )
            self._marker = [dot, self._segments("radius", place + _circles(radius / self._unit))]

    def clear(self) -> None:
        """Remove the cloud from the scene."""
        _remove(self._lines)
        _remove(self._marker)
        if self._points is not None:
            self._points.remove()
            self._points = None

    def _segments(
        self, name: str, ends: np.ndarray, thickness: float = 0.003
    ) -> viser.SceneNodeHandle:
        path = f"/{self._name}/{name}"
        return self._scene.add_line_segments(path, ends, _BLACK, thickness=thickness)


def _remove(nodes: list[viser.SceneNodeHandle]) -> None:
    while nodes:
        nodes.pop().remove()


def _circles(radius: float) -> np.ndarray:  # (S, 2, 3)
    """A circle about each axis, as segments: a ball would hide the colors inside."""
    angle = np.linspace(0, 2 * np.pi, 73)
    flat = radius * np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)
    circles = [np.roll(flat, axis, axis=1) for axis in range(3)]
    return np.concatenate([np.stack([c[:-1], c[1:]], axis=1) for c in circles])


def side_by_side(display: DisplayCloud) -> tuple[float, float, float]:
    """Position of the center of a second cloud: to the right of the first."""
    width = float(display.pos[:, 0].max() - display.pos[:, 0].min()) / display.size
    return (max(width, 0.4) * _APART, 0.0, 0.0)


def default_point_size(count: int) -> float:
    """About the distance between points that cover a surface of the scene's size."""
    return float(np.clip(1.5 / np.sqrt(count), 0.0015, 0.05))


def place_camera(server: viser.ViserServer, shift: tuple[float, float, float] | None) -> None:
    """Put the initial camera in front and a little above, further away from two clouds."""
    middle = np.zeros(3) if shift is None else np.asarray(shift) / 2
    away = 1.9 if shift is None else 1.9 + 0.6 * float(np.linalg.norm(shift))
    server.initial_camera.look_at = tuple(middle.tolist())
    server.initial_camera.position = tuple((middle + away * np.array([0.25, -0.88, 0.4])).tolist())
