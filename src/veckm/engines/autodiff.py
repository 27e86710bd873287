"""Autograd: the one function through which every engine has gradients.

First-order reverse mode only. Forward mode, vmap and second derivatives raise an error instead of
returning zeros. (`dense` consists of torch operations and supports all of them.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from veckm.engines import device
from veckm.engines.device import full_precision
from veckm.parallel import share, workers

_INSTEAD = "use engine='dense', whose derivatives are those of torch"
#: Rows in hand in one worker: they stay in its cache.
_ROWS = 512


class Call(Protocol):
    """A function of tensors with its own gradients."""

    def value(self, *tensors: Any) -> Tensor:
        """The function."""

    def gradients(self, grad: Tensor, wanted: Sequence[bool], *tensors: Any) -> list[Tensor]:
        """Those of <grad, value> to the tensors that are wanted, in their order."""


def differentiable(call: Call, *tensors: Tensor | None) -> Tensor:
    """The value of a call, with its gradients."""
    out: Tensor = _Value.apply(call, *tensors)
    return out


class _Rules(torch.autograd.Function):
    """An error instead of a wrong derivative."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        raise RuntimeError(
            "forward-mode differentiation (torch.func.jvp, torch.autograd.forward_ad) is not "
            f"available for this engine; {_INSTEAD}, or reverse mode (torch.func.vjp)"
        )

    @staticmethod
    def vmap(info: Any, dims: Any, *args: Any) -> Any:
        raise RuntimeError(f"vmap cannot follow this engine; {_INSTEAD}")


class _Value(_Rules):
    @staticmethod
    def forward(call: Call, *tensors: Tensor | None) -> Tensor:
        return call.value(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.call = inputs[0]
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[1:]
        found = iter(_Gradients.apply(ctx.call, grad, wanted, *ctx.saved_tensors))
        return (None, *(next(found) if want else None for want in wanted))


class _Gradients(_Rules):
    """A function of its own, so that gradients of gradients raise."""

    @staticmethod
    def forward(
        call: Call, grad: Tensor, wanted: Sequence[bool], *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        with full_precision(grad.device):  # backward may run inside a user's autocast
            return tuple(call.gradients(grad, wanted, *tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(f"gradients of gradients are not available for this engine; {_INSTEAD}")


class ByRows:
    """y = f(*tensors) a few rows at a time, also in the gradient, which runs f again.

    The first `cut` tensors have the rows, the others are for all of them.
    """

    def __init__(self, f: Callable[..., Tensor], cut: int) -> None:
        self.f, self.cut = f, cut

    def value(self, *tensors: Tensor | None) -> Tensor:
        first, *others = _runs(tensors[0])
        some = self.f(*self._part(tensors, first))
        if not others:
            return some
        out = device.empty(others[-1].stop, some.shape[1], some)
        out[first] = some

        def work(rows: slice) -> None:
            out[rows] = self.f(*self._part(tensors, rows))

        share(others, lambda _: work, workers(out.device, len(others)))
        return out

    def gradients(
        self, grad: Tensor, wanted: Sequence[bool], *tensors: Tensor | None
    ) -> list[Tensor]:
        leaves = {i: t for i, t in enumerate(tensors) if wanted[i] and t is not None}
        runs = _runs(grad)
        count = workers(grad.device, len(runs))
        shapes = {i: t.shape if i < self.cut else (count, *t.shape) for i, t in leaves.items()}
        found = {i: t.new_zeros(shapes[i]) for i, t in leaves.items()}  # not cut: of each worker

        def make(worker: int) -> Callable[[slice], None]:
            def work(rows: slice) -> None:
                part = [None if t is None else t.detach() for t in self._part(tensors, rows)]
                asked = [
                    t.requires_grad_() for i, t in enumerate(part) if i in leaves and t is not None
                ]
                with torch.enable_grad():
                    parts = torch.autograd.grad(self.f(*part), asked, grad[rows])
                for i, g in zip(leaves, parts, strict=True):
                    found[i][rows if i < self.cut else worker].add_(g)

            return work

        share(runs, make, count)
        return [total if i < self.cut else total.sum(0) for i, total in found.items()]

    def _part(self, tensors: Sequence[Tensor | None], rows: slice) -> list[Tensor | None]:
        return [t if t is None or i >= self.cut else t[rows] for i, t in enumerate(tensors)]


def _runs(rows: Tensor | None) -> list[slice]:
    """Rows that are worked on at once; on other devices than a CPU, all."""
    assert rows is not None
    count = len(rows)
    step = max(1, count) if device.launches(rows.device) else _ROWS
    return [slice(i, min(i + step, count)) for i in range(0, max(1, count), step)]
