"""What depends on where the code runs: on a CPU or another device, in a compiler, in autocast.

Under `torch.compile`, `torch.export`, `torch.jit.trace` and `vmap`, a value read by Python becomes
a constant of the graph, or raises. `dense` reads none; the other engines need values to plan.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

#: Pairs of all clouds together: 64 clouds of 1,024 points.
_MOST_PAIRS = 1 << 26
_lock = threading.Lock()
_inside = 0
_outer = "highest"  # the user's setting while a thread is inside


def launches(device: torch.device) -> bool:
    """Whether every operation is a launch: few large ones are then better than many small ones."""
    return device.type != "cpu"


def empty(rows: int, columns: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """(rows, columns), uninitialized, on the device and in the dtype of `like`."""
    dtype = dtype or like.dtype
    if like.device.type != "cpu":
        return like.new_empty(rows, columns, dtype=dtype)
    # NumPy asks Linux for huge pages as torch does not: first use is several times faster.
    return torch.from_numpy(np.empty((rows, columns), str(dtype).removeprefix("torch.")))


def traced(*tensors: Tensor) -> bool:
    """Whether Python must not depend on the values of these tensors."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return True
    return any(map(_mapped, tensors))


def _mapped(x: Tensor) -> bool:
    """Whether vmap is anywhere among the transforms around a tensor."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


def too_large(pairs: int) -> bool:
    """Whether a compiled graph over all pairs would be too large; exported ones are for any."""
    dynamo = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
    return dynamo and pairs > _MOST_PAIRS


def can_look(x: Tensor) -> bool:
    """Whether reading a value is allowed and cheap: on a GPU it would synchronize."""
    return not launches(x.device) and not traced(x)


def rounding(x: Tensor, native: bool = False) -> torch.dtype | None:
    """What autocast rounds the factors of products to; None outside of it.

    With `native` bfloat16 there, on a CPU that multiplies it itself; not in a graph, which may run
    elsewhere.
    """
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return torch.bfloat16 if native and can_look(x) and native_bfloat16() else None


def native_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 itself; elsewhere it is slower than float32."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """float32 products in float32, whatever autocast or `set_float32_matmul_precision` say."""
    global _inside, _outer  # the setting belongs to the process, so threads are counted
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
