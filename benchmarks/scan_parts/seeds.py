"""Small files of every format that the readers know, to be mutated."""

from __future__ import annotations

import importlib.util
import io
import json
import struct
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import lazrs
import numpy as np

from veckm.cloud import PointCloud
from veckm.io import write

POINTS = 40


def cloud() -> PointCloud:
    """A few points with fields of several kinds, far from zero."""
    generator = np.random.default_rng(5)
    fields = {
        "intensity": generator.integers(0, 4000, POINTS).astype(np.uint16),
        "red": generator.integers(0, 256, POINTS).astype(np.uint8),
        "green": generator.integers(0, 256, POINTS).astype(np.uint8),
        "blue": generator.integers(0, 256, POINTS).astype(np.uint8),
        "quality": generator.random(POINTS).astype(np.float32),
    }
    pos = generator.normal(size=(POINTS, 3))
    made = PointCloud(pos, np.array([5e5, 5e6, 120.0]), fields)
    return made.with_normals((pos / np.linalg.norm(pos, axis=1)[:, None]).astype(np.float32))


def seeds() -> dict[str, bytes]:
    """Name -> bytes of one file of every kind; E57 only where its package is."""
    full = cloud()
    plain = PointCloud(full.xyz.astype(np.float32))
    wanted: dict[str, tuple[PointCloud, dict[str, Any]]] = {
        "text.ply": (full, {"format": "ascii"}),
        "little.ply": (full, {"format": "binary_little_endian"}),
        "big.ply": (full, {"format": "binary_big_endian"}),
        "new.las": (full, {}),
        "new.laz": (full, {}),
        "text.pcd": (full, {"data": "ascii"}),
        "binary.pcd": (full, {"data": "binary"}),
        "cloud.xyz": (full, {}),
        "cloud.csv": (full, {}),
        "cloud.txt": (full, {}),
        "cloud.pts": (plain, {}),
        "plain.npy": (plain, {}),
        "records.npy": (full, {}),
        "stored.npz": (full, {}),
        "deflated.npz": (full, {"compress": True}),
        "kitti.bin": (plain, {}),
    }
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (made, options) in wanted.items():
            path = Path(folder) / name
            write(path, made, **options)
            found[name] = path.read_bytes()
        found["old.las"], found["old.laz"] = _old(Path(folder), full)
        if importlib.util.find_spec("pye57") is not None:
            found["scan.e57"] = _e57(Path(folder) / "scan.e57", full)
    found["compressed.pcd"] = _compressed(found["binary.pcd"])
    found["variable.laz"] = _variable(found["new.las"])
    return {**found, **meshes()}


def _old(folder: Path, full: PointCloud) -> tuple[bytes, bytes]:
    """LAS and LAZ of version 1.2 with another's records, as laspy writes them."""
    import laspy

    header = laspy.LasHeader(point_format=3, version="1.2")
    header.add_extra_dim(laspy.ExtraBytesParams("height", "int32", scales=[0.01], offsets=[5.0]))
    header.vlrs.append(laspy.VLR("somebody", 7, "a record", b"what it says"))
    header.offsets, header.scales = full.origin, np.full(3, 1e-3)
    las = laspy.LasData(header)
    las.xyz = full.xyz
    las.height = np.linspace(0, 20, POINTS)
    out = []
    for suffix in ("las", "laz"):
        path = folder / f"old.{suffix}"
        las.write(path)
        out.append(path.read_bytes())
    return out[0], out[1]


def _compressed(pcd: bytes) -> bytes:
    """The points of a binary PCD column after column, in LZF with runs and one copy."""
    end = pcd.index(b"DATA binary\n") + len(b"DATA binary\n")
    words = {line.split()[0]: line.split()[1:] for line in pcd[:end].decode().splitlines()}
    records = np.frombuffer(pcd[end:], np.uint8).reshape(POINTS, -1)
    cuts = np.cumsum([0, *map(int, words["SIZE"])])
    raw = b"".join(records[:, a:b].tobytes() for a, b in pairwise(cuts.tolist()))
    packed = b"\x01" + raw[:2] if raw[1:5] == 4 * raw[1:2] else b""
    at = 2 if packed else 0
    if packed:  # the second byte comes again three times
        packed, at = packed + b"\x20\x00", 5
    for start in range(at, len(raw), 32):
        run = raw[start : start + 32]
        packed += bytes([len(run) - 1]) + run
    head = pcd[:end].replace(b"DATA binary", b"DATA binary_compressed")
    return head + struct.pack("<II", len(packed), len(raw)) + packed


