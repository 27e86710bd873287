"""`veckm view`: its text, how it ends, and one line for each bad input."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
import torch
from verbs import fails, run

import veckm

pytest.importorskip("viser", reason="viser is not installed: pip install 'veckm[viewer]'")

# A shell's background job has Ctrl-C switched off, and so have its children.
_RUN = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from veckm.cli import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture
def file(tmp_path):
    """Write points as a file."""

    def make(points, name="cloud.npy"):
        np.save(tmp_path / name, np.asarray(points, dtype=np.float64).reshape(-1, 3))
        return tmp_path / name

    return make


def test_an_empty_cloud_takes_one_line(file, capsys):
    assert "has 0 points" in fails(capsys, "view", file([]), "--port", 0)


def test_one_point_takes_one_line(file, capsys):
    assert "has 1 point" in fails(capsys, "view", file([1, 2, 3]), "--port", 0)


def test_points_that_are_nan_are_left_out_of_the_picture(file, tmp_path, capsys):
    path, out = file([[0, 0, 0], [1, np.nan, 0], [1, 0, 0]]), tmp_path / "scene.html"
    code, text, err = run(capsys, "view", path, "--save", out)
    assert (code, err) == (0, "")
    assert "2 points, all shown; those with NaN coordinates left out" in text
    assert "has 1 point;" in fails(capsys, "view", file([[0, 0, 0], [1, np.nan, 0]]), "--port", 0)


def test_a_busy_port_takes_one_line(path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        err = fails(capsys, "view", path, "--port", port)
    assert f"cannot listen at 127.0.0.1 port {port}: Address already in use" in err
    assert "--port" in err


def test_a_missing_extra_takes_one_line(path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    assert "pip install 'veckm[viewer]'" in fails(capsys, "view", path)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--dim", 1), "at least 2"),
        (("--noise", -1), "0 to 100"),
        (("--radius", 0), "--radius"),
        (("--color", "file"), "no colors"),
        (("--color", "red"), "nothing called 'red' to color by; there is height"),
        (("--align",), "name both"),
        (("--points", 1), "at least 2"),
        (("--port", 70000), "65535"),
    ],
)
def test_a_wrong_option_takes_one_line(path, capsys, arguments, word):
    base = () if "--port" in arguments else ("--port", 0)
    assert word in fails(capsys, "view", path, *base, *arguments)


def test_a_scene_is_saved_as_html_or_not_at_all(path, tmp_path, capsys):
    assert ".html" in fails(capsys, "view", path, "--save", tmp_path / "scene.txt")
    assert "no folder" in fails(capsys, "view", path, "--save", tmp_path / "no" / "scene.html")


def test_without_a_file_a_statue_is_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("veckm.cli.view._SAMPLE_POINTS", 2000)
    code, text, err = run(capsys, "view", "--save", tmp_path / "scene.html")
    assert (code, err) == (0, "")
    assert "sample statue: 2,000 points, all shown" in text


def test_two_clouds_of_other_sizes_are_saved_side_by_side(path, cloud, tmp_path, capsys):
    other, out = tmp_path / "thin.npy", tmp_path / "pair.html"
    np.save(other, cloud.xyz[::2])
    code, text, err = run(capsys, "view", path, other, "--save", out, "--color", "match")
    assert (code, err) == (0, "")
    assert "thin.npy: 4,000 points" in text
    assert "Similarity with the matching point" in out.read_text()


def test_two_clouds_are_aligned_and_colored_one_by_one(path, cloud, tmp_path, capsys):
    other, out = tmp_path / "moved.npy", tmp_path / "pair.html"
    np.save(other, cloud.xyz[::-1] + np.array([7.0, 8.0, 9.0]))
    code, text, err = run(capsys, "view", path, other, "--align", "--save", out)
    assert (code, err) == (0, "")
    assert "confidence" in text
    assert "Clouds" in out.read_text()


def test_similarity_of_descriptors_is_that_of_veckm_describe(cloud):
    from veckm.cli.view import _describe

    pos = torch.from_numpy(cloud.pos[:500]).float()
    expected = veckm.describe(pos, radius=2.0, queries=pos[:7])
    torch.testing.assert_close(_describe(pos, pos[:7], 2.0), expected)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for a child")
def test_it_says_its_address_serves_the_page_and_ends_on_ctrl_c(path):
    command = [sys.executable, "-c", _RUN, "view", str(path), "--port", "0", "--headless"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        lines = []
        while not lines or not lines[-1].startswith("page"):
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        url = lines[-1].split()[1]
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert b"<html" in answer.read(2000).lower()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out.strip(), err) == (0, "ended", "")
