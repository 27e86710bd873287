"""Bad options of encode and of VecKM: batch, weights, queries, sizes of the window, names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_bad_input import ENGINES, call, cloud, drawn, every_engine

from veckm import VecKM, encode

not_positive = st.one_of(
    st.floats(max_value=0.0, allow_nan=False), st.sampled_from([torch.nan, torch.inf, 1e-200])
)


@every_engine
@given(batch=st.lists(st.integers(0, 5), min_size=2, max_size=20))
def test_an_unsorted_batch_says_how_to_sort_it(engine: str, batch: list[int]) -> None:
    pos, index = cloud(len(batch)), torch.tensor(batch)
    if batch == sorted(batch):
        assert call(engine, pos, batch=index).shape == (len(batch), 24)
        return
    with pytest.raises(ValueError, match=r"batch is not sorted: .* batch\.argsort\(stable=True\)"):
        call(engine, pos, batch=index)


@every_engine
@given(least=st.integers(-(2**40), -1))
def test_a_negative_cloud_number_is_shown(engine: str, least: int) -> None:
    with pytest.raises(ValueError, match=rf"batch has negative cloud numbers \(least {least}\)"):
        call(engine, cloud(3), batch=torch.tensor([least, 0, 0]))


@every_engine
@pytest.mark.parametrize(
    ("batch", "error", "match"),
    [
        (torch.zeros(4, dtype=torch.int64), ValueError, r"shape \(5,\), one .* got \(4,\)"),
        (torch.zeros(5, 1, dtype=torch.int64), ValueError, r"shape \(5,\), .* got \(5, 1\)"),
        (torch.zeros(5), TypeError, "must be an int64 tensor of cloud numbers, got torch.float32"),
        (torch.zeros(5, dtype=torch.bool), TypeError, "int64 tensor .* got torch.bool"),
        ([0, 0, 0, 0, 0], TypeError, "int64 tensor of cloud numbers, got list"),
        (torch.tensor([0, 0, 0, 0, 2**40]), ValueError, "renumber from 0"),
    ],
)
def test_a_batch_of_another_kind_says_what_was_got(
    engine: str, batch: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match="batch .*" + match):
        call(engine, cloud(5), batch=batch)


@every_engine
def test_a_stack_of_clouds_takes_no_batch_vector(engine: str) -> None:
    with pytest.raises(ValueError, match="is a batch already: pass either"):
        call(engine, cloud(6).view(2, 3, 3), batch=torch.zeros(2, dtype=torch.int64))


@every_engine
def test_cloud_numbers_may_have_gaps(engine: str) -> None:
    pos = cloud(6)
    some = call(engine, pos, batch=torch.tensor([0, 0, 0, 1, 1, 1]))
    gaps = call(engine, pos, batch=torch.tensor([7, 7, 7, 900, 900, 900]))
    torch.testing.assert_close(gaps, some, rtol=1e-2, atol=1e-2)


@every_engine
@pytest.mark.parametrize(
    ("weights", "error", "match"),
    [
        (torch.ones(4), ValueError, r"shape \(5,\), one number per point, got \(4,\)"),
        (torch.ones(5, 1), ValueError, r"shape \(5,\), one number per point, got \(5, 1\)"),
        (torch.ones(5, dtype=torch.int64), TypeError, "a float tensor, got torch.int64"),
        (torch.ones(5, dtype=torch.complex64), TypeError, "a float tensor, got torch.complex64"),
        ([1.0] * 5, TypeError, "a float tensor, got list"),
        (torch.tensor([1.0, 1, 1, -1, 1]), ValueError, "not be negative .* use norm=None"),
    ],
)
def test_weights_of_another_kind_say_what_was_got(
    engine: str, weights: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match="weights must .*" + match):
        call(engine, cloud(5), weights=weights, norm="mean")


@every_engine
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"queries": cloud(3).float()}, r"like pos in dtype, .*: got torch.float32 \(3, 3\)"),
        ({"queries": cloud(3)[None]}, r"like pos .* \(1, 3, 3\) .* beside .* \(5, 3\)"),
        ({"queries": cloud(3), "batch": torch.zeros(5).long()}, "give both or neither"),
        ({"queries": cloud(3), "query_batch": torch.zeros(3).long()}, "give both or neither"),
        (
            {
                "queries": cloud(3),
                "batch": torch.zeros(5).long(),
                "query_batch": torch.tensor([1, 0, 2]),
            },
            r"query_batch is not sorted: .* query_batch\.argsort",
        ),
        ({"query_batch": torch.zeros(5).long()}, "query_batch .* queries"),
    ],
)
def test_queries_of_another_kind_say_what_was_got(
    engine: str, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        call(engine, cloud(5), **options)


def test_as_many_stacks_of_queries_as_of_points_are_asked_for() -> None:
    with pytest.raises(ValueError, match="pos has 2 clouds but queries has 3"):
        call("dense", cloud(6).view(2, 3, 3), queries=cloud(9).view(3, 3, 3))


@every_engine
@given(value=not_positive)
def test_a_window_size_that_is_not_positive_is_shown(engine: str, value: float) -> None:
    for name in ("beta", "radius"):
        with pytest.raises(ValueError, match=rf"{name} must be positive .*, got "):
            call(engine, cloud(5), **{name: value})


@pytest.mark.parametrize("name", ["alpha", "beta", "radius", "detail"])
@given(value=not_positive)
def test_the_module_refuses_sizes_that_are_not_positive(name: str, value: float) -> None:
    sizes: dict[str, Any] = {"radius": 0.1} if name != "beta" else {"alpha": 2.0}
    with pytest.raises(ValueError, match=rf"{name} must be positive .*, got "):
        VecKM(8, p=4, **{**sizes, name: value})
    with pytest.raises(ValueError, match=rf"{name} must be positive .*, got "):
        VecKM(8, p=4, **{**sizes, name: (1.0, value)})


@every_engine
@pytest.mark.parametrize(("beta", "radius"), [(None, None), (3.0, 0.6)])
def test_one_size_of_the_window_is_asked_for(
    engine: str, beta: float | None, radius: float | None
) -> None:
    with pytest.raises(ValueError, match="give either beta or radius, not both"):
        encode(cloud(5), drawn(8, 9.0), beta=beta, radius=radius, engine=engine)  # type: ignore[arg-type]


@every_engine
@pytest.mark.parametrize(
    ("eps", "dtype", "match"),
    [
        (0.6, torch.float32, r"must be at most 0.5, got 0\.6"),
        (torch.nan, torch.float64, "must be at most 0.5, got nan"),
        (torch.inf, torch.float64, "must be at most 0.5, got inf"),
        (-torch.inf, torch.float64, "got -inf"),
        (0.0, torch.float64, r"eps = 0\.0 is below what torch.float64 can hold .* engine='dense'"),
        (-0.1, torch.float32, r"eps = -0\.1 is below"),
        (1e-6, torch.float32, r"below what torch.float32 can hold \(1e-05\); use float64 points"),
        (1e-11, torch.float64, r"below what torch.float64 can hold \(1e-10\); use engine='dense'"),
    ],
)
def test_an_accuracy_that_cannot_be_had_says_why(
    engine: str, eps: float, dtype: torch.dtype, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        call(engine, cloud(5, dtype=dtype), eps=eps)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"engine": "fast"}, r"unknown engine 'fast': use 'auto' or one of \['dense', "),
        ({"engine": None}, "unknown engine None"),
        ({"window": "box"}, "unknown window 'box': use 'gaussian' or 'ball'"),
        ({"norm": "l2"}, "unknown norm 'l2': use 'unit', 'mean' or None"),
        (
            {"engine": "grid", "window": "ball"},
            r"grid.* cannot .* ball .* use one of \['dense'",
        ),
        (
            {"engine": "random", "window": "ball"},
            r"random.* cannot .* ball .* use one of",
        ),
    ],
)
@pytest.mark.parametrize("n", [0, 5])
def test_a_wrong_name_says_which_there_are_even_for_an_empty_cloud(
    options: dict[str, Any], match: str, n: int
) -> None:
    with pytest.raises(ValueError, match=match):
        call(**{"engine": "dense", "pos": cloud(n), **options})


def test_the_random_engine_says_where_its_matrix_b_comes_from() -> None:
    with pytest.raises(ValueError, match=r"needs B, .* pass B=\.\.\., or use veckm\.VecKM"):
        call("random", cloud(5), B=None)


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        (torch.zeros(3), r"must be a float tensor of shape \(D_in, D\), got torch.float32 \(3,\)"),
        (torch.zeros(3, 0), r".* shape \(D_in, D\), got torch.float32 \(3, 0\)"),
        (torch.zeros(3, 8, dtype=torch.int64), "must be a float tensor .* got torch.int64"),
        ([[0.0], [0.0], [0.0]], "must be a float tensor .* got list"),
        (torch.full((3, 8), torch.nan), "has NaN or infinite values in 3 of 3 rows"),
    ],
)
def test_frequencies_of_another_kind_say_what_was_got(name: str, matrix: Any, match: str) -> None:
    with pytest.raises(ValueError, match=f"{name} {match}"):
        call("random", cloud(5), **{name: matrix})


def test_a_matrix_b_for_other_coordinates_says_so() -> None:
    with pytest.raises(ValueError, match=r"B .*\b2\b.*\b3\b"):
        call("random", cloud(5), B=drawn(16, 3.0, in_dim=2))


def test_all_engines_are_in_the_table() -> None:
    from veckm.engines import ENGINES as KNOWN

    assert sorted(ENGINES) == sorted([*(engine.name for engine in KNOWN), "auto"])


def test_several_scales_are_for_the_encoder_not_for_a_plan() -> None:
    for sizes in ({"beta": (3.0, 6.0)}, {"radius": (0.3, 0.6), "window": "ball"}):
        with pytest.raises(ValueError, match=r"one scale, got 2: veckm\.VecKM takes several"):
            encode(cloud(5), drawn(8, 9.0), **sizes)  # type: ignore[arg-type]
