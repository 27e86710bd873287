"""Autograd: the one function through which every engine has gradients.

Reverse mode, once. Whatever else is asked for raises: a derivative that is silently zero would be
worse. (`dense` is made of torch's own operations and has derivatives of every kind.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from veckm.engines import device
from veckm.parallel import share, workers

_INSTEAD = "use engine='dense', whose derivatives are those of torch"
#: Rows in hand in one worker: they stay in its cache.
_ROWS = 512


class Call(Protocol):
    """A function of tensors that knows its gradients."""

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
        return tuple(call.gradients(grad, wanted, *tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(f"gradients of gradients are not available for this engine; {_INSTEAD}")


class ByRows:
    """y = f(*tensors), each row by itself: without large tensors in between.

    The first `cut` tensors have the rows, the others are for all of them. Nothing is kept for the
    gradient, which runs f again on rows that are in the cache.
    """

    def __init__(self, f: Callable[..., Tensor], cut: int) -> None:
        self.f, self.cut = f, cut

    def value(self, *tensors: Tensor | None) -> Tensor:
        one = self.f(*self._part(tensors, slice(0, 1)))
        count = self._count(tensors)
        out = device.empty(count, one.shape[1], one)

        def work(rows: slice) -> None:
            out[rows] = self.f(*self._part(tensors, rows))

        _share_rows(count, lambda _: work, out.device)
        return out

    def gradients(
        self, grad: Tensor, wanted: Sequence[bool], *tensors: Tensor | None
    ) -> list[Tensor]:
        places = [i for i, want in enumerate(wanted) if want]
        given = [t for i, t in enumerate(tensors) if i in places and t is not None]
        found = [torch.zeros_like(t) for t in given]
        totals: list[list[Tensor]] = []  # of each worker, for what is not cut

        own_places = list(zip(places, found, strict=True))

        def make(worker: int) -> Callable[[slice], None]:  # noqa: ARG001 - all do the same
            own = [f if i < self.cut else torch.zeros_like(f) for i, f in own_places]
            totals.append(own)

            def work(rows: slice) -> None:
                with torch.enable_grad():
                    part = [None if t is None else t.detach() for t in self._part(tensors, rows)]
                    leaves = [t for i, t in enumerate(part) if i in places and t is not None]
                    for leaf in leaves:
                        leaf.requires_grad_()
                    parts = torch.autograd.grad(self.f(*part), leaves, grad[rows])
                for i, total, g in zip(places, own, parts, strict=True):
                    (total[rows] if i < self.cut else total).add_(g)

            return work

        _share_rows(len(grad), make, grad.device)
        for own in totals:
            for (i, f), total in zip(own_places, own, strict=True):
                if i >= self.cut:
                    f += total
        return found

    def _part(self, tensors: Sequence[Tensor | None], rows: slice) -> list[Tensor | None]:
        cut = [None if t is None else t[rows] for t in tensors[: self.cut]]
        return [*cut, *tensors[self.cut :]]

    @staticmethod
    def _count(tensors: Sequence[Tensor | None]) -> int:
        assert tensors[0] is not None
        return len(tensors[0])


def _share_rows(
    count: int, make: Callable[[int], Callable[[slice], None]], where: torch.device
) -> None:
    step = max(1, count) if device.launches(where) else _ROWS
    parts = [slice(i, min(i + step, count)) for i in range(0, count, step)]
    share(parts, make, workers(where, len(parts)))
