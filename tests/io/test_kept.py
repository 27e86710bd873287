"""What is not touched comes out as it went in: records, comments, order, other elements."""

from __future__ import annotations

from pathlib import Path

import laspy
import numpy as np
import pytest
from benchmarks.scan_parts.seeds import CORNERS, FACES, glb, meshes, seeds
from drawn import equal, same
from laspy.vlrs.vlrlist import VLRList

from veckm.cloud import PointCloud
from veckm.io import FileError, open_source, read, write

PLY = b"""ply\r
format binary_little_endian 1.0\r
comment made by hand\r
obj_info of no use\r
element camera 1\r
property float64 focus\r
element vertex 2\r
property uchar red\r
property float32 z\r
comment in the middle\r
property float32 y\r
property float32 x\r
property list uchar short weights\r
element face 1\r
property list uchar int vertex_indices\r
end_header\r
"""


def test_a_ply_keeps_order_types_comments_and_other_elements(tmp_path: Path) -> None:
    record = np.dtype([("r", "u1"), ("p", "<f4", 3), ("n", "u1"), ("w", "<i2", 2)])
    points = np.array([(7, (3, 2, 1), 2, (5, -5)), (9, (6, 5, 4), 2, (1, 2))], record)
    face = bytes([3]) + np.array([0, 1, 0], "<i4").tobytes()
    data = PLY + np.float64(1.5).tobytes() + points.tobytes() + face
    (tmp_path / "a.ply").write_bytes(data)
    cloud = read(tmp_path / "a.ply")
    assert cloud.pos.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert list(cloud.fields) == ["red", "weights"]
    assert cloud.fields["weights"].tolist() == [[5, -5], [1, 2]]
    write(tmp_path / "b.ply", cloud)
    assert (tmp_path / "b.ply").read_bytes() == data
    # new fields come last, before the faces
    write(tmp_path / "c.ply", cloud.with_normals(np.ones((2, 3), np.float32)))
    changed = read(tmp_path / "c.ply")
    assert list(changed.fields) == ["red", "weights", "nx", "ny", "nz"]
    assert (tmp_path / "c.ply").read_bytes().endswith(face)
    # a choice of points has no faces
    write(tmp_path / "d.ply", cloud[:1])
    text = (tmp_path / "d.ply").read_bytes()
    assert b"element face" not in text
    assert b"comment in the middle" in text
    assert equal(read(tmp_path / "d.ply"), cloud[:1])


@pytest.mark.parametrize("suffix", ["las", "laz"])
@pytest.mark.parametrize(("version", "format"), [("1.2", 3), ("1.3", 1), ("1.4", 1), ("1.4", 8)])
def test_a_las_keeps_everything_that_laspy_sees(
    tmp_path: Path, suffix: str, version: str, format: int
) -> None:
    header = laspy.LasHeader(point_format=format, version=version)
    header.add_extra_dim(laspy.ExtraBytesParams("height", "int32", "above ground", [1.0], [0.01]))
    header.add_extra_dim(laspy.ExtraBytesParams("pair", "2u2"))
    header.vlrs.append(laspy.VLR("somebody", 7, "a record", b"what it says"))
    header.offsets, header.scales = np.array([5e5, 5e6, 0]), np.array([0.01, 0.01, 0.001])
    header.system_identifier, header.generating_software = "a scanner", "a program"
    header.file_source_id = 99
    las = laspy.LasData(header)
    generator = np.random.default_rng(0)
    las.xyz = generator.normal(size=(30, 3)) * 100 + header.offsets
    las.intensity = generator.integers(0, 65535, 30)
    las.return_number = generator.integers(1, 4, 30)
    las.classification = generator.integers(0, 20, 30)
    las.gps_time = generator.random(30)
    las.height = generator.integers(0, 5000, 30) * 0.01
    las.pair = generator.integers(0, 60000, (30, 2))
    if version == "1.4":
        late = laspy.VLR("somebody", 8, "a late record", b"more" * 30_000)
        las.evlrs = VLRList([late])
    old, new = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    las.write(old)
    cloud = read(old)
    np.testing.assert_array_equal(cloud.xyz, laspy.read(old).xyz)
    np.testing.assert_allclose(cloud.fields["height"], las.height)
    assert cloud.fields["pair"].tolist() == las.pair.tolist()
    write(new, cloud)
    before, after = laspy.read(old), laspy.read(new)
    assert after.points.array.tobytes() == before.points.array.tobytes()
    for name in ("version", "uuid", "creation_date", "system_identifier", "generating_software"):
        assert getattr(after.header, name) == getattr(before.header, name)
    for name in ("scales", "offsets", "mins", "maxs", "number_of_points_by_return"):
        assert getattr(after.header, name).tolist() == getattr(before.header, name).tolist()
    for one, other in zip(before.vlrs, after.vlrs, strict=True):
        if one.user_id != "LASF_Spec":  # laspy computes wrong extremes of extra bytes
            assert one.record_data_bytes() == other.record_data_bytes()
    assert after.evlrs == before.evlrs
    # with normals the rest is still there
    write(new, cloud.with_normals(np.ones((30, 3), np.float32)))
    after = laspy.read(new)
    assert str(after.header.version) == "1.4"
    for name in before.point_format.dimension_names:
        assert np.array_equal(after[name], before[name])
    assert after.NormalZ.tolist() == [1.0] * 30
    assert after.vlrs.get_by_id("somebody")[0].record_data == b"what it says"


