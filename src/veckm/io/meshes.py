"""Meshes: OFF by ourselves, PLY, OBJ, STL and GLB through trimesh (extra ``mesh``)."""

from __future__ import annotations

import re
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from veckm.cloud import PointCloud
from veckm.extras import need
from veckm.io.errors import FileError, guarded
from veckm.io.ply import read_header, text_lengths
from veckm.io.records import parse

#: Suffixes of the files that :func:`read_triangles` reads.
SUFFIXES = (".ply", ".off", ".obj", ".stl", ".glb")
_UNEVEN = "it is cut short, or its faces have different numbers of corners; triangulate it first"


def read_triangles(path: Path) -> tuple[np.ndarray, np.ndarray]:  # (V, 3) float64, (F, 3) int64
    """The triangles of a PLY, OFF, OBJ, STL or GLB file; polygons are split into fans.

    OFF, in which ModelNet comes, needs no extra. STL repeats the vertices of every face.
    """
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise FileError(
            path, f"cannot read {path.suffix or 'such'} files; supported: {' '.join(SUFFIXES)}"
        )
    with path.open("rb") as file:
        try:
            with guarded(path, f"read as {kind[1:].upper()}"):
                vertices, faces = _read_off(file.read()) if kind == ".off" else _load(file, kind)
                vertices, faces = np.asarray(vertices, np.float64), np.asarray(faces, np.int64)
                check_triangles(vertices, faces)
        except MemoryError as error:  # what trimesh raises for some broken files
            raise FileError(path, f"cannot be read as {kind[1:].upper()}: {error}") from error
    return vertices, faces


def sample(path: Path, samples: int, seed: int = 0) -> PointCloud:
    """Points on a mesh, uniform by area, with the normals of their faces.

    Args:
        path: the file.
        samples: number of points.
        seed: of the random numbers.
    """
    trimesh: Any = need("trimesh", "sampling meshes", "mesh")
    vertices, faces = read_triangles(path)
    used = vertices[faces.reshape(-1)]
    center = used.min(0) / 2 + used.max(0) / 2  # about which float32 is fine enough
    mesh = trimesh.Trimesh(vertices - center, faces, process=False)
    if not np.isfinite(mesh.area) or not mesh.area > 0:
        raise FileError(path, f"has no area: none of its {len(faces)} faces has any")
    pos, face = trimesh.sample.sample_surface(mesh, samples, seed=seed)
    normals = np.asarray(mesh.face_normals[face], np.float32)
    return PointCloud(np.asarray(pos, np.float32), center).with_normals(normals)


def _load(file: Any, kind: str) -> tuple[Any, Any]:
    trimesh: Any = need("trimesh", f"reading {kind[1:].upper()} meshes", "mesh")
    if kind == ".obj":
        if re.search(rb"^f[ \t](.*[ \t])?0+([/ \t\r]|$)", file.read(), re.MULTILINE):
            raise ValueError("a face names vertex 0, but OBJ counts from 1")
        file.seek(0)
    try:
        mesh = trimesh.load_mesh(file, file_type=kind[1:], process=False, skip_materials=True)
    except ValueError as error:
        raise ValueError(_UNEVEN) if "unexpected length" in str(error) else error from error
    except ImportError as error:  # trimesh would guess the encoding of text with another package
        raise ValueError("it is neither binary nor UTF-8 text") from error
    if kind == ".ply":
        _check_ply(Path(file.name), mesh)
    return mesh.vertices, mesh.faces


def _check_ply(path: Path, mesh: Any) -> None:
    """Raise where trimesh leaves out missing lines and numbers, rounds the numbers of vertices, or
    takes all faces for as long as the first."""
    header = read_header(path)
    for element in header.elements:
        found = {"vertex": len(mesh.vertices), "face": len(mesh.faces)}.get(element.name)
        if found is not None and found < element.count:
            raise ValueError(
                f"it promises {element.count} of element {element.name}, but has {found}"
            )
    if header.format == "ascii":
        body = path.read_bytes()[header.size :]
        lines = (line for line in body.split(b"\n") if line.strip())
        for element in header.elements:
            groups: dict[tuple[int, ...], list[bytes]] = {}  # lines by the lengths of their lists
            for line in islice(lines, element.count):
                groups.setdefault(tuple(text_lengths(element, line.split())), []).append(line)
            for lengths, some in groups.items():
                parse(some, element.dtype(lengths))
    faces = mesh.metadata["_ply_raw"].get("face", {}).get("data")
    if isinstance(faces, np.ndarray):  # of a binary file
        for name in faces.dtype.names or ():
            list_of = faces[name].dtype.names  # its length, its numbers
            if list_of and len(np.unique(faces[name][list_of[0]])) > 1:
                raise ValueError(_UNEVEN)


def check_triangles(vertices: np.ndarray, faces: np.ndarray) -> None:
    """Raise unless there are faces, of vertices that there are, with finite coordinates."""
    if not len(faces):
        raise ValueError("it has no faces")
    if not 0 <= faces.min() <= faces.max() < len(vertices):
        raise ValueError(
            f"faces name vertices {faces.min()} to {faces.max()}, but there are {len(vertices)}"
        )
    if not np.isfinite(vertices).all():
        raise ValueError("vertices have NaN or infinite coordinates")


def _read_off(data: bytes) -> tuple[Any, Any]:
    lines = [words for line in data.splitlines() if (words := line.split(b"#")[0].split())]
    # Some files have the counts on the first line, and some even without a space between.
    head = re.fullmatch(rb"(?:ST)?C?N?OFF(\d*)", lines[0][0]) if lines else None
    if head is None:
        raise ValueError("it does not start with OFF")
    rest = ([head[1]] if head[1] else []) + lines[0][1:]
    counts, body = (rest, lines[1:]) if rest else (lines[1] if len(lines) > 1 else [], lines[2:])
    if len(counts) < 2 or not all(word.isdigit() for word in counts[:2]):
        raise ValueError(f"its counts are {b' '.join(counts)[:40]!r}")
    v, f = int(counts[0]), int(counts[1])
    if v + f > len(body):
        raise ValueError(f"it promises {v} vertices and {f} faces, but has {len(body)} lines")
    faces = [list(map(int, words[1 : 1 + int(words[0])])) for words in body[v : v + f]]
    if any(len(face) != int(words[0]) for face, words in zip(faces, body[v:], strict=False)):
        raise ValueError("it ends in the middle of a face")
    fans = [(face[0], a, b) for face in faces for a, b in pairwise(face[1:])]
    vertices = np.array([words[:3] for words in body[:v]], dtype=np.float64).reshape(-1, 3)
    return vertices, np.array(fans, np.int64).reshape(-1, 3)