def _e57(path: Path, full: PointCloud) -> bytes:
    """Two scans with poses, as pye57 writes them."""
    import pye57

    with pye57.E57(str(path), mode="w") as file:
        for number in range(2):
            part = full[number * 20 : number * 20 + 20]
            data = dict(zip(("cartesianX", "cartesianY", "cartesianZ"), part.pos.T, strict=True))
            data["intensity"] = part.fields["quality"]
            data.update({f"color{c.title()}": part.fields[c] for c in ("red", "green", "blue")})
            file.write_scan_raw(data, translation=full.origin)
    return path.read_bytes()


def _variable(las: bytes) -> bytes:
    """The same points in chunks of different lengths, as COPC has them."""
    import laspy

    with laspy.open(io.BytesIO(las)) as reader:
        header, points = reader.header, reader.read_points(-1)
    format = header.point_format
    vlr = lazrs.LazVlr.new_for_compression(
        format.id, format.num_extra_bytes, use_variable_size_chunks=True
    )
    header.vlrs.append(laspy.vlrs.known.LasZipVlr(bytes(vlr.record_data())))
    header.set_compressed(True)
    out = io.BytesIO()
    header.write_to(out)
    raw = np.frombuffer(points.array.tobytes(), np.uint8).reshape(len(points), -1)
    compressor = lazrs.LasZipCompressor(out, vlr)
    cuts = (0, 7, 8, 30, len(points))
    compressor.compress_chunks([raw[a:b].reshape(-1) for a, b in pairwise(cuts)])
    compressor.done()
    return out.getvalue()


CORNERS = ((0.0, 0.0, 0.0), (2.0, 0.0, 0.0), (2.0, 1.0, 0.0), (0.0, 1.0, 0.0), (0.5, 0.5, 1.5))
FACES = ((3, 2, 1), (3, 1, 0), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4))


def meshes() -> dict[str, bytes]:
    """A pyramid in every kind of mesh file."""
    rows = "\n".join(" ".join(map(str, corner)) for corner in CORNERS)
    sides = "\n".join(f"3 {a} {b} {c}" for a, b, c in FACES)
    head = (
        f"ply\nformat {{}} 1.0\nelement vertex {len(CORNERS)}\nproperty float x\nproperty float y\n"
        f"property float z\nelement face {len(FACES)}\n"
        "property list uchar int vertex_indices\nend_header\n"
    )
    body = b"".join(struct.pack("<3f", *corner) for corner in CORNERS)
    body += b"".join(struct.pack("<B3i", 3, *face) for face in FACES)
    texts = [f"vertex {' '.join(map(str, CORNERS[i]))}" for face in FACES for i in face]
    solid = [
        "facet normal 0 0 0\nouter loop\n" + "\n".join(texts[k : k + 3]) for k in range(0, 18, 3)
    ]
    stl = b"".join(
        struct.pack("<12fH", 0, 0, 0, *(x for i in face for x in CORNERS[i]), 0) for face in FACES
    )
    return {
        "mesh text.ply": (head.format("ascii") + rows + "\n" + sides + "\n").encode(),
        "mesh binary.ply": head.format("binary_little_endian").encode() + body,
        "mesh.off": f"OFF\n{len(CORNERS)} {len(FACES)} 0\n{rows}\n{sides}\n".encode(),
        "mesh.obj": (
            "\n".join(f"v {' '.join(map(str, corner))}" for corner in CORNERS)
            + "\n"
            + "\n".join(f"f {a + 1}//1 {b + 1} {c + 1}" for a, b, c in FACES)
        ).encode(),
        "text.stl": (
            "solid\n" + "\nendloop\nendfacet\n".join(solid) + "\nendloop\nendfacet\nendsolid\n"
        ).encode(),
        "binary.stl": b"made by hand".ljust(80) + struct.pack("<I", len(FACES)) + stl,
        "mesh.glb": glb(),
    }


def glb(nodes: list[dict[str, Any]] | None = None, mode: int = 4) -> bytes:
    """The pyramid as GLB, with the nodes of its scene."""
    places = struct.pack("<15f", *(x for corner in CORNERS for x in corner))
    order = struct.pack("<18H", *(i for face in FACES for i in face))
    binary = places + order
    tree = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": nodes or [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1, "mode": mode}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": len(CORNERS), "type": "VEC3"},
            {"bufferView": 1, "componentType": 5123, "count": 3 * len(FACES), "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteLength": len(places)},
            {"buffer": 0, "byteOffset": len(places), "byteLength": len(order)},
        ],
        "buffers": [{"byteLength": len(binary)}],
    }
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    binary += b"\0" * (-len(binary) % 4)
    chunks = struct.pack("<I4s", len(text), b"JSON") + text
    chunks += struct.pack("<I4s", len(binary), b"BIN\0") + binary
    return b"glTF" + struct.pack("<II", 2, 12 + len(chunks)) + chunks