def test_chunks_of_different_lengths_are_read_whole_and_by_range(tmp_path: Path) -> None:
    for name in ("new.las", "variable.laz"):
        (tmp_path / name).write_bytes(seeds()[name])
    plain = read(tmp_path / "new.las")
    assert equal(read(tmp_path / "variable.laz"), plain)
    assert equal(laspy_cloud(tmp_path / "variable.laz"), plain)
    source = open_source(tmp_path / "variable.laz")
    for start, stop in ((0, 7), (3, 31), (7, 8), (29, 40)):
        assert equal(source.read(start, stop), plain[start:stop])


def laspy_cloud(path: Path) -> PointCloud:
    """What laspy reads, as a cloud."""
    las = laspy.read(path)
    names = [name for name in las.point_format.dimension_names if name not in ("X", "Y", "Z")]
    return PointCloud(np.asarray(las.xyz), fields={name: np.asarray(las[name]) for name in names})


def test_the_crs_is_what_the_file_says_and_is_written(tmp_path: Path) -> None:
    wkt = 'LOCAL_CS["somewhere"]'
    cloud = PointCloud(np.zeros((1, 3)), crs=wkt)
    write(tmp_path / "a.las", cloud)
    assert read(tmp_path / "a.las").crs == wkt
    record = laspy.read(tmp_path / "a.las").vlrs.get("WktCoordinateSystemVlr")[0]
    assert record.string == wkt
    with pytest.raises(ValueError, match="as WKT, got 'EPSG:25832'"):
        write(tmp_path / "a.las", PointCloud(np.zeros((1, 3)), crs="EPSG:25832"))


