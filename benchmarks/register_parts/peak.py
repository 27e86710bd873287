"""Peak memory of a call on a large cloud, in a process of its own; as a program, that process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

import veckm
from benchmarks import memory
from veckm.data import shapes

CALLS = ("register", "describe")


def of(call: str, points: int) -> int:
    """Bytes of the whole process, libraries and clouds included."""
    root = Path(__file__).resolve().parents[2]
    args = [sys.executable, "-m", "benchmarks.register_parts.peak", call, str(points)]
    done = subprocess.run(args, capture_output=True, text=True, check=False, cwd=root)
    if done.returncode:
        raise RuntimeError(f"the memory benchmark failed:\n{done.stderr}")
    return int(done.stdout)


def _child(call: str, points: int) -> int:
    pos = shapes.statue(points).pos
    if call == "register":
        c, s = 0.6, 0.8
        turn = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]])
        assert veckm.register(pos @ turn, shapes.statue(points, 1).pos).aligned
    else:
        assert len(veckm.describe(pos, radius=0.05)) == points
    return memory.peak()


if __name__ == "__main__":
    print(_child(sys.argv[1], int(sys.argv[2])))
