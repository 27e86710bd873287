"""Freed memory that is kept costs no fresh pages."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from veckm.memory import keep_freed_memory

GLIBC = platform.system() == "Linux" and platform.libc_ver()[0] == "glibc"
#: Pages that are asked of the system while eight megabytes are taken and freed ten times.
PAGES = """
import resource, sys
import torch, veckm.encoder  # as in a worker
from veckm.memory import keep_freed_memory
if len(sys.argv) > 1:
    keep_freed_memory(int(sys.argv[1]))
def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(1 << 21)
before = pages()
for _ in range(10):
    torch.ones(1 << 21)
print(pages() - before)
"""


def test_it_is_kept_where_the_c_library_can() -> None:
    assert keep_freed_memory() is GLIBC


@pytest.mark.skipif(not GLIBC, reason="the C library is not glibc")
def test_a_worker_that_gives_memory_back_at_once_can_be_told_to_keep_it() -> None:
    given_back, kept = _pages(), _pages(1 << 25)
    assert given_back >= 10  # 2,048 small pages each time, or a few large ones
    assert kept < given_back / 2


def _pages(*most: int) -> int:
    """With the threshold that Dask gives its workers."""
    env = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-c", PAGES, *map(str, most)]
    return int(subprocess.run(call, env=env, check=True, capture_output=True, text=True).stdout)
