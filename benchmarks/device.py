"""A GPU that is not there: what a call would launch on it, and how often the host would wait.

Within `count`, tensors from `moved` claim to lie on another device and compute on the CPU, so
that the package takes the paths that it has for GPUs. A wait is what
`torch.cuda.set_sync_debug_mode` reports: a number or a mask that Python or a shape depends on, and
a copy from or to the host. Tensors of two devices in one operation raise, as they would there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

#: Not a CPU, which is all that the package asks, and known to every build of torch.
DEVICE = torch.device("meta")
HOST = torch.device("cpu")

_aten = torch.ops.aten
_COPIES = (_aten._to_copy, _aten.copy_)
_INDEXING = (_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_)
#: Their results, or the shapes of their results, depend on values.
_WAITING = (
    _aten._local_scalar_dense,
    _aten._linalg_check_errors,
    _aten._unique2,
    _aten.bincount,
    _aten.equal,
    _aten.masked_select,
    _aten.nonzero,
    _aten.unique_consecutive,
    _aten.unique_dim,
)
#: Launch nothing, although their schemas do not call them views.
_NO_KERNEL = (_aten._unsafe_view, _aten.lift_fresh, _aten.empty, _aten.new_empty, _aten.empty_like)


@dataclass
class Counts:
    """What one call did."""

    operations: int = 0  # all that torch dispatched, views included
    kernels: int = 0  # those that compute: neither a view nor fresh memory
    waits: int = 0  # for the device


def count(call: Callable[[], Tensor]) -> tuple[Counts, Tensor]:
    """What a call on tensors from `moved` does without gradients, and its result on the CPU."""
    counts = Counts()
    no_autocast = patch.object(torch, "autocast", lambda *_, **__: nullcontext())  # has no "meta"
    with no_autocast, torch.no_grad(), _Constructors(), _Operations(counts):
        result = call()
    return counts, fetched(result)


def moved(x: Tensor) -> Tensor:
    """The tensor, on the device; not counted."""
    return _Moved(x)


def fetched(x: Tensor) -> Tensor:
    """The tensor, on the CPU; not counted."""
    return x.inner if isinstance(x, _Moved) else x


class _Moved(Tensor):
    """A CPU tensor with another device on its label."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> _Moved:
        if inner.is_conj():  # torch keeps it as a flag, which the label would not show
            inner = inner.conj().conj_physical()
        made: _Moved = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} outside of count()")

    def tolist(self) -> Any:
        """As torch does it: a copy to the host, which torch does not show to dispatch modes."""
        return self.cpu().tolist()


class _Constructors(TorchFunctionMode):
    """`torch.tensor(list, device=...)` is made on the host and copied."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") == DEVICE:
            return func(*args, **{**kwargs, "device": HOST}).to(DEVICE)
        return func(*args, **kwargs)


class _Operations(TorchDispatchMode):
    """Counts every operation and runs it on the CPU."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        packet, target = func.overloadpacket, kwargs.get("device")
        here = target == DEVICE if target else any(isinstance(x, _Moved) for x in tensors)
        crossing = _crosses(tensors, target)
        if crossing and packet not in (*_COPIES, *_INDEXING):
            raise RuntimeError(f"{func}: tensors on the CPU and on the device")
        self.counts.operations += 1
        self.counts.kernels += not (func.is_view or packet in _NO_KERNEL)
        self.counts.waits += crossing or (here and _waits(packet, args, kwargs))
        if target is not None:
            kwargs["device"] = HOST
        out = func(*tree_map(fetched, args), **tree_map(fetched, kwargs))
        same = next((x for x in tensors if fetched(x) is out), None)  # an in-place operation
        return same if same is not None else tree_map(_labeled, out) if here else out


def _labeled(x: Any) -> Any:
    return moved(x) if isinstance(x, Tensor) else x


def _crosses(tensors: list[Tensor], target: torch.device | None) -> bool:
    """Whether numbers go from one device to the other; a CPU number may stand beside tensors."""
    on_device = {isinstance(x, _Moved) for x in tensors if x.dim() or isinstance(x, _Moved)}
    return len(on_device) > 1 or (target is not None and on_device == {target != DEVICE})


def _waits(packet: Any, args: Any, kwargs: Any) -> bool:
    """Whether the host has to wait for the result of an operation on the device."""
    if packet in _INDEXING:  # a mask has to be counted first
        indices = [x for x in args[1] if x is not None]
        return any(x.dtype in (torch.bool, torch.uint8) for x in indices)
    if packet is _aten.repeat_interleave:
        return kwargs.get("output_size") is None
    return packet in _WAITING
