"""Peak memory of one estimate, in a process of its own.

As a program, which `of` starts, it reads a JSON request from its argument and prints an answer.
The peak is that of the whole process, libraries and cloud included; `beyond` is what the same
process does not need when it only loads them and answers for a few points.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks import memory
from veckm.tasks.normals import estimate, load

_FEW = 2000


def of(pos: Tensor, weights: Path | None, method: str) -> dict[str, int]:
    """Bytes: the peak, and how much of it is beyond that of an idle process."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cloud.npy")
        np.save(path, pos.numpy())
        request = {"path": path, "weights": weights and str(weights.resolve()), "method": method}
        busy, idle = (_run({**request, "all": whole}) for whole in (True, False))
    return {"peak": busy, "beyond": max(0, busy - idle)}


def _run(request: dict[str, object]) -> int:
    root = Path(__file__).resolve().parents[2]
    args = [sys.executable, "-m", "benchmarks.normals_parts.peak", json.dumps(request)]
    done = subprocess.run(args, capture_output=True, text=True, check=False, cwd=root)
    if done.returncode:
        raise RuntimeError(f"the memory benchmark failed:\n{done.stderr}")
    return int(json.loads(done.stdout)["peak"])


def _child(request: dict[str, object]) -> int:
    pos = torch.from_numpy(np.load(str(request["path"])))
    weights = request["weights"]
    net = load(Path(str(weights))) if weights else None
    method = "moments" if request["method"] == "moments" else "network"
    for x in (pos[:_FEW], pos) if request["all"] else (pos[:_FEW],):
        found = estimate(x, method=method, net=net)
        assert found.normal.shape == x.shape
    return memory.peak()


if __name__ == "__main__":
    print(json.dumps({"peak": _child(json.loads(sys.argv[1]))}))
