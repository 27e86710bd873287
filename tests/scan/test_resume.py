"""Stopped at any moment, a scan is resumed and writes the same file."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from veckm.scan import Changed, Encode, Stopped, run
from veckm.scan import execute as executed
from veckm.scan.resume import work_folder

Cloud = tuple[Path, np.ndarray]
OPERATION = Encode(4, (0.05,))

#: The same scan in another process, a little slower, so that it is met in the middle of its work.
PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in background
import torch
torch.set_num_threads(int(sys.argv[3]))
import veckm.scan.execute as execute
from veckm.scan import Encode, Stopped, run
do = execute.Job.__call__
def slow(self):
    time.sleep(0.05)
    do(self)
execute.Job.__call__ = slow
print("begin", flush=True)
try:
    run(sys.argv[1], sys.argv[2], Encode(4, (0.05,)), tile=1000, progress=False)
except Stopped as error:
    print(error, flush=True)
    sys.exit(130)
"""


def begin(source: Path, output: Path) -> subprocess.Popen[str]:
    threads = str(torch.get_num_threads())  # sums in the same order
    command = [sys.executable, "-c", PROGRAM, str(source), str(output), threads]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begin\n"
    return process


def pieces(folder: Path) -> int:
    return len(list(folder.glob("encode-*.npz")))


