"""GLB, the binary form of glTF 2.0: the triangles of its scene, where its nodes put them."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

_KINDS = {5120: "i1", 5121: "u1", 5122: "i2", 5123: "u2", 5125: "u4", 5126: "f4"}
_WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}
_DEEPEST = 100
_MODES = {4: "triangles", 5: "strip", 6: "fan"}


@dataclass(frozen=True)
class _Scene:
    """The description, the bytes it points to, and how many numbers may come out of them."""

    tree: dict[str, Any]
    data: bytes

    def part(self, kind: str, index: Any) -> dict[str, Any]:
        parts = self.tree.get(kind)
        known = isinstance(parts, list) and isinstance(index, int) and 0 <= index < len(parts)
        if not known or not isinstance(parts[index], dict):  # type: ignore[index]
            raise ValueError(f"it has no entry {str(index)[:20]} among its {kind}")
        found: dict[str, Any] = parts[index]  # type: ignore[index]
        return found

    def accessor(self, index: Any) -> np.ndarray:  # (count, width)
        """The numbers of an accessor."""
        what = self.part("accessors", index)
        if "sparse" in what:
            raise ValueError("it has sparse accessors, which are not supported")
        view = self.part("bufferViews", what.get("bufferView"))
        kind = _KINDS.get(_number(what, "componentType"))
        width = _WIDTHS.get(str(what.get("type")))
        if kind is None or width is None or _number(view, "buffer"):
            raise ValueError("one of its accessors is of an unknown kind or in another file")
        count, at = _number(what, "count"), _number(what, "byteOffset")
        begin, length = _number(view, "byteOffset"), _number(view, "byteLength")
        item = np.dtype("<" + kind).itemsize * width
        step = _number(view, "byteStride") or item
        end = begin + length
        if (
            not count
            or step < item
            or end > len(self.data)
            or at + step * (count - 1) + item > length
        ):
            raise ValueError(
                f"one of its accessors says {count} entries, more than it has room for"
            )
        raw = np.frombuffer(self.data, np.uint8, end - begin, begin)[at:]
        rows = np.lib.stride_tricks.as_strided(raw, (count, item), (step, 1))
        return np.ascontiguousarray(rows).view("<" + kind)


def _number(entry: dict[str, Any], key: str) -> int:
    value = entry.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**48:
        raise ValueError(f"its {key} is {str(value)[:40]!r}")
    return value


def triangles(data: bytes) -> tuple[np.ndarray, np.ndarray]:  # (V, 3) float64, (F, 3) int64
    """Corners and triangles of all meshes of the scene, each where its node puts it."""
    scene = _open(data)
    places = _instances(scene)
    vertices: list[np.ndarray] = []
    faces: list[np.ndarray] = []
    count = 0
    for mesh, matrix in places:
        primitives = scene.part("meshes", mesh).get("primitives")
        for primitive in primitives if isinstance(primitives, list) else []:
            found = _primitive(scene, primitive)
            if found is None:
                continue
            corners, triple = found
            vertices.append(corners @ matrix[:3, :3].T + matrix[:3, 3])
            faces.append(triple + count)
            count += len(corners)
            if count > len(data):  # the same mesh many times over
                raise ValueError("its nodes repeat its meshes beyond measure")
    if not faces:
        raise ValueError("it has no faces")
    return np.concatenate(vertices), np.concatenate(faces)


def _open(data: bytes) -> _Scene:
    if len(data) < 20 or data[:4] != b"glTF":
        raise ValueError("it does not start with glTF")
    version, length = struct.unpack_from("<II", data, 4)
    if version != 2 or length > len(data):
        raise ValueError(f"it is version {version} and says {length} of {len(data)} bytes")
    chunks: dict[bytes, bytes] = {}
    at = 12
    while at + 8 <= length:
        size, kind = struct.unpack_from("<I4s", data, at)
        if at + 8 + size > length:
            raise ValueError("one of its chunks ends beyond the file")
        chunks.setdefault(kind, data[at + 8 : at + 8 + size])
        at += 8 + size
    tree = json.loads(chunks.get(b"JSON", b"").decode("utf-8"))
    if not isinstance(tree, dict):
        raise ValueError("its description is no object")
    required = tree.get("extensionsRequired")
    if required:
        raise ValueError(f"it needs {str(required)[:80]}, which is not supported")
    return _Scene(tree, chunks.get(b"BIN\0", b""))


def _instances(scene: _Scene) -> list[tuple[Any, np.ndarray]]:
    """Meshes of the scene with their (4, 4) matrices; all meshes as they are without a scene."""
    if not isinstance(scene.tree.get("scenes"), list):
        meshes = scene.tree.get("meshes")
        return [(i, np.eye(4)) for i in range(len(meshes) if isinstance(meshes, list) else 0)]
    root = scene.part("scenes", scene.tree.get("scene", 0)).get("nodes", [])
    found: list[tuple[Any, np.ndarray]] = []
    todo = [(index, np.eye(4), 0) for index in (root if isinstance(root, list) else [])]
    most = len(scene.tree.get("nodes") or []) + 1
    while todo:
        index, above, depth = todo.pop()
        node = scene.part("nodes", index)
        most -= 1
        if depth > _DEEPEST or most < 0:
            raise ValueError("its nodes are their own children")
        matrix = above @ _matrix(node)
        if "mesh" in node:
            found.append((node["mesh"], matrix))
        children = node.get("children", [])
        todo += [(i, matrix, depth + 1) for i in (children if isinstance(children, list) else [])]
    return found


def _matrix(node: dict[str, Any]) -> np.ndarray:  # (4, 4)
    if "matrix" in node:
        return _floats(node["matrix"], 16).reshape(4, 4).T
    x, y, z, w = _floats(node.get("rotation", (0, 0, 0, 1)), 4)
    turn = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
    out = np.eye(4)
    out[:3, :3] = turn * _floats(node.get("scale", (1, 1, 1)), 3)
    out[:3, 3] = _floats(node.get("translation", (0, 0, 0)), 3)
    return out


def _floats(values: Any, count: int) -> np.ndarray:
    good = isinstance(values, list | tuple) and len(values) == count
    if not good or not all(isinstance(v, int | float) and abs(v) < 1e30 for v in values):
        raise ValueError(f"a node has {str(values)[:60]} for {count} numbers")
    return np.array(values, dtype=np.float64)


def _primitive(scene: _Scene, primitive: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Corners (V, 3) and triangles (F, 3) of one part of a mesh; None for points and lines."""
    if not isinstance(primitive, dict) or not isinstance(primitive.get("attributes"), dict):
        raise ValueError("one of its meshes has no attributes")
    mode = primitive.get("mode", 4)
    if mode not in _MODES or "POSITION" not in primitive["attributes"]:
        return None
    corners = scene.accessor(primitive["attributes"]["POSITION"])
    if corners.shape[1] != 3 or corners.dtype != np.dtype("<f4"):
        raise ValueError("its positions are not three float32")
    if "indices" in primitive:
        index = scene.accessor(primitive["indices"])
        if index.dtype.kind != "u" or index.shape[1] != 1:
            raise ValueError("its indices are not whole numbers")
        order = index[:, 0].astype(np.int64)
    else:
        order = np.arange(len(corners))
    if len(order) and order.max() >= len(corners):
        raise ValueError(f"faces name vertices to {order.max()}, but there are {len(corners)}")
    return corners.astype(np.float64), _faces(order, _MODES[mode])


def _faces(order: np.ndarray, mode: str) -> np.ndarray:  # (F, 3)
    if mode == "triangles":
        return order[: len(order) // 3 * 3].reshape(-1, 3)
    if len(order) < 3:
        return np.zeros((0, 3), np.int64)
    if mode == "fan":
        first = np.full(len(order) - 2, order[0])
        return np.stack([first, order[1:-1], order[2:]], axis=-1)
    strip = np.stack([order[:-2], order[1:-1], order[2:]], axis=-1)
    strip[1::2] = strip[1::2][:, [1, 0, 2]]  # every other one is turned
    return strip
