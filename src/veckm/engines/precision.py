"""Products in full precision, whatever the user has allowed elsewhere.

A phase of hundreds of radians, or an exponent, does not survive the 10 bits of TF32 or the 7 of
bfloat16. So a surrounding autocast and `torch.set_float32_matmul_precision` do not reach in here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from veckm.engines.tracing import traced

_lock = threading.Lock()
_inside = 0
_outer = "highest"  # the user's setting while a thread is inside


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """float32 products in float32: the setting belongs to the process, so threads count in."""
    global _inside, _outer
    if traced():  # a setting of today has no place in a graph of tomorrow, but for autocast
        with torch.autocast(device.type, enabled=False):
            yield
        return
    with _lock:
        if not _inside:
            _outer = torch.get_float32_matmul_precision()
            if _outer != "highest":
                torch.set_float32_matmul_precision("highest")
        _inside += 1
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _outer != "highest":
                torch.set_float32_matmul_precision(_outer)