def test_a_pcd_keeps_its_image_viewpoint_padding_and_comments(tmp_path: Path) -> None:
    data = (
        b"# somebody's file\nVERSION .7\nFIELDS x y z _ rgb _\nSIZE 4 4 4 1 4 1\nTYPE F F F U F U\n"
        b"COUNT 1 1 1 4 1 12\nWIDTH 2\nHEIGHT 2\nVIEWPOINT 1 2 3 1 0 0 0\nPOINTS 4\nDATA binary\n"
    ) + np.arange(4 * 32, dtype=np.uint8).tobytes()
    (tmp_path / "a.pcd").write_bytes(data)
    cloud = read(tmp_path / "a.pcd")
    assert cloud.colors is not None
    assert cloud.colors[0].tolist() == [18, 17, 16]
    write(tmp_path / "b.pcd", cloud)
    assert (tmp_path / "b.pcd").read_bytes() == data
    write(tmp_path / "c.pcd", cloud[:3])
    assert (
        b"WIDTH 3\nHEIGHT 1\nVIEWPOINT 1 2 3 1 0 0 0\nPOINTS 3" in (tmp_path / "c.pcd").read_bytes()
    )


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("a.csv", "X,Y,Z,Intensity\n1.5,2.0,3.0,7\n4.5,5.0,6.0,8\n", ["Intensity"]),
        ("a.txt", "# scan 3\n//X Y Z Label\n1.5 2.0 3.0 7\n4.5 5.0 6.0 8\n", ["Label"]),
        ("a.asc", "1.5;2.0;3.0;7\n4.5;5.0;6.0;8\n", ["column_4"]),
        (
            "a.pts",
            "2\n1.5 2.0 3.0 -7 255 0 3\n4.5 5.0 6.0 -8 0 9 1\n",
            ["intensity", "red", "green", "blue"],
        ),
        (
            "a.xyz",
            "1.5\t2.0\t3.0\t0.0\t0.0\t1.0\n4.5\t5.0\t6.0\t1.0\t0.0\t0.0\n",
            ["nx", "ny", "nz"],
        ),
        ("b.csv", "label,z,y,x\n7,3.0,2.0,1.5\n8,6.0,5.0,4.5\n", ["label"]),
    ],
)
def test_text_keeps_its_names_signs_and_order(
    tmp_path: Path, name: str, text: str, names: list[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    cloud = read(path)
    assert cloud.pos.tolist() == [[1.5, 2, 3], [4.5, 5, 6]]
    assert list(cloud.fields) == names
    write(path, cloud)
    assert path.read_text() == text


def test_an_npz_keeps_what_is_not_of_the_points(tmp_path: Path) -> None:
    xyz = np.arange(12, dtype=">f4").reshape(4, 3)
    np.savez(
        tmp_path / "a.npz", label=np.arange(4), xyz=xyz, pose=np.eye(4)[:3], note=np.array("hi")
    )
    cloud = read(tmp_path / "a.npz")
    assert list(cloud.fields) == ["label"]
    write(tmp_path / "b.npz", cloud)
    with np.load(tmp_path / "b.npz") as after:
        assert list(after) == ["label", "xyz", "pose", "note"]
        assert after["xyz"].dtype == np.dtype(">f4")
        assert str(after["note"]) == "hi"


def test_all_scans_of_an_e57_are_read_with_their_poses(tmp_path: Path) -> None:
    pye57 = pytest.importorskip("pye57", reason="needs the extra e57")
    generator = np.random.default_rng(0)
    rotation = np.array([np.cos(0.3), 0, 0, np.sin(0.3)])  # about z, by 0.6
    scans = [generator.normal(size=(20, 3)).astype(np.float32) for _ in range(2)]
    intensity = generator.random(40).astype(np.float32)
    with pye57.E57(str(tmp_path / "a.e57"), mode="w") as file:
        for k, scan in enumerate(scans):
            data = dict(zip(("cartesianX", "cartesianY", "cartesianZ"), scan.T, strict=True))
            data["intensity"] = intensity[20 * k : 20 * k + 20]
            file.write_scan_raw(data, rotation=rotation, translation=np.array([10.0 * k, 5e5, 0]))
    cloud = read(tmp_path / "a.e57")
    c, s = np.cos(0.6), np.sin(0.6)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    expected = [scan.astype(float) @ turn.T + [10.0 * k, 5e5, 0] for k, scan in enumerate(scans)]
    np.testing.assert_allclose(cloud.xyz, np.concatenate(expected), atol=1e-9)
    assert same(cloud.fields["intensity"], intensity)
    assert cloud.fields["scan"].tolist() == [0] * 20 + [1] * 20


def test_a_compressed_pcd_is_read_and_comes_out_binary(tmp_path: Path) -> None:
    for name in ("binary.pcd", "compressed.pcd"):
        (tmp_path / name).write_bytes(seeds()[name])
    cloud = read(tmp_path / "compressed.pcd")
    assert equal(cloud, read(tmp_path / "binary.pcd"))
    write(tmp_path / "out.pcd", cloud)
    assert (tmp_path / "out.pcd").read_bytes() == seeds()["binary.pcd"]


def test_a_copc_comes_out_as_laz(tmp_path: Path) -> None:
    header = laspy.LasHeader(version="1.4", point_format=6)
    header.vlrs.append(laspy.VLR("copc", 1, "", bytes(160)))
    header.vlrs.append(laspy.VLR("somebody", 7, "a record", b"what it says"))
    las = laspy.LasData(header)
    las.xyz = np.ones((5, 3))
    las.evlrs = VLRList([laspy.VLR("copc", 1000, "", bytes(32)), laspy.VLR("me", 3, "", b"kept")])
    las.write(tmp_path / "in.laz")
    cloud = read(tmp_path / "in.laz")
    write(tmp_path / "out.laz", cloud)
    after = laspy.read(tmp_path / "out.laz")
    assert [(v.user_id, v.record_id) for v in [*after.vlrs, *after.evlrs]] == [
        ("somebody", 7),
        ("me", 3),
    ]
    assert equal(read(tmp_path / "out.laz"), cloud)
    with pytest.raises(FileError, match=r"only LAZ; end the name in \.laz"):
        write(tmp_path / "out.copc.laz", cloud)


def test_waveforms_of_version_1_3_stay_where_the_header_points(tmp_path: Path) -> None:
    header = laspy.LasHeader(version="1.3", point_format=1)
    las = laspy.LasData(header)
    las.xyz = np.ones((5, 3))
    las.write(tmp_path / "a.las")
    data = bytearray((tmp_path / "a.las").read_bytes())
    data[227:235] = len(data).to_bytes(8, "little")
    record = bytes(2) + b"LASF_Spec".ljust(16, b"\0") + (65535).to_bytes(2, "little")
    record += (8).to_bytes(8, "little") + bytes(32) + b"waveform"
    (tmp_path / "a.las").write_bytes(data + record)
    cloud = read(tmp_path / "a.las")
    write(tmp_path / "b.las", cloud.with_normals(np.ones((5, 3), np.float32)))
    after = (tmp_path / "b.las").read_bytes()
    place = laspy.read(tmp_path / "b.las").header.start_of_waveform_data_packet_record
    assert after[place:] == record


@pytest.mark.parametrize("name", meshes())
def test_meshes_are_sampled_on_request(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(meshes()[name])
    cloud = read(tmp_path / name, samples=500, seed=3)
    assert len(cloud) == 500
    assert cloud.normals is not None
    np.testing.assert_allclose(np.linalg.norm(cloud.normals, axis=1), 1, atol=1e-6)
    corners = np.array(CORNERS)
    assert (cloud.xyz >= corners.min(0) - 1e-6).all()
    assert (cloud.xyz <= corners.max(0) + 1e-6).all()
    # every point lies in the plane of a face with its normal
    first = corners[np.array(FACES)[:, 0]]
    away = np.abs(np.einsum("nfd,nd->nf", cloud.xyz[:, None] - first, cloud.normals)).min(1)
    assert away.max() < 1e-6
    assert same(read(tmp_path / name, samples=500, seed=3).pos, cloud.pos)


def test_nodes_of_a_glb_move_its_meshes(tmp_path: Path) -> None:
    half = float(np.sqrt(0.5))
    nodes = [
        {"children": [1], "translation": [10, 0, 0]},
        {"mesh": 0, "rotation": [0, 0, half, half], "scale": [2, 2, 2]},
    ]
    (tmp_path / "a.glb").write_bytes(glb(nodes))
    cloud = read(tmp_path / "a.glb", samples=4000)
    # x -> y, y -> -x, twice as large, ten to the right
    np.testing.assert_allclose(cloud.xyz.min(0), [8, 0, 0], atol=0.1)
    np.testing.assert_allclose(cloud.xyz.max(0), [10, 4, 3], atol=0.3)
    nodes[1]["children"] = [0]
    (tmp_path / "b.glb").write_bytes(glb(nodes))
    with pytest.raises(ValueError, match="cannot be read as GLB"):
        read(tmp_path / "b.glb", samples=4)


def test_a_mesh_far_from_zero_is_sampled_where_it_is(tmp_path: Path) -> None:
    text = meshes()["mesh.obj"].decode().splitlines()
    moved = [
        " ".join(["v", *(str(float(w) + 5e6) for w in line.split()[1:])])
        if line[0] == "v"
        else line
        for line in text
    ]
    (tmp_path / "a.obj").write_text("\n".join(moved))
    (tmp_path / "b.obj").write_text("\n".join(text))
    far, near = (read(tmp_path / name, samples=50) for name in ("a.obj", "b.obj"))
    np.testing.assert_allclose(far.xyz - 5e6, near.xyz, atol=1e-6)


def test_an_obj_face_that_counts_from_zero_is_refused(tmp_path: Path) -> None:
    for face in ("f 0 1 2", "f 1 2 0", "f 1/1 0/2 3/3"):
        (tmp_path / "a.obj").write_text(f"v 0 0 0\nv 1 0 0\nv 0 1 0\n{face}\n")
        with pytest.raises(FileError, match="names vertex 0, but OBJ counts from 1"):
            read(tmp_path / "a.obj", samples=3)
    (tmp_path / "a.obj").write_text("v 0 0 0\nv 10 0 0\nv 0 10 0\nf 1 2 3\n")
    assert len(read(tmp_path / "a.obj", samples=3)) == 3


@pytest.mark.parametrize("sizes", [(3, 4, 3), (4, 3, 5)])  # the second is as long as 4, 4, 4
def test_a_binary_ply_with_polygons_of_different_sizes_is_no_wrong_mesh(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    head = (
        b"ply\nformat binary_little_endian 1.0\nelement vertex 5\nproperty float x\n"
        b"property float y\nproperty float z\nelement face 3\n"
        b"property list uchar int vertex_indices\nend_header\n"
    )
    corners = np.random.default_rng(0).random((5, 3)).astype("<f4").tobytes()
    faces = b"".join(bytes([n]) + np.arange(n, dtype="<i4").tobytes() for n in sizes)
    (tmp_path / "a.ply").write_bytes(head + corners + faces)
    assert len(read(tmp_path / "a.ply")) == 5
    with pytest.raises(FileError, match="different numbers of corners"):
        read(tmp_path / "a.ply", samples=3)


def test_what_is_no_mesh_is_not_sampled(tmp_path: Path) -> None:
    write(tmp_path / "a.npy", PointCloud(np.zeros((2, 3))))
    with pytest.raises(ValueError, match="is not a mesh"):
        read(tmp_path / "a.npy", samples=3)
