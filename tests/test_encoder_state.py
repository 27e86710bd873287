"""VecKM as a torch module: saved, copied, moved, printed, and run under every mode."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import safetensors.torch
import torch
from clouds import surface
from torch import Generator, Tensor, nn

from veckm import VecKM

ENGINES = ["dense", "neighbors", "random", "grid", "auto"]


def made(engine: str = "grid", seed: int = 0, p: int = 64) -> VecKM:
    return VecKM(16, alpha=(12.0, 20.0), beta=(3.0, 5.0), p=p, engine=engine, seed=seed)  # type: ignore[arg-type]


def saved(enc: VecKM) -> VecKM:
    file = io.BytesIO()
    torch.save(enc, file)
    file.seek(0)
    loaded: VecKM = torch.load(file, weights_only=False)
    return loaded


def reloaded(enc: VecKM) -> VecKM:
    file, other = io.BytesIO(), made(seed=9)
    torch.save(enc.state_dict(), file)
    file.seek(0)
    assert not torch.equal(other.A, enc.A)
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


COPIES: dict[str, Callable[[VecKM], VecKM]] = {
    "state_dict": reloaded,
    "deepcopy": copy.deepcopy,
    "pickle": lambda enc: pickle.loads(pickle.dumps(enc)),
    "torch.save": saved,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_encodes_the_same(way: str, generator: Generator) -> None:
    pos, enc = surface(80, 3, generator).float(), made()
    other = COPIES[way](enc)
    assert torch.equal(other(pos), enc(pos))
    assert repr(other) == repr(enc)
    other.A.zero_()
    assert bool(enc.A.any())  # a copy, not a view


def stored(enc: VecKM) -> dict[str, Tensor]:
    """Its state after a file that holds tensors only."""
    data = safetensors.torch.save(enc.state_dict())
    return safetensors.torch.load(data)


def test_the_state_has_b_only_where_it_is_needed_or_given() -> None:
    assert sorted(made("grid").state_dict()) == ["A", "sizes"]
    assert sorted(made("random").state_dict()) == ["A", "B", "sizes"]
    given = VecKM(beta=1.0, A=torch.ones(3, 4), B=torch.ones(3, 5))
    assert sorted(given.state_dict()) == ["A", "B", "sizes"]
    drawn = made("grid")
    assert drawn.B.shape == (2, 3, 64)
    assert sorted(drawn.state_dict()) == ["A", "sizes"]


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_loads_with_and_without_b_and_with_another_p(assign: bool) -> None:
    for source in ("grid", "random"):
        for target in ("grid", "random"):
            enc, other = made(source, seed=3), made(target, p=16, seed=9)
            own = other.B.clone()
            other.load_state_dict(stored(enc), assign=assign)
            assert torch.equal(other.A, enc.A)
            assert torch.equal(other.B, enc.B if source == "random" else own)
            assert other(torch.zeros(2, 3)).shape == (2, 32)


def test_a_state_of_earlier_versions_loads() -> None:
    enc, other = made("random", seed=3), made("random", seed=9)
    other.load_state_dict({"A": enc.A, "B": enc.B})
    assert torch.equal(other.A, enc.A)
    assert torch.equal(other.B, enc.B)
    assert other.alpha == pytest.approx(enc.alpha)
    one = VecKM(16, alpha=12.0, beta=3.0)
    one.load_state_dict({"A": 2 * one.A[0]})  # two dimensions, as the authors hold it
    assert one.alpha == pytest.approx((24.0,))  # measured: nothing tells what it was


@pytest.mark.parametrize(
    ("options", "there", "here"),
    [
        ({"beta": 20.0}, r"beta=\(10\), alpha", r"beta=\(20\), alpha"),
        ({"beta": (10.0, 20.0)}, r"beta=\(10\), alpha", r"beta=\(10, 20\), alpha"),
        ({"alpha": 30.0}, r"alpha=\(60\)", r"alpha=\(30\)"),
        ({"window": "ball"}, "window='gaussian'", "window='ball'"),
    ],
)
def test_a_state_of_another_radius_alpha_or_window_is_refused(
    options: dict[str, Any], there: str, here: str
) -> None:
    enc = VecKM(8, alpha=60.0, beta=10.0, seed=3)
    other = VecKM(8, **{"alpha": 60.0, "beta": 10.0, **options})
    before = other.A.clone()
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=f"state is of .*{there}.* but this one .*{here}"):
            other.load_state_dict(stored(enc), strict=strict)
    assert torch.equal(other.A, before)
    with pytest.raises(RuntimeError, match=f"0: the state is of .*{there}"):
        nn.Sequential(other).load_state_dict(nn.Sequential(enc).state_dict())


def test_rounding_does_not_make_another_radius() -> None:
    enc, same = VecKM(8, alpha=60.0, beta=10.0), VecKM(8, radius=0.18, detail=60 * 0.18, seed=1)
    same.load_state_dict(enc.state_dict())
    for dtype in (torch.float32, torch.bfloat16):
        same.load_state_dict({key: value.to(dtype) for key, value in enc.state_dict().items()})


def test_a_state_that_is_incomplete_or_has_more_is_refused_as_ever() -> None:
    enc = made()
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "A"'):
        enc.load_state_dict({})
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "C"'):
        enc.load_state_dict({**enc.state_dict(), "C": enc.A})
    with pytest.raises(RuntimeError, match="size mismatch for A"):
        VecKM(8, alpha=(12.0, 20.0), beta=(3.0, 5.0)).load_state_dict(enc.state_dict())
    with pytest.raises(RuntimeError, match=r"B must have shape \(3, columns\)"):
        enc.load_state_dict({"A": enc.A, "B": torch.zeros(2, 5)})


def test_given_frequencies_load_into_any_alpha_and_are_measured_there() -> None:
    given = VecKM(beta=(3.0, 5.0), A=torch.full((3, 16), 2.0))
    other = made()
    other.load_state_dict(stored(given))
    assert other.alpha == pytest.approx((2.0, 2.0))
    given.load_state_dict(made().state_dict())
    assert given.alpha == (12.0, 20.0)


def test_a_trained_parameter_loads_into_a_buffer_and_back() -> None:
    learned = VecKM(beta=3.0, A=nn.Parameter(torch.randn(3, 8)))
    fixed = VecKM(8, alpha=1.0, beta=3.0)
    fixed.load_state_dict(stored(learned))
    assert torch.equal(fixed.A[0], learned.A)
    again = VecKM(beta=3.0, A=nn.Parameter(torch.zeros(3, 8)))
    again.load_state_dict(stored(fixed))
    assert isinstance(again.A, nn.Parameter)
    assert torch.equal(again.A, learned.A)
    again.load_state_dict(VecKM(8, alpha=5.0, beta=3.0).state_dict())
    with torch.no_grad():
        again.A.mul_(2.0)
    assert again.alpha == pytest.approx((10.0,))  # measured, whatever it was loaded from


def test_the_state_can_be_lent_to_another_encoder(generator: Generator) -> None:
    pos, enc, other = surface(40, 3, generator).float(), made("random"), made("random", seed=9)
    lent = torch.func.functional_call(other, enc.state_dict(), (pos,))
    assert torch.equal(lent, enc(pos))
    assert not torch.equal(other(pos), lent)


def test_the_encoder_prints_what_it_is() -> None:
    enc = VecKM(256, alpha=60, beta=(10, 20), p=4)
    assert repr(enc) == (
        "VecKM(3 -> 512 complex, alpha=(60, 60), beta=(10, 20), "
        "window='gaussian', engine='auto', eps=0.01)"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_double_changes_the_dtype_of_the_frequencies_and_not_their_values(
    engine: str, generator: Generator
) -> None:
    pos, enc = surface(80, 3, generator), made(engine)
    before = enc(pos)
    assert before.dtype == torch.complex128
    assert torch.equal(enc.double()(pos), before)
    assert enc.A.dtype == torch.float64
    assert enc(pos.float()).dtype == torch.complex64


def autocast() -> AbstractContextManager[object]:
    return torch.autocast("cpu", dtype=torch.bfloat16)


MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "autocast": autocast}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_modes_of_torch_do_not_change_the_numbers(
    engine: str, mode: str, generator: Generator
) -> None:
    pos, enc = surface(300, 3, generator).float(), made(engine)
    plain = enc(pos)
    with MODES[mode]():
        inside = enc(pos)
    assert inside.dtype == torch.complex64
    assert torch.equal(inside, plain)
    with_graph = enc(pos.clone().requires_grad_())
    torch.testing.assert_close(with_graph.detach(), plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_result_made_without_grad_can_be_used_with_grad_later(
    engine: str, generator: Generator
) -> None:
    pos, enc = surface(100, 3, generator).float(), made(engine)
    with torch.no_grad():
        G = enc(pos)
    w = torch.ones(32, requires_grad=True)
    (G.abs() * w).sum().backward()
    assert w.grad is not None
    assert bool(torch.isfinite(w.grad).all())


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_call_gives_the_same_bits(engine: str, generator: Generator) -> None:
    pos, enc = surface(1500, 3, generator).float(), made(engine)
    assert torch.equal(enc(pos), enc(pos))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_inputs_are_left_as_they_were(engine: str, generator: Generator) -> None:
    pos, weights = surface(100, 3, generator), torch.rand(100, generator=generator).double()
    queries = pos[::3].clone()
    kept = [t.clone() for t in (pos, weights, queries)]
    made(engine)(pos, queries=queries, weights=weights)
    for before, after in zip(kept, (pos, weights, queries), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_state_of_torch_is_left_as_it_was(engine: str, generator: Generator) -> None:
    pos = surface(6000, 3, generator).float()
    before = torch.get_num_threads(), torch.get_rng_state(), torch.is_grad_enabled()
    made(engine)(pos)
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert torch.is_grad_enabled() is before[2]
