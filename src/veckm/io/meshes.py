"""Meshes in files: PLY, OFF, OBJ, STL and GLB as corners and triangles, and sampled to points."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from veckm.cloud import PointCloud
from veckm.io import glb, ply_header
from veckm.io.errors import FileError
from veckm.io.ply_header import Polygons


def read_triangles(path: Path) -> tuple[np.ndarray, np.ndarray]:  # (V, 3) float64, (F, 3) int64
    """The triangles of a PLY, OFF, OBJ, STL or GLB file; polygons are cut into fans.

    STL repeats the corners of every face, and so does its mesh.
    """
    kind = path.suffix.lower()
    if kind not in _READERS:
        raise FileError(
            path, f"cannot read {path.suffix or 'such'} files; supported: {' '.join(_READERS)}"
        )
    data = path.read_bytes()
    try:
        vertices, polygons = _READERS[kind](data)
        faces = _fans(*polygons)
        _check(vertices, faces)
    except (ValueError, LookupError, OverflowError, RecursionError) as error:
        raise FileError(path, f"cannot be read as {kind[1:].upper()}: {error}") from error
    return np.array(vertices, dtype=np.float64), faces


def _check(vertices: np.ndarray, faces: np.ndarray) -> None:
    if not len(faces):
        raise ValueError("it has no faces")
    if not np.isfinite(vertices).all():
        raise ValueError("vertices have NaN or infinite coordinates")
    if not 0 <= faces.min() <= faces.max() < len(vertices):
        raise ValueError(
            f"faces name vertices {faces.min()} to {faces.max()}, but there are {len(vertices)}"
        )


def sample(path: Path, samples: int, seed: int = 0) -> PointCloud:
    """Points of a mesh, uniform by area, with the normals of the faces they lie on.

    Args:
        path: the file.
        samples: number of points.
        seed: of the draws.
    """
    import torch

    # The one thing that files borrow from the data: there is one way to sample a mesh.
    from veckm.data.meshes import Mesh, sample_mesh

    vertices, faces = read_triangles(path)
    used = vertices[faces.reshape(-1)]
    middle = used.min(0) / 2 + used.max(0) / 2  # about which float32 is fine enough
    mesh = Mesh(torch.from_numpy(vertices - middle), torch.from_numpy(faces))
    try:
        shape = sample_mesh(mesh, samples, seed)
    except ValueError as error:
        raise FileError(path, error) from error
    assert shape.normal is not None
    return PointCloud(shape.pos.numpy(), middle).with_normals(shape.normal.numpy())


def _fans(
    flat: np.ndarray,  # (S,)
    sides: np.ndarray,  # (P,)
) -> np.ndarray:  # (F, 3)
    """Polygon v0 v1 ... vk as the triangles v0 v1 v2, v0 v2 v3, ...; none of fewer corners."""
    start = np.cumsum(sides) - sides
    count = np.maximum(sides - 2, 0)
    polygon = np.repeat(np.arange(len(sides)), count)
    step = np.arange(len(polygon)) - np.repeat(np.cumsum(count) - count, count)
    first = start[polygon]
    corner = np.stack((first, first + step + 1, first + step + 2), axis=-1)
    if not bool(((flat == np.floor(flat)) & (np.abs(flat) < 2.0**53)).all()):
        raise ValueError("the corners of its faces are not whole numbers")
    return np.asarray(flat.astype(np.int64)[corner])


def _ragged(rows: Sequence[Sequence[int]]) -> Polygons:
    sides = np.array([len(row) for row in rows], dtype=np.int64)
    return np.array([i for row in rows for i in row], dtype=np.int64), sides


def _read_ply(data: bytes) -> tuple[np.ndarray, Polygons]:
    header = ply_header.parse(data)
    body = data[header.size :]
    if header.order:
        units = np.frombuffer(body, np.uint8)
    else:
        units = np.array(body.split(), dtype=np.float64)
    source = ply_header.Records(units, header.order)
    found = {element.name: source.read(element) for element in header.elements}
    vertex, face = found.get("vertex", {}), found.get("face", {})
    corners = face.get("vertex_indices") or face.get("vertex_index")
    if not {"x", "y", "z"} <= set(vertex) or corners is None:
        raise ValueError("it has no vertices with x, y, z or no faces with vertex_indices")
    return np.stack([vertex[axis][0] for axis in "xyz"], axis=-1), corners


def _read_off(data: bytes) -> tuple[np.ndarray, Polygons]:
    lines = [words for line in data.splitlines() if (words := line.split(b"#")[0].split())]
    # Some files have the counts on the first line, and some even without a space between.
    head = re.fullmatch(rb"(?:ST)?C?N?OFF(\d*)", lines[0][0]) if lines else None
    if head is None:
        raise ValueError("it does not start with OFF")
    counts, rows = [word for word in (head[1], *lines[0][1:]) if word], lines[1:]
    if not counts:
        counts, rows = rows[0], rows[1:]
    v, f = int(counts[0]), int(counts[1])
    if min(v, f) < 0 or v + f > len(rows):
        raise ValueError(f"it says {v} vertices and {f} faces, but has {len(rows)} lines")
    faces = [[int(word) for word in row[: max(int(row[0]), 0) + 1]] for row in rows[v : v + f]]
    if any(len(face) != face[0] + 1 for face in faces):
        raise ValueError("a face has fewer corners than it says")
    vertices = np.array([row[:3] for row in rows[:v]], dtype=np.float64).reshape(-1, 3)
    return vertices, _ragged([face[1:] for face in faces])


def _read_obj(data: bytes) -> tuple[np.ndarray, Polygons]:
    vertices: list[list[bytes]] = []
    faces: list[list[int]] = []
    for line in data.replace(b"\\\r\n", b" ").replace(b"\\\n", b" ").splitlines():
        match line.split(b"#")[0].split():
            case [b"v", x, y, z, *_]:
                vertices.append([x, y, z])
            case [b"v", *_]:
                raise ValueError(f"vertex {len(vertices) + 1} has fewer than three coordinates")
            case [b"f", *corners]:
                numbers = [int(corner.split(b"/")[0]) for corner in corners]
                # They count from 1, or back from the last vertex so far; 0 becomes -1, an error.
                faces.append([i + len(vertices) if i < 0 else i - 1 for i in numbers])
    return np.array(vertices, dtype=np.float64).reshape(-1, 3), _ragged(faces)


_STL = np.dtype([("normal", "<f4", (3,)), ("corners", "<f4", (3, 3)), ("extra", "<u2")])


def _read_stl(data: bytes) -> tuple[np.ndarray, Polygons]:
    count = int.from_bytes(data[80:84], "little") if len(data) >= 84 else -1
    # "solid" starts text files and some binary ones too: the length decides.
    if len(data) != 84 + 50 * count and data.lstrip().startswith(b"solid"):
        words = re.findall(rb"(?i)vertex\s+(\S+)\s+(\S+)\s+(\S+)", data)
        if len(words) % 3 or b"endsolid" not in data.lower():
            raise ValueError("it ends in the middle of a face")
        corners = np.array(words, dtype=np.float64).reshape(-1, 3)
    elif count < 0:
        raise ValueError("it is shorter than the header of an STL file")
    elif 84 + 50 * count > len(data):
        raise ValueError(f"it says {count} faces, more than it has room for")
    else:
        corners = np.frombuffer(data, _STL, count, 84)["corners"].astype(np.float64).reshape(-1, 3)
    return corners, (np.arange(len(corners)), np.full(len(corners) // 3, 3))


def _read_glb(data: bytes) -> tuple[np.ndarray, Polygons]:
    vertices, faces = glb.triangles(data)
    return vertices, (faces.reshape(-1), np.full(len(faces), 3))


_READERS: dict[str, Callable[[bytes], tuple[np.ndarray, Polygons]]] = {
    ".ply": _read_ply,
    ".off": _read_off,
    ".obj": _read_obj,
    ".stl": _read_stl,
    ".glb": _read_glb,
}

#: Endings of the files that :func:`read_triangles` knows.
SUFFIXES = tuple(_READERS)
