"""Meshes: the same triangles from every kind of file, clear errors, even samples."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from veckm.data.meshes import Mesh, load_meshes, read_mesh
from veckm.data.sampling import diagonal

CORNERS = [(0.0, 0.0, 0.0), (2.0, 0.0, 0.0), (2.0, 1.0, 0.0), (0.0, 1.0, 0.0), (0.5, 0.5, 1.5)]
# A pyramid: a square base and four sides.
POLYGONS = [(3, 2, 1, 0), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)]
TRIANGLES = [(3, 2, 1), (3, 1, 0), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)]

PLY_HEAD = """ply
format {format} 1.0
comment made by hand
element camera 1
property double focus
element vertex 5
property float x
property float y
property float z
property uchar red
element face {faces}
property uchar flags
property list uchar int vertex_indices
property float quality
end_header
"""


def ply_text(polygons: list[tuple[int, ...]]) -> bytes:
    lines = ["1.5", *(f"{x} {y} {z} 7" for x, y, z in CORNERS)]
    lines += [f"0 {len(p)} {' '.join(map(str, p))} 0.25" for p in polygons]
    return (PLY_HEAD.format(format="ascii", faces=len(polygons)) + "\n".join(lines) + "\n").encode()


def ply_binary(polygons: list[tuple[int, ...]], order: str) -> bytes:
    name = {"<": "binary_little_endian", ">": "binary_big_endian"}[order]
    body = struct.pack(order + "d", 1.5)
    body += b"".join(struct.pack(order + "fffB", *corner, 7) for corner in CORNERS)
    body += b"".join(struct.pack(f"{order}BB{len(p)}if", 0, len(p), *p, 0.25) for p in polygons)
    return PLY_HEAD.format(format=name, faces=len(polygons)).encode() + body


def off(head: str = "OFF\n# a pyramid\n5 5 8\n") -> bytes:
    lines = [f"{x} {y} {z}" for x, y, z in CORNERS]
    lines += [f"{len(p)} {' '.join(map(str, p))} 0.1 0.2 0.3" for p in POLYGONS]
    return (head + "\n".join(lines)).encode()


def obj() -> bytes:
    lines = ["o pyramid", *(f"v {x} {y} {z} 1.0" for x, y, z in CORNERS), "vn 0 0 1"]
    lines += ["f 4//1 3//1 2//1 1//1", "f 1/1 2/2 5/3", "f -4 -3 -1", "f 3 4 \\\n 5", "f 4 1 5"]
    return "\n".join(lines).encode()


def stl_text() -> bytes:
    lines = ["solid pyramid"]
    for face in TRIANGLES:
        lines += ["facet normal 0 0 0", " outer loop"]
        lines += ["  vertex {} {} {}".format(*CORNERS[i]) for i in face]
        lines += [" endloop", "endfacet"]
    return "\n".join([*lines, "endsolid pyramid"]).encode()


def stl_binary() -> bytes:
    faces = [[x for i in face for x in CORNERS[i]] for face in TRIANGLES]
    body = b"".join(struct.pack("<12fH", 0, 0, 0, *face, 0) for face in faces)
    return b"solid, or so it says".ljust(80) + struct.pack("<I", len(faces)) + body


FILES = {
    "text.ply": ply_text(POLYGONS),
    "triangles_text.ply": ply_text(TRIANGLES),  # type: ignore[arg-type]
    "triangles_little.ply": ply_binary(TRIANGLES, "<"),  # type: ignore[arg-type]
    "triangles_big.ply": ply_binary(TRIANGLES, ">"),  # type: ignore[arg-type]
    "plain.off": off(),
    "glued.off": off("OFF5 5 8\n"),
    "line.OFF": off("COFF 5 5 8\n"),
    "plain.obj": obj(),
    "text.stl": stl_text(),
    "binary.stl": stl_binary(),
}
every_file = pytest.mark.parametrize("name", FILES)


def pyramid() -> Mesh:
    return Mesh(torch.tensor(CORNERS, dtype=torch.float64), torch.tensor(TRIANGLES))


def save(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@every_file
def test_every_kind_of_file_gives_the_same_triangles(name: str, tmp_path: Path) -> None:
    pytest.importorskip("trimesh", reason="needs the extra mesh")
    mesh = read_mesh(save(tmp_path, name, FILES[name]))
    assert outlines(mesh) == outlines(pyramid())


def outlines(mesh: Mesh) -> set[frozenset[tuple[tuple[float, ...], ...]]]:
    """Directed edges that no opposite edge cancels, by normal: how a quad is split is free."""
    a, b, c = mesh.vertices[mesh.faces].unbind(1)
    normal = torch.nn.functional.normalize(torch.linalg.cross(b - a, c - a), dim=-1)
    edges: dict[tuple[float, ...], set[tuple[tuple[float, ...], ...]]] = {}
    for k, corners in enumerate(mesh.vertices[mesh.faces].tolist()):
        found = edges.setdefault(tuple((normal[k] * 1000).round().tolist()), set())
        for i in range(3):
            edge = tuple(corners[i]), tuple(corners[(i + 1) % 3])
            if edge[::-1] in found:
                found.remove(edge[::-1])
            else:
                found.add(edge)
    return {frozenset(found) for found in edges.values()}


def test_polygons_of_mixed_sizes_in_binary_ply_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("trimesh", reason="needs the extra mesh")
    with pytest.raises(ValueError, match="cannot be read as PLY"):
        read_mesh(save(tmp_path, "mixed.ply", ply_binary(POLYGONS, "<")))


@every_file
def test_a_file_cut_short_anywhere_is_a_value_error_that_names_it(
    name: str, tmp_path: Path
) -> None:
    data = FILES[name]
    silent = 0
    for end in [*range(0, len(data) - 60, 7), *range(len(data) - 60, len(data) - 1)]:
        path = save(tmp_path, name, data[:end])
        try:
            read_mesh(path)
        except ValueError as error:
            assert str(error).startswith(f"{path}: cannot be read as ")  # noqa: PT017
        else:
            silent += 1
    # Text may end in the middle of a number.
    allowed = {".ply": 8 if "text" in name else 0, ".off": 12, ".obj": len(data), ".stl": 7}
    assert silent <= (0 if name == "binary.stl" else allowed[Path(name).suffix.lower()])


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "huge.ply",
            FILES["triangles_little.ply"].replace(b"vertex 5", b"vertex 4000000000"),
            "cut short",
        ),
        (
            "huge.ply",
            FILES["text.ply"].replace(b"face 5", b"face 4000000000"),
            "promises 4000000000",
        ),
        ("minus.ply", FILES["text.ply"].replace(b"vertex 5", b"vertex -5"), "cannot be read"),
        ("odd.ply", FILES["text.ply"].replace(b"uchar red", b"pink red"), "pink"),
        ("word.ply", FILES["text.ply"].replace(b"1.5\n", b"one\n"), "cannot be read"),
        ("part.ply", FILES["text.ply"].replace(b"0 3 0 1 4", b"0 3 0 1.5 4"), "1.5"),
        ("far.ply", FILES["text.ply"].replace(b"0 3 0 1 4", b"0 3 0 1 9"), "but there are 5"),
        ("nan.ply", FILES["text.ply"].replace(b"2.0 0.0 0.0 7", b"nan 0 0 7"), "NaN"),
        ("cloud.ply", FILES["text.ply"].replace(b"element face", b"element edge"), "has 0"),
        ("empty.ply", b"", "cannot be read as PLY"),
        ("huge.off", off("OFF\n5 4000000000 0\n"), "but has 10 lines"),
        ("bin.off", off("OFF BINARY\n"), "BINARY"),
        ("not.off", b"5 5 8\n", "does not start with OFF"),
        ("flat.obj", b"v 1 2\n", "cannot be read as OBJ"),
        ("points.obj", b"v 1 2 3\n", "no faces"),
        ("huge.stl", stl_binary()[:80] + b"\xff" * 4 + stl_binary()[84:], "no faces"),
        ("huge.stl", b"x" * 80 + b"\xff" * 4 + stl_binary()[84:], "no faces"),
    ],
)
def test_a_broken_file_says_what_is_wrong(
    name: str, data: bytes, message: str, tmp_path: Path
) -> None:
    path = save(tmp_path, name, data)
    with pytest.raises(ValueError, match=message) as caught:
        read_mesh(path)
    assert str(path) in str(caught.value)


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read \.fbx files; supported: \.ply \.off"):
        read_mesh(tmp_path / "a.fbx")


def test_a_missing_file_is_the_usual_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_mesh(tmp_path / "a.ply")


def test_normalized_meshes_are_centered_with_a_box_of_diagonal_one() -> None:
    stray = torch.cat((pyramid().vertices * 30 + 1000, torch.tensor([[1e9, 0.0, 0.0]]).double()))
    mesh = Mesh(stray, pyramid().faces).normalized()
    used = mesh.vertices[:5]
    torch.testing.assert_close(used.amax(0), -used.amin(0))
    assert float((used.amax(0) - used.amin(0)).norm()) == pytest.approx(1)


def areas(mesh: Mesh) -> Tensor:
    a, b, c = mesh.vertices[mesh.faces].unbind(1)
    result: Tensor = torch.linalg.cross(b - a, c - a).norm(dim=-1) / 2
    return result


def test_samples_are_even_by_area_and_have_the_normals_of_their_faces() -> None:
    mesh, n = pyramid(), 40_000
    shape = mesh.sample(n, seed=1)
    base = shape.normal[:, 2] == -1
    share = float(areas(mesh)[:2].sum() / areas(mesh).sum())
    assert float(base.double().mean()) == pytest.approx(share, abs=4 * (share / n) ** 0.5)
    # Even on the base: a chi-square of 20 x 10 squares.
    square = (shape.pos[base][:, :2] * 10).long()
    counts = torch.bincount(square[:, 0] * 10 + square[:, 1], minlength=200).double()
    chi2 = float(((counts - counts.mean()).square() / counts.mean()).sum())
    assert chi2 < 200 + 5 * 400**0.5
    # The sides slope outward, and a point lies on the plane of its normal.
    plane = (shape.pos * shape.normal).sum(-1)
    apex = shape.normal @ torch.tensor(CORNERS[4])
    torch.testing.assert_close(plane[~base], apex[~base], atol=1e-6, rtol=0)
    middle = torch.tensor([1.0, 0.5, 0.2])
    assert float(((shape.pos - middle) * shape.normal).sum(-1).min()) > 0


def test_faces_without_area_are_left_out() -> None:
    faces = torch.cat((torch.tensor([[0, 0, 1], [2, 2, 2]]), pyramid().faces))
    flat = Mesh(pyramid().vertices, torch.cat((faces, torch.tensor([[4, 4, 4]]))))
    shape = flat.sample(5000)
    torch.testing.assert_close(shape.normal.norm(dim=-1), torch.ones(5000))
    with pytest.raises(ValueError, match="has no area: none of its 2 faces"):
        Mesh(pyramid().vertices, faces[:2]).sample(10)


def test_a_density_thins_and_the_number_of_points_stays() -> None:
    def density(x: Tensor) -> Tensor:
        return torch.where(x[:, 0] < 1, 1.0, 0.25)

    shape = pyramid().sample(20_000, seed=2, density=density)
    assert shape.pos.shape == (20_000, 3)
    base = shape.pos[shape.pos[:, 2] == 0][:, 0]
    assert float((base < 1).double().mean()) == pytest.approx(0.8, abs=0.02)
    with pytest.raises(ValueError, match=r"a density must be in \(0, 1\], got 2\.0 to 2\.0"):
        pyramid().sample(10, density=lambda x: torch.full((len(x),), 2.0))
    with pytest.raises(ValueError, match="the density is too low"):
        pyramid().sample(10, density=lambda x: torch.zeros(len(x)))


def test_the_same_seed_gives_the_same_points() -> None:
    first, again, other = (pyramid().sample(100, seed).pos for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("vertices", "faces", "message"),
    [
        (torch.zeros(3, 3), torch.zeros(1, 3).long(), "vertices must have shape"),
        (torch.zeros(3, 3).double(), torch.zeros(1, 4).long(), r"got \(1, 4\)"),
        (torch.zeros(3, 3).double(), torch.tensor([[0, 1, 3]]), "but there are 3"),
        (torch.full((3, 3), np.inf).double(), torch.tensor([[0, 1, 2]]), "NaN or infinite"),
    ],
)
def test_a_mesh_checks_its_parts(vertices: Tensor, faces: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mesh(vertices, faces)


def test_meshes_of_a_folder_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.off", "a.off", "c.OFF"):
        (tmp_path / name).write_text("OFF\n3 1 0\n0 0 0\n4 0 0\n0 3 0\n3 0 1 2\n")
    (tmp_path / "notes.txt").write_text("not a mesh")
    meshes = load_meshes(tmp_path)
    assert list(meshes) == ["a", "b", "c"]
    assert diagonal(meshes["a"].vertices) == pytest.approx(1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="has no meshes"):
        load_meshes(tmp_path / "empty")


@pytest.mark.data
def test_real_meshes_are_read_whole_and_closed(shared_data: Path) -> None:
    paths = sorted(shared_data.glob("meshes/val/*.ply"))
    if not paths:
        pytest.skip(f"no meshes under {shared_data / 'meshes/val'}")
    for path in paths:
        mesh = read_mesh(path).normalized()
        a, b, c = mesh.vertices[mesh.faces].unbind(1)
        # The area vectors of a closed surface add up to zero, and the volume is positive outward.
        total = torch.linalg.cross(b - a, c - a).sum(0)
        assert float(total.norm()) < 1e-3 * float(areas(mesh).sum())
        assert float((a * torch.linalg.cross(b, c)).sum()) > 0
