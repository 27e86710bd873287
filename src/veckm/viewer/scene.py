"""What stands in the scene: points, normals as lines, and the mark of a picked point."""

from __future__ import annotations

import numpy as np
import viser
from torch import Tensor

from veckm.viewer.shown import Shown

#: More lines than this hide the cloud, and the page becomes slow.
MOST_LINES = 20_000
#: Length of a line, in units of the scene.
_LINE = 0.03
_BLACK = (20, 20, 20)
#: Distance of two clouds' centers that stand side by side, in their widths.
_APART = 1.35


class Stage:
    """One cloud in the scene, whose unit is half of the diagonal of the first cloud's box.

    Args:
        scene: of the server.
        shown: the cloud.
        name: of its nodes in the scene.
        shift: where its center stands.
    """

    def __init__(
        self,
        scene: viser.SceneApi,
        shown: Shown,
        name: str,
        shift: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> None:
        self._scene, self._shown, self._name = scene, shown, name
        self.shift = np.asarray(shift)
        self._points: viser.PointCloudHandle | None = None
        self._lines: viser.LineSegmentsHandle | None = None
        self._marks: list[viser.SceneNodeHandle] = []
        self.placed: np.ndarray = np.zeros((0, 3), dtype=np.float32)

    def draw(
        self,
        at: Tensor,  # (M, 3) about the cloud's center, in the file's units
        rgb: np.ndarray,  # (M, 3) uint8
        point_size: float,
    ) -> None:
        """Put the points, or move and color those that are there."""
        placed = (at.numpy() / self._shown.size + self.shift).astype(np.float32)
        if self._points is None:
            self._points = self._scene.add_point_cloud(
                f"/{self._name}/points",
                placed,
                rgb,
                point_size=point_size,
                point_shape="circle",
                point_shading="flat",  # shaded points would not have the colors of the legend
                precision="float32",
            )
        else:
            if not np.array_equal(placed, self.placed):
                self._points.points = placed
            self._points.colors = rgb
            self._points.point_size = point_size
        self.placed = placed

    def draw_normals(self, normal: np.ndarray | None) -> None:  # (M, 3)
        """Normals as lines, or none; of many points, some."""
        if self._lines is not None:
            self._lines.remove()
            self._lines = None
        if normal is None:
            return
        step = -(-len(normal) // MOST_LINES)
        start = self.placed[::step]
        ends = np.stack([start, start + _LINE * normal[::step]], axis=1)
        self._lines = self._scene.add_line_segments(
            f"/{self._name}/normals", ends, _BLACK, thickness=0.002
        )

    def mark(self, row: int | None, radius: float, point_size: float) -> None:
        """Mark a point and its radius, by three circles, or nothing.

        Args:
            row: of the shown points.
            radius: in the file's units.
            point_size: in units of the scene.
        """
        for node in self._marks:
            node.remove()
        self._marks = []
        if row is None:
            return
        place = self.placed[row].astype(np.float64)
        self._marks = [
            self._scene.add_icosphere(
                f"/{self._name}/picked", 0.8 * point_size, color=_BLACK, position=place
            ),
            self._scene.add_line_segments(
                f"/{self._name}/radius",
                _circles(radius / self._shown.size),
                _BLACK,
                thickness=0.003,
                position=place,
            ),
        ]

    def clear(self) -> None:
        """Take the cloud away."""
        self.draw_normals(None)
        self.mark(None, 0.0, 0.0)
        if self._points is not None:
            self._points.remove()
            self._points = None


def _circles(radius: float) -> np.ndarray:  # (S, 2, 3)
    """A circle about each axis, as segments: a ball would hide the colors in it."""
    angle = np.linspace(0, 2 * np.pi, 73)
    flat = radius * np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)
    rings = [np.roll(flat, turn, axis=1) for turn in range(3)]
    return np.concatenate([np.stack([ring[:-1], ring[1:]], axis=1) for ring in rings])


def beside(shown: Shown) -> tuple[float, float, float]:
    """Where the center of a second cloud stands: to the right of the first, as one sees it."""
    width = float(shown.pos[:, 0].max() - shown.pos[:, 0].min()) / shown.size
    return (max(width, 0.4) * _APART, 0.0, 0.0)


def usual_point_size(count: int) -> float:
    """About the distance between points that cover a surface of the scene's size."""
    return float(np.clip(1.5 / np.sqrt(count), 0.0015, 0.05))


def look(server: viser.ViserServer, shift: tuple[float, float, float] | None = None) -> None:
    """Where the eye is at first: in front, a little above; further away from two clouds."""
    middle = np.zeros(3) if shift is None else np.asarray(shift) / 2
    away = 1.9 if shift is None else 1.9 + 0.6 * float(np.linalg.norm(shift))
    server.initial_camera.look_at = tuple(middle.tolist())
    server.initial_camera.position = tuple((middle + away * np.array([0.25, -0.88, 0.4])).tolist())
