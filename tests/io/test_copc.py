"""COPC in, COPC out: the octree is kept, and others find its nodes where they are now."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import laspy
import numpy as np
import pytest

import veckm
from veckm.cloud import PointCloud
from veckm.io import FileError, create_sink, open_source
from veckm.io.copc import HIERARCHY, INFO, Octree
from veckm.io.las_header import Record, make_record, new_template

NODES = ((0, 0, 0, 0), (1, 0, 0, 0), (1, 1, 0, 0))
POINTS = (40, 25, 35)
_OLD, _PAGES = (1000, 2000, 3000), 5000  # where they were, in a file that never was


def octree() -> PointCloud:
    """A cloud whose template says that it comes from a COPC with a second page."""
    rng = np.random.default_rng(0)
    low = [(0, 0, 0), (0, 0, 0), (4, 0, 0)]
    size = [8, 4, 4]
    pos = np.concatenate(
        [c + s * rng.random((n, 3)) for c, s, n in zip(low, size, POINTS, strict=True)]
    )
    entries = [struct.pack("<4iQii", *NODES[k], _OLD[k], 7, POINTS[k]) for k in range(3)]
    second = struct.pack("<4iQii", *NODES[2], _PAGES + 60 + 96, 32, -1)
    empty = struct.pack("<4iQii", 2, 3, 3, 3, 0, 0, 0)
    data = entries[0] + entries[1] + second + entries[2] + empty
    info = struct.pack("<5dQQ2d88x", 4, 4, 4, 4, 0.5, _PAGES + 60, 96, 0, 0)
    template = new_template(6, np.full(3, 0.001), np.zeros(3))
    head = bytearray(template.head)
    struct.pack_into("<QI", head, 235, _PAGES, 1)
    long = struct.pack("<H16sHQ32s", 0, b"copc", HIERARCHY[1], 0, b"")
    template = replace(
        template,
        head=bytes(head),
        records=(make_record(INFO, "", info),),
        late=(Record(long, data),),
        packed=1,
        octree=Octree(POINTS, _OLD),
    )
    return PointCloud(np.round(pos, 3), source=template)


@pytest.fixture
def copc(tmp_path: Path) -> Path:
    path = tmp_path / "cloud.copc.laz"
    veckm.write(path, octree())
    return path


def nodes(path: Path) -> list[np.ndarray]:
    """The points of each level as another reader finds them, by the pages."""
    with laspy.CopcReader.open(path) as reader:
        found = [reader.query(level=level) for level in (0, 1)]
        return [np.sort(np.stack([p.x, p.y, p.z], 1), 0) for p in found]


def test_others_find_the_nodes(copc: Path) -> None:
    xyz = octree().xyz
    for got, want in zip(nodes(copc), (xyz[:40], xyz[40:]), strict=True):
        np.testing.assert_allclose(got, np.sort(want, 0), atol=1e-9)


def test_new_fields_go_along_and_nodes_stay(copc: Path, tmp_path: Path) -> None:
    cloud, out = veckm.read(copc), tmp_path / "out.copc.laz"
    assert cloud.source is not None
    veckm.write(out, cloud.with_normals(np.tile(np.float32([0, 0, 1]), (100, 1))))
    again = veckm.read(out)
    np.testing.assert_array_equal(again.xyz, cloud.xyz)
    np.testing.assert_array_equal(again.normals, np.tile(np.float32([0, 0, 1]), (100, 1)))
    for got, want in zip(nodes(out), nodes(copc), strict=True):
        np.testing.assert_array_equal(got, want)
    with laspy.CopcReader.open(out) as reader:
        assert (reader.query(level=1)["NormalZ"] == 1).all()


@pytest.mark.parametrize("step", [1, 7, 64, 100])
def test_pieces_of_any_size_give_the_same_file(copc: Path, tmp_path: Path, step: int) -> None:
    source, out = open_source(copc), tmp_path / "pieces.copc.laz"
    sink = create_sink(out, source)
    for start in range(0, source.count, step):
        sink.append(source.read(start, min(start + step, source.count)))
    sink.commit()
    assert out.read_bytes() == copc.read_bytes()


def test_a_copc_comes_from_a_whole_copc(copc: Path, tmp_path: Path) -> None:
    cloud, out = veckm.read(copc), tmp_path / "out.copc.laz"
    for other in (cloud[:10], PointCloud(cloud.xyz)):
        with pytest.raises(FileError, match=r"written from a COPC.*\.laz"):
            veckm.write(out, other)
    assert not list(tmp_path.glob("*out*"))
    veckm.write(tmp_path / "plain.laz", cloud[:10])
    assert len(veckm.read(tmp_path / "plain.laz")) == 10


def test_broken_pages_are_refused(copc: Path, tmp_path: Path) -> None:
    data = bytearray(copc.read_bytes())
    late = int.from_bytes(data[235:243], "little") + 60
    data[late + 16 : late + 24] = (12345).to_bytes(8, "little")  # a node that is no chunk
    broken = tmp_path / "broken.copc.laz"
    broken.write_bytes(data)
    cloud = veckm.read(broken)  # its points are all there
    with pytest.raises(FileError, match="none of its chunks"):
        veckm.write(tmp_path / "out.copc.laz", cloud)
    assert not list(tmp_path.glob("*out*"))
