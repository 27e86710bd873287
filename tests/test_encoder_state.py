"""VecKM as a torch module: saved, copied, moved, printed, and run under every mode."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from clouds import surface
from torch import Generator

from veckm import VecKM

ENGINES = ["dense", "neighbors", "random", "grid", "auto"]


def made(engine: str = "grid", seed: int = 0) -> VecKM:
    return VecKM(16, alpha=(12.0, 20.0), beta=(3.0, 5.0), p=64, engine=engine, seed=seed)  # type: ignore[arg-type]


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
