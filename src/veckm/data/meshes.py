"""Triangle meshes: read from files, and sampled with the normals of their faces."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from veckm.data.cells import pick
from veckm.data.corrupt import Density, diagonal
from veckm.data.sampling import (
    Seed,
    Shape,
    check_count,
    collect,
    finish,
    make_generator,
    uniform,
)

# Corners of all faces one after the other, and how many there are of each face.
_Polygons = tuple[np.ndarray, np.ndarray]  # (S,), (P,)


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles, with the corners of each in the order that makes its normal point outward.

    Shapes:
        - vertices: (V, 3) float64
        - faces: (F, 3) int64, the numbers of its corners
    """

    vertices: Tensor
    faces: Tensor

    def __post_init__(self) -> None:
        for name, dtype in (("vertices", torch.float64), ("faces", torch.int64)):
            value: Tensor = getattr(self, name)
            if value.dim() != 2 or value.shape[1] != 3 or value.dtype != dtype:
                raise ValueError(
                    f"{name} must have shape (N, 3) and dtype {dtype}, "
                    f"got {tuple(value.shape)} of {value.dtype}"
                )
        if not bool(self.vertices.isfinite().all()):
            raise ValueError("vertices have NaN or infinite coordinates")
        if len(self.faces) and not 0 <= int(self.faces.min()) <= int(self.faces.max()) < len(
            self.vertices
        ):
            raise ValueError(
                f"faces name vertices {int(self.faces.min())} to {int(self.faces.max())}, "
                f"but there are {len(self.vertices)}"
            )


def normalise(mesh: Mesh) -> Mesh:
    """The same mesh about the origin, with a bounding box whose diagonal is 1.

    Vertices that no face uses do not count.
    """
    used = mesh.vertices[mesh.faces.reshape(-1)]
    if not len(used) or diagonal(used) == 0:
        raise ValueError("the mesh has no size: all its corners are in one place")
    middle = (used.amax(0) + used.amin(0)) / 2
    return Mesh((mesh.vertices - middle) / diagonal(used), mesh.faces)


def sample_mesh(mesh: Mesh, n: int, seed: Seed = 0, density: Density | None = None) -> Shape:
    r"""n points of a mesh, uniform by area, with the normals of the faces they lie on.

    .. math:: x = p_0 + a (p_1 - p_0) + b (p_2 - p_0), \qquad a + b \le 1

    Faces without area are left out.

    Args:
        mesh: the mesh; float32 holds the points best of one that is near the origin
            (:func:`normalise`).
        n: number of points.
        seed: an int or a torch.Generator.
        density: share of the points to keep at each place, (M, 3) -> (M,) in (0, 1]; there are
            still n points in the end.

    Shapes:
        - pos, normal: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n)
    corners = mesh.vertices[mesh.faces]  # (F, 3, 3)
    first, edges = corners[:, 0], corners[:, 1:] - corners[:, :1]
    cross = torch.linalg.cross(edges[:, 0], edges[:, 1])
    area: Tensor = torch.linalg.vector_norm(cross, dim=-1)  # (F,), twice the area
    if not bool((area > 0).any()):
        raise ValueError(f"the mesh has no area: none of its {len(area)} faces has any")
    first, edges, cross, area = (t[area > 0] for t in (first, edges, cross, area))
    normal = cross / area.unsqueeze(-1)

    def trial(m: int) -> tuple[Tensor, Tensor]:
        face = pick(area, uniform(generator, m).cpu())
        ab = uniform(generator, m, 2).cpu()
        ab = torch.where(ab.sum(-1, keepdim=True) > 1, 1 - ab, ab)  # the other half, folded over
        pos = first[face] + (ab.unsqueeze(-1) * edges[face]).sum(1)
        if density is None:
            return pos, normal[face]
        keep = uniform(generator, m).cpu() < _checked(density(pos))
        return pos[keep], normal[face[keep]]

    return finish(*(t.to(generator.device) for t in collect(n, trial)))


def _checked(share: Tensor) -> Tensor:
    if len(share) and not (0 <= float(share.min()) and float(share.max()) <= 1):
        raise ValueError(
            f"a density must be in (0, 1], got {float(share.min())} to {float(share.max())}"
        )
    return share


def read_mesh(path: str | Path) -> Mesh:
    """The triangles of a PLY, OFF, OBJ or STL file; polygons are cut into fans.

    A file that is broken or cut short is a ValueError that names it. STL repeats the corners of
    every face, and so does its mesh.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in _READERS:
        raise ValueError(
            f"{path}: cannot read {path.suffix or 'such'} files; supported: {' '.join(_READERS)}"
        )
    data = path.read_bytes()
    try:
        vertices, polygons = _READERS[kind](data)
        mesh = Mesh(
            torch.from_numpy(np.array(vertices, dtype=np.float64)),
            torch.from_numpy(_fans(*polygons)),
        )
        if not len(mesh.faces):
            raise ValueError("it has no faces")
    except (ValueError, IndexError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: cannot be read as {kind[1:].upper()}: {reason}") from error
    return mesh


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


def _ragged(rows: Sequence[Sequence[int]]) -> _Polygons:
    sides = np.array([len(row) for row in rows], dtype=np.int64)
    return np.array([i for row in rows for i in row], dtype=np.int64), sides


# PLY: elements of records of fields. Text and binary files differ in the unit, a word or a byte.

_KINDS = {
    **{"char": "i1", "short": "i2", "int": "i4", "float": "f4"},
    **{"uchar": "u1", "ushort": "u2", "uint": "u4", "double": "f8"},
    **{"int8": "i1", "int16": "i2", "int32": "i4", "float32": "f4"},
    **{"uint8": "u1", "uint16": "u2", "uint32": "u4", "float64": "f8"},
}
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}


