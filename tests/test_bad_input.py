"""Whatever is wrong is said at the door, by every engine: what was got and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from clouds import frequencies, surface
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from veckm import encode

ENGINES = ["dense", "neighbors", "random", "grid", "auto"]
D = 24

every_engine = pytest.mark.parametrize("engine", ENGINES)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
sizes = st.integers(1, 40)


def drawn(columns: int, scale: float, in_dim: int = 3) -> Tensor:
    return frequencies(in_dim, columns, scale, torch.Generator().manual_seed(1))


def cloud(n: int, in_dim: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    return surface(n, in_dim, torch.Generator().manual_seed(2)).to(dtype)


def call(engine: str, pos: Any, **options: Any) -> Tensor:
    given = {"A": drawn(D, 9.0), "B": drawn(64, 3.0), "beta": 3.0, "engine": engine, **options}
    if given.get("radius") is not None:
        given["beta"] = None
    return encode(pos, **given)


def zeros_like(pos: Tensor) -> Tensor:
    dtype = torch.complex64 if pos.dtype == torch.float32 else torch.complex128
    return torch.zeros(*pos.shape[:-1], D, dtype=dtype)


@every_engine
@both_dtypes
@pytest.mark.parametrize("shape", [(0, 3), (4, 0, 3), (0, 5, 3), (0, 0, 3)])
def test_an_empty_cloud_has_an_empty_encoding(
    engine: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    pos = torch.zeros(shape, dtype=dtype)
    G = call(engine, pos)
    assert G.dtype == zeros_like(pos).dtype
    assert torch.equal(G, zeros_like(pos))


@every_engine
@both_dtypes
def test_queries_in_an_empty_cloud_and_no_queries_at_all_are_answered(
    engine: str, dtype: torch.dtype
) -> None:
    pos, none = cloud(5, dtype=dtype), torch.zeros(0, 3, dtype=dtype)
    assert torch.equal(call(engine, none, queries=pos), zeros_like(pos))
    assert torch.equal(call(engine, pos, queries=none), zeros_like(none))
    empty = torch.zeros(0, dtype=torch.int64)
    asked = call(engine, none, batch=empty, queries=pos, query_batch=torch.arange(5))
    assert torch.equal(asked, zeros_like(pos))


@every_engine
@both_dtypes
@settings(max_examples=15)
@given(n=sizes, at=st.floats(-1e3, 1e3))
def test_one_point_or_equal_points_encode_as_ones(
    engine: str, dtype: torch.dtype, n: int, at: float
) -> None:
    pos = torch.full((n, 3), at, dtype=dtype)
    for norm in ("unit", "mean"):
        G = call(engine, pos, norm=norm)
        torch.testing.assert_close(G, torch.ones_like(G), atol=1e-5, rtol=0)


@every_engine
@both_dtypes
def test_an_isolated_point_sees_only_itself(engine: str, dtype: torch.dtype) -> None:
    pos = torch.cat([cloud(50, dtype=dtype), torch.full((1, 3), 100.0, dtype=dtype)])
    G = call(engine, pos, norm=None, B=drawn(20_000, 3.0))
    close = 1.0 if engine == "random" else 0.02  # far points are noise to the random engine
    torch.testing.assert_close(G[-1], torch.ones_like(G[-1]), atol=close, rtol=0)
    alone = call(engine, pos[:-1], norm=None, B=drawn(20_000, 3.0))
    torch.testing.assert_close(G[:-1], alone, atol=close, rtol=0)


@pytest.mark.parametrize("engine", ["dense", "neighbors", "grid", "auto"])
@pytest.mark.parametrize("norm", ["unit", "mean", None])
@both_dtypes
def test_a_query_that_sees_nothing_encodes_as_zero(
    engine: str, norm: str | None, dtype: torch.dtype
) -> None:
    pos, far = cloud(50, dtype=dtype), torch.tensor([[0, 0, 1e4], [1e9, 0, 0]], dtype=dtype)
    assert torch.equal(call(engine, pos, queries=far, norm=norm), zeros_like(far))


@every_engine
@pytest.mark.parametrize("norm", ["unit", "mean", None])
def test_weights_that_are_all_zero_encode_as_zero(engine: str, norm: str | None) -> None:
    pos = cloud(20)
    G = call(engine, pos, weights=torch.zeros(20), norm=norm)
    assert torch.equal(G, zeros_like(pos))


@every_engine
@given(n=sizes, data=st.data(), bad=st.sampled_from([torch.nan, torch.inf, -torch.inf]))
def test_nan_and_infinity_are_counted_and_located(
    engine: str, n: int, data: st.DataObject, bad: float
) -> None:
    rows = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    spoiled = cloud(n)
    spoiled[sorted(rows), data.draw(st.integers(0, 2))] = bad
    where = rf"NaN or infinite values in {len(rows)} of {n} rows, the first at index {min(rows)};"
    with pytest.raises(ValueError, match=rf"pos has {where} drop such points first"):
        call(engine, spoiled)
    with pytest.raises(ValueError, match=rf"queries has {where} drop such points first"):
        call(engine, cloud(5), queries=spoiled)
    with pytest.raises(ValueError, match=rf"weights has {where}"):
        call(engine, cloud(n), weights=spoiled.sum(1))
    with pytest.raises(ValueError, match=r"pos has NaN .* the first at index \(1, "):
        call(engine, torch.stack([cloud(n), spoiled]))


@every_engine
@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float16, torch.bfloat16]
)
def test_points_of_another_dtype_are_told_what_to_use(engine: str, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=rf"pos has dtype {dtype}; use float32 or float64, .*float"):
        call(engine, torch.zeros(5, 3, dtype=dtype))


@every_engine
@pytest.mark.parametrize("pos", [np.zeros((5, 3)), [[0.0, 0.0, 0.0]], None])
def test_points_that_are_no_tensor_are_told_how_to_become_one(engine: str, pos: Any) -> None:
    name = type(pos).__name__
    with pytest.raises(TypeError, match=rf"must be a torch.Tensor, got {name}; wrap it with torch"):
        call(engine, pos)


@every_engine
@given(in_dim=st.sampled_from([1, 2, 4, 6]), n=sizes)
def test_a_wrong_last_dimension_says_both_sizes(engine: str, in_dim: int, n: int) -> None:
    match = rf"has {in_dim} coordinates per point, .* for 3; got shape \({n}, {in_dim}\)\. Pass the"
    with pytest.raises(ValueError, match="pos " + match):
        call(engine, cloud(n, in_dim))
    with pytest.raises(ValueError, match="queries " + match):
        call(engine, cloud(n), queries=cloud(n, in_dim))


@every_engine
@pytest.mark.parametrize("shape", [(), (3,), (2, 2, 2, 3), (5, 0)])
def test_a_tensor_of_another_shape_says_which_are_taken(
    engine: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"must have shape \(N, D_in\) or \(B, N, D_in\), got"):
        call(engine, torch.zeros(shape))


@every_engine
def test_coordinates_beyond_all_measure_say_so(engine: str) -> None:
    with pytest.raises(ValueError, match=r"beyond 1e.15; change units or drop outliers"):
        call(engine, cloud(5) * 1e16)
    far = torch.cat([cloud(5), torch.full((1, 3), 1e12, dtype=torch.float64)])
    with pytest.raises(ValueError, match=r"reaches 5e\+11 from its middle, .* Drop far outliers"):
        call(engine, far)
    with pytest.raises(ValueError, match=r"alpha is too large .* Use a smaller alpha"):
        call(engine, cloud(5), A=drawn(D, 1e7))
