"""The objects in the scene: points, lines, and the marker of a picked point."""

from __future__ import annotations

import math
import threading

import numpy as np
import viser

#: Normals that are drawn: more hide the cloud. Their length in units of the scene.
_MAX_NORMALS, _LENGTH = 20_000, 0.03
BLACK = (20, 20, 20)
#: Points of a node, a sample of the whole cloud.
_CHUNK = 250_000
#: The largest distance of a picked point from the ray, as a share of its distance from the camera.
_TOLERANCE = 0.012

Place = tuple[float, float, float]
Rgb = tuple[int, int, int]


class SceneCloud:
    """One cloud in the scene, whose unit is half of the diagonal of the first cloud's box."""

    def __init__(self, scene: viser.SceneApi, name: str) -> None:
        self._scene, self._name = scene, name
        self._points: list[viser.PointCloudHandle] = []
        self._marks: list[viser.SceneNodeHandle] = []
        self._lock = threading.Lock()
        self._drawn = math.inf  # points that are drawn, about, if there are more
        self._size = 1.0
        self.placed: np.ndarray = np.zeros((0, 3), dtype=np.float32)
        self._rgb: np.ndarray = np.zeros((0, 3), dtype=np.uint8)

    def draw(self, placed: np.ndarray, rgb: np.ndarray, size: float) -> None:
        """Add points (M, 3) float32, or color (M, 3) uint8 those that are there; removes marks."""
        self._remove(self._marks)
        with self._lock:
            same = np.array_equal(placed, self.placed)
            self.placed, self._rgb, self._size = placed, rgb, size
            for k, part in enumerate(self._points if same else ()):
                part.colors = self._chunk(rgb, k)
            if not same:
                self._remove(self._points)
            self._send()
        self.resize(size)

    def draw_at_most(self, count: float) -> None:
        """Draw about so many of the points, a sample of all; the others are sent when needed."""
        with self._lock:
            self._drawn = count
            self._send()

    def _chunk(self, values: np.ndarray, k: int) -> np.ndarray:
        """Every n-th row, so that the first chunks are a coarse picture of the whole."""
        return np.ascontiguousarray(values[k :: -(-len(self.placed) // _CHUNK)])

    def _send(self) -> None:
        """Send the chunks that are to be drawn, hide the others."""
        for k, start in enumerate(range(0, len(self.placed), _CHUNK)):
            shown = start < self._drawn
            if k < len(self._points):
                if self._points[k].visible != shown:
                    self._points[k].visible = shown
            elif shown:
                part = self._scene.add_point_cloud(
                    f"/{self._name}/points{k}",
                    self._chunk(self.placed, k),
                    self._chunk(self._rgb, k),
                    point_size=self._size,
                    point_shape="circle",
                    point_shading="flat",  # shading would change the colors of the legend
                    precision="float32",
                )
                self._points.append(part)

    def resize(self, size: float) -> None:
        """Set the size of the points."""
        self._size = size
        for part in self._points:
            if part.point_size != size:
                part.point_size = size

    def draw_normals(self, normal: np.ndarray) -> None:  # (M, 3)
        """Draw normals as lines, a subset of them if there are many."""
        step = -(-len(normal) // _MAX_NORMALS) or 1
        start = self.placed[::step]
        ends = np.stack([start, start + _LENGTH * normal[::step]], axis=1)
        self.draw_lines("normals", ends, BLACK, 0.002)

    def draw_marker(self, place: np.ndarray, size: float, radius: float | None) -> None:
        """Mark a point (3,) by a ball, and a radius around it by three circles."""
        self._marks.append(
            self._scene.add_icosphere(f"/{self._name}/picked", size, color=BLACK, position=place)
        )
        if radius is None:
            return
        angle = np.linspace(0, 2 * np.pi, 73)
        flat = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)
        circles = [np.roll(flat, axis, axis=1) for axis in range(3)]  # a ball would hide the colors
        ends = np.concatenate([np.stack([c[:-1], c[1:]], axis=1) for c in circles])
        self.draw_lines("radius", place + radius * ends, BLACK, 0.003)

    def draw_lines(self, name: str, ends: np.ndarray, color: Rgb, thickness: float) -> None:
        """Draw lines (K, 2, 3) until the next :meth:`draw`."""
        if len(ends):
            path = f"/{self._name}/{name}"
            self._marks.append(
                self._scene.add_line_segments(path, ends, color, thickness=thickness)
            )

    def clear(self) -> None:
        """Remove the cloud from the scene."""
        self._remove(self._marks)
        self._remove(self._points)
        self.placed = self.placed[:0]

    @staticmethod
    def _remove(nodes: list[viser.PointCloudHandle] | list[viser.SceneNodeHandle]) -> None:
        while nodes:
            nodes.pop().remove()


def pick(points: np.ndarray, origin: Place, direction: Place) -> tuple[int, float] | None:
    """The row of the point (of M, (M, 3)) under a click, and its distance from the camera.

    It is the first along the ray of those close to it, but the distance from the ray counts too, so
    that a point under the cursor wins over a nearer one at the edge.
    """
    offset = points - np.asarray(origin, dtype=points.dtype)
    along = offset @ np.asarray(direction, dtype=points.dtype)
    across = np.sqrt(np.maximum(np.einsum("ij,ij->i", offset, offset) - along**2, 0))
    close = np.flatnonzero((along > 0) & (across <= _TOLERANCE * along))
    if not len(close):
        return None
    row = close[np.argmin(along[close] + 4 * across[close])]
    return int(row), float(along[row])
