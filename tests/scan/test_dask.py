"""The same tiles on the workers of Dask, also when one of them dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from veckm.scan import Encode, run

distributed = pytest.importorskip("distributed")

Cloud = tuple[Path, np.ndarray]


def test_a_worker_that_is_killed_is_survived_with_the_same_result(
    tmp_path: Path, cloud: Cloud
) -> None:
    path, _ = cloud
    operation = Encode(16, (0.1,))
    run(path, tmp_path / "here.npy", operation, tile=1000)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        killed: list[int] = []
        killer = threading.Thread(
            target=_kill_one, args=(client, tmp_path / "out.npy.parts", killed)
        )
        killer.start()
        report = run(
            path, tmp_path / "out.npy", operation, tile=1000, scheduler=cluster.scheduler_address
        )
        killer.join()
    assert report.tiles >= 7
    assert len(killed) == 1
    found, expected = np.load(tmp_path / "out.npy"), np.load(tmp_path / "here.npy")
    np.testing.assert_allclose(found, expected, atol=1e-5)


def _kill_one(client: object, folder: Path, killed: list[int]) -> None:
    """As soon as the first tile is done."""
    pids = client.run(os.getpid)  # type: ignore[attr-defined]
    for _ in range(20_000):
        if any(folder.glob("encode-*.npz")):
            pid = next(iter(pids.values()))
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            return
        time.sleep(0.005)


def test_workers_of_our_own(tmp_path: Path, cloud: Cloud) -> None:
    path, _ = cloud
    run(path, tmp_path / "here.npy", Encode(4, (0.05,)), tile=2000)
    run(path, tmp_path / "out.npy", Encode(4, (0.05,)), tile=2000, workers=2)
    found, expected = np.load(tmp_path / "out.npy"), np.load(tmp_path / "here.npy")
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_scheduler_that_does_not_answer_is_named(tmp_path: Path, cloud: Cloud) -> None:
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(ConnectionError, match=r"tcp://127\.0\.0\.1:1: no Dask scheduler answers"),
    ):
        run(cloud[0], tmp_path / "out.npy", Encode(4, (0.05,)), scheduler="tcp://127.0.0.1:1")
    assert not (tmp_path / "out.npy").exists()


def test_no_dashboard_is_started(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: dict[str, object] = {}

    def cluster(**options: object) -> None:
        started.update(options)
        raise RuntimeError("started")

    monkeypatch.setattr(distributed, "LocalCluster", cluster)
    with pytest.raises(RuntimeError, match="started"):
        run(cloud[0], tmp_path / "out.npy", Encode(16, (0.1,)), tile=1000, workers=1)
    assert started["scheduler_kwargs"] == {"dashboard": False}
    assert started["dashboard_address"] == "127.0.0.1:0"  # of what else it serves: on this machine