def wait(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    """Until so many tiles are done."""
    for _ in range(20_000):
        if pieces(folder) >= count or process.poll() is not None:
            return
        time.sleep(0.005)


@pytest.fixture
def whole(tmp_path: Path, cloud: Cloud) -> bytes:
    """What an undisturbed run writes."""
    run(cloud[0], tmp_path / "whole.npy", OPERATION, tile=1000)
    assert not (tmp_path / "whole.npy.parts").exists()
    return (tmp_path / "whole.npy").read_bytes()


def test_killed_again_and_again_it_ends_with_the_same_file(
    tmp_path: Path, cloud: Cloud, whole: bytes
) -> None:
    output = tmp_path / "out.npy"
    folder = tmp_path / "out.npy.parts"
    for count in (0, 2, 5):
        process = begin(cloud[0], output)
        wait(process, folder, count)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not output.exists()
        assert pieces(folder) >= count
    before = pieces(folder)
    assert run(cloud[0], output, OPERATION, tile=1000).resumed >= 5
    assert before >= 5
    assert output.read_bytes() == whole
    assert not folder.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cloud.npy", "out.npy", "whole.npy"]


def test_control_c_tells_how_to_resume(tmp_path: Path, cloud: Cloud, whole: bytes) -> None:
    output = tmp_path / "out.npy"
    process = begin(cloud[0], output)
    wait(process, tmp_path / "out.npy.parts", 2)
    process.send_signal(signal.SIGINT)
    message, _ = process.communicate()
    assert process.returncode == 130
    assert "Run the same command again to resume" in message
    assert str(tmp_path / "out.npy.parts") in message
    assert run(cloud[0], output, OPERATION, tile=1000).resumed >= 2
    assert output.read_bytes() == whole


class Interrupting:
    """Ctrl-C after some tiles; counts the tiles that were done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tiles: list[int] = []
        self.limit = 10**9
        do = executed.Job.__call__

        def call(job: executed.Job) -> None:
            if len(self.tiles) >= self.limit:
                raise KeyboardInterrupt
            self.tiles.append(job.tile)
            do(job)

        monkeypatch.setattr(executed.Job, "__call__", call)


@pytest.fixture
def half(tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Interrupting:
    """A scan that was stopped after three tiles."""
    spy = Interrupting(monkeypatch)
    spy.limit = 3
    with pytest.raises(Stopped, match="Run the same command again"):
        run(cloud[0], tmp_path / "out.npy", OPERATION, tile=1000)
    spy.limit = 10**9
    return spy


def test_finished_tiles_are_not_done_twice(
    tmp_path: Path, cloud: Cloud, half: Interrupting
) -> None:
    report = run(cloud[0], tmp_path / "out.npy", OPERATION, tile=1000)
    assert report.resumed == 3
    assert sorted(half.tiles) == list(range(report.tiles))


def test_a_sort_that_was_stopped_is_done_again(
    tmp_path: Path, cloud: Cloud, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("veckm.scan.spool.find_cuts", stop)
        with pytest.raises(Stopped):
            run(cloud[0], tmp_path / "out.npy", OPERATION, tile=1000)
    run(cloud[0], tmp_path / "out.npy", OPERATION, tile=1000)
    assert (tmp_path / "out.npy").read_bytes() == whole


def test_an_output_that_was_stopped_is_written_again(
    tmp_path: Path, cloud: Cloud, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Encode.write

    def stop(*given: Any) -> None:
        write(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Encode, "write", stop)
        with pytest.raises(Stopped):
            run(cloud[0], tmp_path / "out.npy", OPERATION, tile=1000)
    assert not (tmp_path / "out.npy").exists()
    report = run(cloud[0], tmp_path / "out.npy", OPERATION, tile=1000)
    assert report.resumed == report.tiles
    assert (tmp_path / "out.npy").read_bytes() == whole


def test_the_rest_of_a_folder_that_was_being_removed_is_not_used(
    tmp_path: Path, cloud: Cloud, half: Interrupting
) -> None:
    (tmp_path / "out.npy.parts" / "scan.json").unlink()
    assert run(cloud[0], tmp_path / "out.npy", Encode(8, (0.05,)), tile=1000).resumed == 0
    assert np.load(tmp_path / "out.npy").shape == (len(cloud[1]), 8)


def test_other_settings_are_refused(tmp_path: Path, cloud: Cloud, half: Interrupting) -> None:
    with pytest.raises(Changed, match=r"dim was 4, is 8.*or remove the folder"):
        run(cloud[0], tmp_path / "out.npy", Encode(8, (0.05,)), tile=1000)
    with pytest.raises(Changed, match="tile was 1000, is 2000"):
        run(cloud[0], tmp_path / "out.npy", OPERATION, tile=2000)
    assert run(cloud[0], tmp_path / "out.npy", OPERATION, tile=1000).resumed == 3


def test_an_input_that_has_changed_is_refused(
    tmp_path: Path, cloud: Cloud, half: Interrupting
) -> None:
    path, xyz = cloud
    np.save(path, xyz[::-1])
    with pytest.raises(Changed, match=r"the input has changed.*remove the folder"):
        run(path, tmp_path / "out.npy", OPERATION, tile=1000)


def test_an_input_that_changes_on_the_way_is_refused(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, xyz = cloud
    do = executed.Job.__call__

    def call(job: executed.Job) -> None:
        np.save(path, xyz[::-1])
        do(job)

    monkeypatch.setattr(executed.Job, "__call__", call)
    with pytest.raises(Changed, match="has changed during the scan"):
        run(path, tmp_path / "out.npy", OPERATION, tile=1000)
    assert not (tmp_path / "out.npy").exists()


def test_two_processes_do_not_work_on_the_same_scan(tmp_path: Path) -> None:
    scan: dict[str, dict[str, object]] = {"input": {}, "settings": {}}
    with (
        work_folder(tmp_path / "work", scan),
        pytest.raises(Changed, match="another process is running"),
        work_folder(tmp_path / "work", scan),
    ):
        pass
    with work_folder(tmp_path / "work", scan):
        pass


def test_an_old_output_is_there_until_the_new_one_is(
    tmp_path: Path, cloud: Cloud, half: Interrupting
) -> None:
    (tmp_path / "out.npy").write_text("old")
    half.limit = len(half.tiles)
    with pytest.raises(Stopped):
        run(cloud[0], tmp_path / "out.npy", OPERATION, tile=1000)
    assert (tmp_path / "out.npy").read_text() == "old"
    half.limit = 10**9
    run(cloud[0], tmp_path / "out.npy", OPERATION, tile=1000)
    assert np.load(tmp_path / "out.npy").shape == (len(cloud[1]), 4)


def test_what_cannot_work_is_refused_before_anything_is_done(tmp_path: Path, cloud: Cloud) -> None:
    path, _ = cloud
    with pytest.raises(ValueError, match="is the input itself"):
        run(path, path, OPERATION)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        run(path, tmp_path / "no" / "out.npy", OPERATION)
    with pytest.raises(ValueError, match="at least 1000, got 10"):
        run(path, tmp_path / "out.npy", OPERATION, tile=10)
    with pytest.raises(ValueError, match="workers=0"):
        run(path, tmp_path / "out.npy", OPERATION, workers=0)
    assert list(tmp_path.iterdir()) == [path]
