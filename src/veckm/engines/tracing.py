"""Whether tensor values may be read: not while a compiler traces the code.

Under `torch.compile`, `torch.export`, `torch.jit.trace` and `vmap`, a value read by Python becomes
a constant of the graph, or raises. `dense` reads none; the other engines need values to plan.
"""

from __future__ import annotations

import torch
from torch import Tensor

from veckm.engines import device

#: Pairs of all clouds together: 64 clouds of 1,024 points.
_MOST_PAIRS = 1 << 26


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
    """Whether a compiled graph over all pairs of points would be too large.

    Exported graphs are exempt: they are for any number of points.
    """
    dynamo = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
    return dynamo and pairs > _MOST_PAIRS


def can_look(x: Tensor) -> bool:
    """Whether reading a value is allowed and cheap: on a GPU it would synchronize."""
    return not device.launches(x.device) and not traced(x)
