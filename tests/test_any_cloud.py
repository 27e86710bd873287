"""Whatever the cloud, an engine gives the right answer or a ValueError: no NaN, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from clouds import frequencies
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from twins import by_definition, by_random_features

from veckm import encode

D = 6
magnitudes = st.floats(-6, 6).map(lambda power: 10.0**power)
numbers = st.one_of(
    st.just(0.0), st.floats(-1, 1, allow_subnormal=False), magnitudes, magnitudes.map(lambda x: -x)
)


@dataclass(frozen=True)
class Case:
    """A small cloud, a window and an accuracy."""

    pos: Tensor
    beta: float
    eps: float
    detail: float

    @property
    def A(self) -> Tensor:
        return self.drawn(D, self.detail * self.beta / 1.8)

    @property
    def B(self) -> Tensor:
        return self.drawn(32, self.beta)

    def drawn(self, columns: int, scale: float) -> Tensor:
        seed = torch.Generator().manual_seed(3)
        return frequencies(self.pos.shape[1], columns, scale, seed)

    @property
    def rounding(self) -> float:
        """Of a phase in float64, where coordinates and frequencies are both large."""
        return 1e-9 + 1e-14 * float(self.pos.abs().max() * self.A.abs().sum(0).max())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Free, in heaps of equal points, or on a line; spread over twelve orders of magnitude."""
    n, in_dim = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    rows = st.lists(numbers, min_size=in_dim, max_size=in_dim)
    pos = torch.tensor(draw(st.lists(rows, min_size=n, max_size=n)), dtype=torch.float64)
    kind = draw(st.sampled_from(["free", "heaps", "line"]))
    if kind == "heaps":
        pos = pos[torch.tensor(draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))]
    if kind == "line":
        pos = pos[:, :1] * pos[:1].clamp(-1, 1)
    beta = draw(st.floats(-3, 3).map(lambda power: 10.0**power))
    return Case(pos, beta, draw(st.sampled_from([0.5, 5e-2, 1e-3])), draw(st.floats(0.5, 12)))


def answered(engine: str, case: Case, dtype: torch.dtype, **options: str | None) -> Tensor:
    """The encoding, or no example at all where the engine says what is wrong."""
    try:
        G = encode(
            case.pos.to(dtype), case.A, beta=case.beta, engine=engine, eps=case.eps, B=case.B,
            **options,  # type: ignore[arg-type]
        )  # fmt: skip
    except ValueError as error:
        said = str(error)
        assert any(word in said for word in ("use ", "Use ", "Drop "))
        assume(False)
    assert bool(torch.isfinite(torch.view_as_real(G)).all())
    return G


def clear_of_the_ball(case: Case) -> bool:
    """No distance so close to the radius that rounding decides."""
    distance, radius = torch.cdist(case.pos, case.pos), 1.8 / case.beta
    off = float(case.pos.abs().max()) * 1e-12
    return not bool(((distance - radius).abs() < off + 1e-9 * radius).any())


@pytest.mark.parametrize("window", ["gaussian", "ball"])
@given(case=cases())
def test_dense_is_the_definition(window: str, case: Case) -> None:
    assume(window == "gaussian" or clear_of_the_ball(case))
    G = answered("dense", case, torch.float64, window=window, norm=None)
    truth = by_definition(case.pos, case.A, beta=case.beta, window=window, norm=None)
    assert float((G - truth).abs().max()) <= len(case.pos) * case.rounding


@given(case=cases())
def test_random_is_its_formula(case: Case) -> None:
    G = answered("random", case, torch.float64, norm=None)
    middle = (case.pos.amin(0) + case.pos.amax(0)) / 2
    truth = by_random_features(case.pos - middle, case.A, case.B, norm=None)
    assert float((G - truth).abs().max()) <= len(case.pos) * case.rounding


@pytest.mark.parametrize("engine", ["neighbors", "grid", "auto"])
@settings(max_examples=40)
@given(case=cases())
@example(case=Case(torch.tensor([[0.0], [1e6]], dtype=torch.float64), 1e3, 1e-3, 6.0))
def test_sums_are_within_eps_of_the_peak_of_the_window(engine: str, case: Case) -> None:
    """eps is a mean over places: at the worst of them the error is a few times that."""
    G = answered(engine, case, torch.float64, norm=None)
    truth = encode(case.pos, case.A, beta=case.beta, engine="dense", norm=None)
    assert float((G - truth).abs().max()) <= len(case.pos) * (4 * case.eps + case.rounding)


@pytest.mark.parametrize("engine", ["neighbors", "auto"])
@given(case=cases())
def test_the_ball_is_exact(engine: str, case: Case) -> None:
    assume(clear_of_the_ball(case))
    G = answered(engine, case, torch.float64, window="ball", norm=None)
    truth = encode(case.pos, case.A, beta=case.beta, engine="dense", window="ball", norm=None)
    assert float((G - truth).abs().max()) <= len(case.pos) * case.rounding


@pytest.mark.parametrize("engine", ["dense", "neighbors", "random", "grid", "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(case=cases())
def test_unit_encodings_are_of_unit_norm_and_mean_ones_of_absolute_value_one_at_most(
    engine: str, dtype: torch.dtype, case: Case
) -> None:
    unit = torch.linalg.vector_norm(answered(engine, case, dtype), dim=1)
    # A point sees itself at least: no encoding is zero.
    torch.testing.assert_close(unit, torch.full_like(unit, D**0.5))
    if engine != "random":  # whose window may be negative, and so may be the sum of it
        mean = answered(engine, case, dtype, norm="mean").abs().max()
        assert float(mean) <= 1 + 1e-4 + (4 * case.eps if engine in ("grid", "auto") else 0.0)
