"""Every verb on files as their own projects ship them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from verbs import run

import veckm

pytestmark = pytest.mark.data

#: One of each kind, and what is odd about it.
FILES = (
    "files/extrabytes.las",  # fields of its own
    "files/1_4_w_evlr.laz",  # LAS 1.4 with records at its end
    "files/simple.copc.laz",
    "files/sample_c.las",
    "files/hippo1.ply",  # a mesh, whose points count
    "files/b9.ply",  # in text
    "files/lamppost.pcd",
    "files/kitten.xyz",
    "files/bunny5000.pts",
    "files/sphere_20k_normal.xyz",  # with normals
    "lidar/kitti_odo00_000000.bin",
)


@pytest.fixture(params=FILES)
def path(request, shared_data: Path) -> Path:
    found = shared_data / request.param
    if not found.exists():
        pytest.skip(f"{request.param} is not in {shared_data}")
    return found


def told(capsys, *args) -> dict:
    code, out, err = run(capsys, *args, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_info_counts_what_the_reader_reads(path, capsys):
    cloud = veckm.read(path)
    said = told(capsys, "info", path)
    assert said["points"] == len(cloud)
    np.testing.assert_allclose(said["low"], cloud.xyz.min(0), rtol=1e-6, atol=1e-3)
    np.testing.assert_allclose(said["high"], cloud.xyz.max(0), rtol=1e-6, atol=1e-3)


def test_normals_come_beside_what_was_there(path, tmp_path, capsys):
    out = tmp_path / f"out{'.npz' if path.suffix in ('.bin', '.pts') else path.suffix}"
    code, _, err = run(capsys, "normals", path, "-o", out)
    assert (code, err) == (0, "")
    before, after = veckm.read(path), veckm.read(out)
    assert len(after) == len(before)
    np.testing.assert_allclose(after.xyz, before.xyz, atol=2e-3, rtol=1e-6)
    assert after.normals is not None
    np.testing.assert_allclose(np.linalg.norm(after.normals, axis=1), 1, atol=1e-2)


def test_encodings_have_a_row_a_point(path, tmp_path, capsys):
    out = tmp_path / "out.npy"
    code, _, err = run(capsys, "encode", path, "-o", out, "--dim", 8)
    assert (code, err) == (0, "")
    G = np.load(out)
    assert len(G) == len(veckm.read(path))
    assert np.isfinite(G).all()


@pytest.mark.parametrize("kind", [".ply", ".laz", ".pcd", ".npz"])
def test_it_is_converted_and_stays_where_it_is(path, tmp_path, capsys, kind):
    out = tmp_path / f"out{kind}"
    code, _, err = run(capsys, "convert", path, out)
    assert (code, err) == (0, "")
    before, after = veckm.read(path), veckm.read(out)
    np.testing.assert_allclose(after.xyz, before.xyz, atol=2e-3, rtol=1e-6)
