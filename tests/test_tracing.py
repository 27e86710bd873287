"""Compilers, exporters and transforms: the encoder is right inside them or says that it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, hessian, jacrev, jvp, vjp, vmap

import veckm

PLANNED = ["neighbors", "random", "grid"]
# Torch's own: its tracer warns of shapes, and its jvp is made by its deprecated script compiler.
pytestmark = pytest.mark.filterwarnings(
    "ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)
MAKE: dict[str, Any] = {"dim": 8, "alpha": 6, "beta": 3, "p": 64}


@pytest.fixture
def pos() -> Tensor:
    return torch.rand(2, 40, 3, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def other() -> Tensor:
    """Other points, and not as many: a result that was baked in shows."""
    return torch.rand(2, 23, 3, generator=torch.Generator().manual_seed(2))


def truth(pos: Tensor) -> Tensor:
    return veckm.VecKM(**MAKE, engine="dense")(pos)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


class Network(nn.Module):
    """An encoder inside a network, with real numbers at its ends as ONNX wants them."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.encoder = veckm.VecKM(**MAKE, **options)

    def forward(self, pos: Tensor) -> Tensor:
        return torch.view_as_real(self.encoder(pos))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_follows_the_encoder_and_its_gradient(
    pos: Tensor, other: Tensor, backend: str
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(veckm.VecKM(**MAKE), fullgraph=True, backend=backend)
    for x in (pos, other, pos[0]):
        close(compiled(x), truth(x))
    x, y = pos.clone().requires_grad_(), pos.clone().requires_grad_()
    compiled(x).real.sum().backward()
    truth(y).real.sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("engine", PLANNED)
def test_compile_leaves_the_graph_where_it_cannot_follow(pos: Tensor, engine: Any) -> None:
    torch._dynamo.reset()
    encoder = veckm.VecKM(**MAKE, engine=engine)
    close(torch.compile(encoder, backend="eager")(pos), encoder(pos))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="only dense of few points compiles"):
        torch.compile(encoder, backend="eager", fullgraph=True)(pos)


def test_compile_leaves_the_graph_for_batch_vectors_and_for_many_points(pos: Tensor) -> None:
    torch._dynamo.reset()
    encoder = veckm.VecKM(**MAKE)
    compiled = torch.compile(encoder, backend="eager")
    batch = torch.arange(2).repeat_interleave(40)
    close(compiled(pos.flatten(0, 1), batch), truth(pos).flatten(0, 1))
    many = torch.rand(10_000, 3, generator=torch.Generator().manual_seed(1))
    close(compiled(many), encoder(many))  # by grid: not by all pairs


def test_export_is_for_any_number_of_points(pos: Tensor, other: Tensor) -> None:
    n = torch.export.Dim("n")
    program = torch.export.export(veckm.VecKM(**MAKE), (pos,), dynamic_shapes={"pos": {1: n}})
    for x in (pos, other):
        close(program.module()(x), truth(x))


def test_onnx_export_is_for_any_number_of_points(pos: Tensor, other: Tensor) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    n = torch.export.Dim("n")
    program = torch.onnx.export(
        Network().eval(), (pos,), dynamo=True, dynamic_shapes={"pos": {1: n}}, verbose=False
    )
    assert program is not None
    session = runtime.InferenceSession(program.model_proto.SerializeToString())
    for x in (pos, other):
        (found,) = session.run(None, {"pos": x.numpy()})
        close(torch.view_as_complex(torch.from_numpy(found)), truth(x))


def test_vmap_is_the_batch(pos: Tensor) -> None:
    close(vmap(veckm.VecKM(**MAKE))(pos), truth(pos))


def test_a_trace_is_right_on_other_points(pos: Tensor, other: Tensor) -> None:
    traced = torch.jit.trace(veckm.VecKM(**MAKE), (pos,))
    for x in (pos, other):
        close(traced(x), truth(x))


def trace(f: Callable[[Tensor], Tensor], pos: Tensor) -> object:
    return torch.jit.trace(f, (pos,))


@pytest.mark.parametrize("engine", PLANNED)
@pytest.mark.parametrize(
    "inside",
    [trace, lambda f, pos: vmap(f)(pos), lambda f, pos: torch.export.export(f, (pos,))],
    ids=["trace", "vmap", "export"],
)
def test_an_engine_that_looks_at_the_numbers_says_so(
    pos: Tensor, engine: Any, inside: Callable[..., object]
) -> None:
    with pytest.raises(NotImplementedError, match="can follow engine='dense'"):
        inside(veckm.VecKM(**MAKE, engine=engine), pos)


def scalar(engine: Any, pos: Tensor) -> Callable[[Tensor], Tensor]:
    """A number that depends on the positions, its weights neither equal nor zero."""
    encoder = veckm.VecKM(**MAKE, engine=engine, eps=1e-6).double()
    weights = torch.rand(
        len(pos), 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
    )
    return lambda x: (encoder(x).real * weights).sum()


@pytest.mark.parametrize("engine", ["dense", "auto", *PLANNED])
def test_reverse_mode_transforms_are_right(pos: Tensor, engine: Any) -> None:
    x = pos[0].double()
    f = scalar(engine, x)
    y = x.clone().requires_grad_()
    f(y).backward()
    assert y.grad is not None
    torch.testing.assert_close(grad(f)(x), y.grad)
    torch.testing.assert_close(vjp(f, x)[1](torch.ones(()).double())[0], y.grad)


def test_forward_mode_and_second_order_are_right_with_dense(pos: Tensor) -> None:
    x = pos[0, :12].double()
    f = scalar("dense", x)
    t = torch.rand(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    h = 1e-4
    slope = (f(x + h * t) - f(x - h * t)) / (2 * h)
    torch.testing.assert_close(jvp(f, (x,), (t,))[1], slope, rtol=1e-4, atol=1e-6)
    bend = (f(x + h * t) - 2 * f(x) + f(x - h * t)) / h**2
    found = torch.einsum("ij,ijkl,kl", t, hessian(f)(x), t)
    torch.testing.assert_close(found, bend, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("engine", PLANNED)
@pytest.mark.parametrize(
    ("transform", "match"),
    [
        (lambda f, x: jvp(f, (x,), (x,)), "forward-mode differentiation .* use engine='dense'"),
        (lambda f, x: grad(lambda y: grad(f)(y).sum())(x), "gradients of gradients .* use engine"),
        (lambda f, x: jacrev(f)(x), "vmap cannot follow"),
    ],
    ids=["jvp", "second order", "jacrev"],
)
def test_a_derivative_that_is_not_there_raises(
    pos: Tensor, engine: Any, transform: Callable[..., object], match: str
) -> None:
    x = pos[0].double()
    with pytest.raises(RuntimeError, match=match):
        transform(scalar(engine, x), x)


@pytest.mark.parametrize("engine", PLANNED)
def test_sums_and_moments_have_no_forward_mode_either(pos: Tensor, engine: Any) -> None:
    B = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))

    def total(x: Tensor) -> Tensor:
        plan = veckm.plan(x, beta=3.0, engine=engine, B=B)
        return plan.sum(torch.ones(len(x))) + plan.moments().weight

    with pytest.raises(RuntimeError, match="forward-mode differentiation"):
        jvp(total, (pos[0],), (pos[0],))
