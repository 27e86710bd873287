"""Peak memory of one encoding, measured in a process of its own.

As a program, which `beyond` starts, it reads a JSON request from its argument and prints an answer.
The baseline does everything but the encoding and touches an output of the same size, so that the
difference of two peaks is what the encoding needs beyond inputs and output.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import veckm


def beyond(pos: Tensor, A: Tensor, B: Tensor, beta: float, engine: str) -> int:
    """Peak bytes of `engine` beyond inputs and output."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case.npz")
        np.savez(path, pos=pos.numpy(), A=A.numpy(), B=B.numpy())
        request = {"path": path, "beta": beta, "engine": engine}
        peaks = [_run({**request, "encode": encode}) for encode in (True, False)]
    return max(0, peaks[0] - peaks[1])


def _run(request: dict[str, object]) -> int:
    args = [sys.executable, __file__, json.dumps(request)]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the memory benchmark failed:\n{done.stderr}")
    return int(json.loads(done.stdout)["peak"])


def _child(request: dict[str, object]) -> int:
    data = np.load(str(request["path"]))
    pos, A, B = (torch.from_numpy(data[name]) for name in ("pos", "A", "B"))

    def encode(x: Tensor) -> Tensor:
        beta, engine = float(str(request["beta"])), str(request["engine"])
        return veckm.encode(x, A, beta=beta, engine=engine, B=B, progress=False)  # type: ignore[arg-type]

    encode(pos[:500])  # what libraries set up once is no part of it
    if request["encode"]:
        out = encode(pos)
    else:
        out = torch.from_numpy(np.empty((len(pos), A.shape[1]), np.complex64))
        out.fill_(1)
    assert out.shape == (len(pos), A.shape[1])
    return peak()


def peak() -> int:
    """Bytes. Not ru_maxrss where there is better: Linux hands the parent's on to its children."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    print(json.dumps({"peak": _child(json.loads(sys.argv[1]))}))