@dataclass(frozen=True)
class _Field:
    name: str
    kind: str
    count: str | None  # the kind of the length of a list; None for a single number


@dataclass
class _Units:
    """Words (float64) or bytes (uint8) of the body of a PLY file, and how far it has been read."""

    units: np.ndarray
    order: str  # of the bytes; empty for words
    at: int = 0

    def size(self, kind: str) -> int:
        return np.dtype(kind).itemsize if self.order else 1

    def cast(self, units: np.ndarray, kind: str) -> np.ndarray:
        """The last axis of ``units`` as numbers."""
        return np.ascontiguousarray(units).view(self.order + kind) if self.order else units

    def layout(self, fields: Sequence[_Field], at: int) -> tuple[list[tuple[int, int]], int]:
        """Where the numbers of a record that starts at ``at`` are and how many, and its end."""
        places = []
        for field in fields:
            length = 1
            if field.count:
                here = self.units[at : at + self.size(field.count)]
                length = int(self.cast(here, field.count)[0])
                at += self.size(field.count)
            places.append((at, length))
            at += length * self.size(field.kind)
            if length < 0 or at > len(self.units):
                raise ValueError("it ends in the middle of a record")
        return places, at

    def read(self, name: str, count: int, fields: Sequence[_Field]) -> dict[str, _Polygons]:
        """All records of an element: of every field the numbers, and how many a record has."""
        least = sum(self.size(field.count or field.kind) for field in fields)
        if count < 0 or count * least > len(self.units) - self.at:
            raise ValueError(f"it says {count} of element {name}, more than it has room for")
        if not (count and fields):
            none = np.zeros(0, dtype=np.int64)
            return {field.name: (none, none) for field in fields}
        return self._read_even(count, fields) or self._read_ragged(count, fields)

    def _read_even(self, count: int, fields: Sequence[_Field]) -> dict[str, _Polygons] | None:
        """All at once, if all lists are as long as in the first record; otherwise None."""
        places, end = self.layout(fields, self.at)
        width = end - self.at
        if self.at + count * width > len(self.units):
            return None
        block = self.units[self.at : self.at + count * width].reshape(count, width)
        found = {}
        for field, (place, length) in zip(fields, places, strict=True):
            at = place - self.at
            if field.count:
                lengths = self.cast(block[:, at - self.size(field.count) : at], field.count)
                if bool((lengths != length).any()):
                    return None
            numbers = self.cast(block[:, at : at + length * self.size(field.kind)], field.kind)
            found[field.name] = numbers.reshape(-1), np.full(count, length)
        self.at += count * width
        return found

    def _read_ragged(self, count: int, fields: Sequence[_Field]) -> dict[str, _Polygons]:
        """One record after the other."""
        rows: list[list[np.ndarray]] = []
        for _ in range(count):
            places, end = self.layout(fields, self.at)
            spans = [
                self.units[place : place + length * self.size(field.kind)]
                for field, (place, length) in zip(fields, places, strict=True)
            ]
            rows.append([self.cast(u, f.kind) for u, f in zip(spans, fields, strict=True)])
            self.at = end
        found = {}
        for field, column in zip(fields, zip(*rows, strict=True), strict=True):
            found[field.name] = np.concatenate(column), np.array([len(part) for part in column])
        return found


