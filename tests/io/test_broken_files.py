"""Broken files raise a FileError that names the reason, before anything large is allocated."""

from __future__ import annotations

import random
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest
from benchmarks.scan_parts import fuzz
from benchmarks.scan_parts.seeds import seeds

import veckm
from veckm.extras import MissingExtra
from veckm.io import FileError, open_source, read

SEEDS = seeds()
HUGE = 10**12


def with_count(name: str, data: bytes, count: int) -> bytes:
    """The same file, whose header promises another number of points."""
    old = b"40"
    new = str(count).encode()
    if name.endswith(".ply"):
        return data.replace(b"element vertex " + old, b"element vertex " + new)
    if name.endswith(".pcd"):
        return data.replace(b"POINTS " + old, b"POINTS " + new)
    if name.endswith(".pts"):
        return new + data[2:]
    if name.endswith((".las", ".laz")):
        head = bytearray(data)
        struct.pack_into("<I", head, 107, min(count, 2**32 - 1) if head[25] < 4 else 0)
        if head[25] >= 4:
            struct.pack_into("<Q", head, 247, count)
        return bytes(head)
    if name.endswith(".npy"):
        length = int.from_bytes(data[8:10], "little")
        text = data[10 : 10 + length].replace(b"(40,", b"(" + new + b",").rstrip()
        return data[:10] + text[:length].ljust(length - 1) + b"\n" + data[10 + length :]
    raise AssertionError(name)


COUNTED = [
    name
    for name in SEEDS
    if name.endswith((".ply", ".pcd", ".pts", ".las", ".laz", ".npy")) and "mesh" not in name
]


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("count", [41, HUGE])
def test_a_header_that_promises_more_points_is_refused_by_the_length(
    tmp_path: Path, name: str, count: int
) -> None:
    path = tmp_path / name
    path.write_bytes(SEEDS[name])
    assert len(read(path)) == 40
    path.write_bytes(with_count(name, SEEDS[name], count))
    tracemalloc.start()
    try:
        with pytest.raises(FileError) as caught:
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(f"{path}: ")
    assert peak < 4 << 20


@pytest.mark.parametrize("name", SEEDS)
def test_a_file_cut_short_is_a_cloud_or_a_file_error(tmp_path: Path, name: str) -> None:
    data = SEEDS[name]
    path = tmp_path / name
    mesh = name.startswith("mesh") or name.endswith(".stl")
    for end in random.Random(name).sample(range(len(data)), 12):
        path.write_bytes(data[:end])
        verdict, what = fuzz.judge(path, mesh)
        assert verdict != "failure", what


@pytest.mark.parametrize("name", SEEDS)
def test_mutated_bytes_give_a_cloud_or_a_file_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    mesh = name.startswith("mesh") or name.endswith(".stl")
    for number in range(25):
        path.write_bytes(fuzz.inputs(name, SEEDS[name], number, seed=7))
        verdict, what = fuzz.judge(path, mesh)
        assert verdict != "failure", f"input {number}: {what}"


@pytest.mark.slow
def test_the_fuzzer_counts_every_input() -> None:
    counts = fuzz.run(120, only=("plain.npy", "new.laz", "text.ply"))
    assert counts.inputs == counts.right + counts.refused == 120
    assert counts.failures == []


def test_the_fuzzer_sees_what_is_not_a_file_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, **_: object) -> None:
        raise KeyError(path)

    monkeypatch.setattr(fuzz, "read", broken)
    verdict, what = fuzz.judge(tmp_path / "a.ply", mesh=False)
    assert verdict == "failure"
    assert "KeyError" in what


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "a.ply",
            b"ply\nformat ascii 1.0\nelement face 3\nproperty int a\nend_header\n",
            "x, y and z",
        ),
        ("a.pcd", b"VERSION 0.7\nFIELDS x y\nSIZE 4 4\nTYPE F F\nDATA ascii\n", "no x, y and z"),
        ("a.pcd", b"VERSION 0.7\n", "no PCD header"),
        ("a.las", b"LASF" + bytes(300), "version"),
        ("a.laz", b"PK", "does not start with LASF"),
        ("a.xyz", b"1 2\n3 4\n", "a point has three"),
        ("a.xyz", b"", "has no points"),
        ("a.csv", b"x,y,z\n1,2,3\n1,2\n", "cannot be read as text"),
        ("a.csv", b"x,y\n1,2,3\n", "names 2 columns"),
        ("a.csv", b"x,y,z,name\n1,2,3,tree\n", "not numbers"),
        ("a.txt", b"\0\1\2", "not text"),
        ("a.pts", b"3\n1 2 3\n", "promises 3 points, but the file has 1"),
        ("a.bin", bytes(17), "not points of the 4 float32 numbers x y z intensity"),
        ("a.npy", b"hello", "is not a .npy file"),
        ("a.npz", b"hello", "is not a .npz file"),
        ("a.obj", b"v 1 2 3\n", "is a mesh"),
        ("a.doc", b"", "cannot read .doc files"),
    ],
)
def test_the_error_names_what_is_wrong(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FileError, match=message) as caught:
        read(tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_the_usual_error(tmp_path: Path) -> None:
    for name in ("a.ply", "a.las", "a.pcd", "a.csv", "a.npy", "a.npz", "a.bin", "a.obj"):
        with pytest.raises(FileNotFoundError):
            veckm.read(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / "a.laz")


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pye57", "trimesh"):
        monkeypatch.setitem(sys.modules, package, None)
    for name, extra in (("a.e57", "e57"), ("a.obj", "mesh")):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(MissingExtra, match=rf"pip install 'veckm\[{extra}\]'"):
            read(tmp_path / name, samples=3 if extra == "mesh" else None)


def test_a_panic_of_rust_is_a_file_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As pyo3 raises it."""

    def panic(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    path = tmp_path / "new.laz"
    path.write_bytes(SEEDS["new.laz"])
    source = open_source(path)
    monkeypatch.setattr("lazrs.decompress_points_with_chunk_table", panic)
    with pytest.raises(FileError, match="index out of bounds"):
        source.read(0, 3)
    with pytest.raises(FileError, match="index out of bounds"):
        read(path)
