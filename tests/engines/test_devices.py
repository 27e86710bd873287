"""What the core promises for a GPU, as far as a CPU can tell: operations, waits, precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import veckm
from veckm.engines import Geometry, Points, device, proposals
from veckm.engines.cost import GPU
from veckm.engines.windows import Gaussian

#: Their results, or the shapes of these, are read by the host.
WAITS = ("_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "unique_consecutive", "equal")
#: Launch nothing.
VIEWS = ("view", "expand", "select", "slice", "detach", "unsqueeze", "transpose", "_conj", "alias")
VIEWS += ("view_as_real", "view_as_complex", "_unsafe_view", "t", "split", "lift_fresh", "empty")


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], Counter[str]]:
    """Counts the operations of a call that believes to be on a device; ``waits`` are in it."""
    read: list[int] = []
    tolist = Tensor.tolist

    def counted(self: Tensor) -> Any:
        read.append(1)
        return tolist(self)

    def run(call: Callable[[], object]) -> Counter[str]:
        read.clear()
        monkeypatch.setattr(device, "launches", lambda _: True)
        monkeypatch.setattr(Tensor, "tolist", counted)
        with Operations() as mode:
            call()
        waits = len(read) + sum(mode.counts[name] for name in WAITS)
        mode.counts["waits"] = waits
        return mode.counts

    return run


def cloud(*shape: int) -> Tensor:
    return torch.rand(*shape, 3, generator=torch.Generator().manual_seed(0))


A = 20 * torch.randn(3, 32, generator=torch.Generator().manual_seed(1))


def test_dense_is_some_twenty_operations_without_a_wait(count: Callable[..., Counter[str]]) -> None:
    pos = cloud(4, 64)
    found = count(lambda: veckm.encode(pos, A, beta=6.0, engine="dense", validate=False))
    assert found.pop("waits") == 0
    assert sum(n for name, n in found.items() if name not in VIEWS) <= 25


@pytest.mark.parametrize("validate", [False, True])
def test_the_operations_of_the_grid_do_not_grow_with_the_cloud(
    count: Callable[..., Counter[str]], validate: bool
) -> None:
    totals = []
    for n in (2_000, 20_000):
        encode = partial(veckm.encode, cloud(n), A, beta=10.0, engine="grid", validate=validate)
        found = count(encode)
        totals.append(found.total() - found["waits"])
        assert found["waits"] <= 10
    assert max(totals) <= 600


def test_a_kept_plan_does_not_wait(count: Callable[..., Counter[str]]) -> None:
    pos = cloud(2_000)
    plans: list[veckm.Plan] = []
    options: dict[str, Any] = {"beta": 10.0, "engine": "grid", "validate": False}
    assert count(lambda: plans.append(veckm.plan(pos, **options)))["waits"] > 0
    assert count(lambda: plans[0].encode(A))["waits"] == 0


def test_auto_takes_dense_for_small_clouds_and_the_grid_for_large_ones_on_a_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "launches", lambda _: True)
    monkeypatch.setattr("veckm.engines.cost.CPU", GPU)
    for pos, name in ((cloud(32, 1024), "dense"), (cloud(100_000), "grid")):
        points = Points(pos)
        geometry = Geometry(points, points, Gaussian(6.0), 1e-2)
        assert proposals(geometry, 512)[0][0].name == name


def test_neighbors_says_why_it_is_not_for_a_device() -> None:
    points = Points(cloud(10).to("meta"))
    geometry = Geometry(points, points, Gaussian(6.0), 1e-2)
    engine = next(e for e in veckm.engines.ENGINES if e.name == "neighbors")
    with pytest.raises(ValueError, match="runs on the CPU only and pos is on meta"):
        engine.propose(geometry, 512).plan()


@contextmanager
def medium() -> Iterator[None]:
    """What users set who want TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
        assert torch.get_float32_matmul_precision() == "medium"  # put back
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("engine", ["dense", "neighbors", "random", "grid"])
@pytest.mark.parametrize(
    "setting",
    [medium, lambda: torch.autocast("cpu", dtype=torch.bfloat16)],
    ids=["TF32", "autocast"],
)
def test_products_keep_their_precision_whatever_is_allowed_elsewhere(
    engine: Any, setting: Callable[[], AbstractContextManager[Any]]
) -> None:
    pos = cloud(200)
    B = 6 * torch.randn(3, 64, generator=torch.Generator().manual_seed(2))

    def run() -> tuple[Tensor, Tensor, Tensor]:
        x = pos.clone().requires_grad_()
        plan = veckm.plan(x, beta=6.0, engine=engine, B=B)
        G = plan.encode(A)
        (grad,) = torch.autograd.grad(G.real.sum(), x)
        return G.detach(), plan.encode(A.detach()).detach(), grad

    expected = run()
    with setting():
        found = run()
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == e.dtype
        if engine != "dense" or f.is_complex():  # its gradient is torch's, with torch's settings
            torch.testing.assert_close(f, e, rtol=1e-5, atol=1e-4)