def _read_ply(data: bytes) -> tuple[np.ndarray, _Polygons]:
    order, elements, start = _ply_header(data)
    body = data[start:]
    units = np.frombuffer(body, np.uint8) if order else np.array(body.split(), dtype=np.float64)
    source = _Units(units, order)
    found = {name: source.read(name, count, fields) for name, count, fields in elements}
    vertex, face = found.get("vertex", {}), found.get("face", {})
    corners = face.get("vertex_indices") or face.get("vertex_index")
    if not {"x", "y", "z"} <= set(vertex) or corners is None:
        raise ValueError("it has no vertices with x, y, z or no faces with vertex_indices")
    return np.stack([vertex[axis][0] for axis in "xyz"], axis=-1), corners


def _ply_header(data: bytes) -> tuple[str, list[tuple[str, int, list[_Field]]], int]:
    """Byte order, the elements as name, count and fields, and where the body starts."""
    end = data.find(b"end_header")
    if not data.startswith(b"ply") or end < 0:
        raise ValueError("it has no PLY header")
    order: str | None = None
    elements: list[tuple[str, int, list[_Field]]] = []
    for line in data[:end].decode("latin-1").splitlines()[1:]:
        match line.split():
            case ["format", name, *_] if name in _ORDERS:
                order = _ORDERS[name]
            case ["element", name, count]:
                elements.append((name, int(count), []))
            case ["property", "list", count, kind, name] if {count, kind} <= set(_KINDS):
                elements[-1][2].append(_Field(name, _KINDS[kind], _KINDS[count]))
            case ["property", kind, name] if kind in _KINDS:
                elements[-1][2].append(_Field(name, _KINDS[kind], None))
            case [] | ["comment" | "obj_info", *_]:
                pass
            case _:
                raise ValueError(f"its header has the line {line[:80]!r}")
    if order is None:
        raise ValueError("its header names no format")
    newline = data.find(b"\n", end)
    return order, elements, newline + 1 if newline >= 0 else len(data)


def _read_off(data: bytes) -> tuple[np.ndarray, _Polygons]:
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
    faces = [[int(word) for word in row[: int(row[0]) + 1]] for row in rows[v : v + f]]
    if any(len(face) != face[0] + 1 for face in faces):
        raise ValueError("a face has fewer corners than it says")
    vertices = np.array([row[:3] for row in rows[:v]], dtype=np.float64).reshape(-1, 3)
    return vertices, _ragged([face[1:] for face in faces])


def _read_obj(data: bytes) -> tuple[np.ndarray, _Polygons]:
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


def _read_stl(data: bytes) -> tuple[np.ndarray, _Polygons]:
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


_READERS: dict[str, Callable[[bytes], tuple[np.ndarray, _Polygons]]] = {
    ".ply": _read_ply,
    ".off": _read_off,
    ".obj": _read_obj,
    ".stl": _read_stl,
}

#: Endings of the files that :func:`read_mesh` knows.
SUFFIXES = tuple(_READERS)
