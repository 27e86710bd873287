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
from veckm.io import las_header, write

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
        "compressed.pcd": (full, {"data": "binary_compressed"}),
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
    if importlib.util.find_spec("pye57") is not None:
        wanted["scan.e57"] = (full, {})
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (made, options) in wanted.items():
            path = Path(folder) / name
            write(path, made, **options)
            found[name] = path.read_bytes()
        found["old.las"], found["old.laz"] = _old(Path(folder), full)
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


def _variable(las: bytes) -> bytes:
    """The same points in chunks of different lengths, as COPC has them."""
    template, start, count, _ = las_header.parse(io.BytesIO(las), len(las))
    extra = template.size - las_header.base_dtype(template.format).itemsize
    packing = bytearray(lazrs.LazVlr.new_for_compression(template.format, extra).record_data())
    packing[12:16] = b"\xff" * 4  # the length of chunks: they have their own
    record = las_header.make_record(("laszip encoded", 22204), "by laz-rs", bytes(packing))
    body = b"".join(each.encode() for each in (*template.records, record))
    head = bytearray(template.head)
    struct.pack_into("<II", head, 96, len(head) + len(body), len(template.records) + 1)
    head[104] |= 128
    out = io.BytesIO(bytes(head) + body)
    out.seek(0, 2)
    points = np.frombuffer(las, np.uint8, count * template.size, start).reshape(count, -1)
    compressor = lazrs.LasZipCompressor(out, lazrs.LazVlr(bytes(packing)))
    cuts = (0, 7, 8, 30, count)
    chunks = [points[a:b].reshape(-1) for a, b in pairwise(cuts)]
    compressor.compress_chunks(chunks)
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
