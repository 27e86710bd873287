"""Checks at the door: bad input is found here, once, with one clear error, before any work.

Shapes and dtypes are always checked. Values (finite, in range, sorted) are checked unless the
caller passes validate=False: each such check is a pass over the data and, on a GPU, a wait.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import torch
from torch import Tensor

from veckm.engines.geometry import Points

#: Coordinates beyond this would overflow when squared in float32.
_LARGEST_COORDINATE = 1e15
#: Phases x A beyond this have lost their accuracy even in float64.
_LARGEST_PHASE = 1e10
#: Below this the rounding of the dtype, not the engine, decides.
SMALLEST_EPS = {torch.float32: 1e-5, torch.float64: 1e-10}


def full_precision(module: object, fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """``fn`` of ``Module._apply``, refusing to store ``module`` in less than float32."""

    def checked(t: Tensor) -> Tensor:
        moved = fn(t)
        if t.is_floating_point() and moved.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"{type(module).__name__} cannot be stored in {moved.dtype}; use float32 or "
                "float64, and torch.autocast(device, dtype=torch.bfloat16) for lower precision"
            )
        return moved

    return checked


def check_points(pos: Tensor, name: str, in_dim: int | None = None, values: bool = True) -> None:
    """A float tensor (N, D_in) or (B, N, D_in); with `values`, its entries finite and in range."""
    if not isinstance(pos, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor, got {type(pos).__name__}; "
            "wrap it with torch.as_tensor(...)"
        )
    if pos.dtype not in SMALLEST_EPS:
        raise TypeError(
            f"{name} has dtype {pos.dtype}; use float32 or float64, for example {name}.float()"
        )
    if pos.dim() not in (2, 3) or pos.shape[-1] < 1:
        raise ValueError(
            f"{name} must have shape (N, D_in) or (B, N, D_in), got {tuple(pos.shape)}"
        )
    if in_dim is not None and pos.shape[-1] != in_dim:
        raise ValueError(
            f"{name} has {pos.shape[-1]} coordinates per point, but the frequencies A are for "
            f"{in_dim}; got shape {tuple(pos.shape)}. Pass the coordinate columns only, "
            f"for example {name}[..., :{in_dim}]"
        )
    if values and check_finite(pos, name) > _LARGEST_COORDINATE:
        raise ValueError(
            f"{name} has coordinates beyond {_LARGEST_COORDINATE:g}; change units or drop outliers"
        )


def check_finite(values: Tensor, name: str) -> float:
    """Raises on NaN or infinity, naming the number of rows and the first; returns max |value|."""
    # One pass, and one wait on a device: the largest of numbers with a NaN is NaN.
    largest = float(values.detach().abs().amax()) if values.numel() else 0.0
    if math.isfinite(largest):
        return largest
    finite = torch.isfinite(values.detach())
    rows = finite if values.dim() == 1 else finite.all(-1)
    bad = (~rows).nonzero()
    first = tuple(bad[0].tolist())
    raise ValueError(
        f"{name} has NaN or infinite values in {len(bad)} of {rows.numel()} rows, the first at "
        f"index {first[0] if len(first) == 1 else first}; "
        f"drop such points first, for example {name}[torch.isfinite({name}).all(-1)]"
    )


def check_axis(axis: Tensor, rows: Tensor) -> Tensor:  # (..., 3) unit
    """Directions of the shape of the queries, or one for all."""
    if not isinstance(axis, Tensor):
        axis = torch.as_tensor(axis)
    if axis.shape not in ((3,), rows.shape) or not axis.is_floating_point():
        raise ValueError(
            f"axis must be a float tensor of shape (3,) or {tuple(rows.shape)}, one direction for "
            f"all or one per query, got {axis.dtype} {tuple(axis.shape)}"
        )
    check_finite(axis, "axis")
    length = torch.linalg.vector_norm(axis, dim=-1, keepdim=True)
    if bool((length <= 0).any()):
        raise ValueError("axis has directions of length zero: give unit vectors")
    unit: Tensor = (axis / length).to(rows)
    return unit


def check_count(value: int, name: str, least: int = 1) -> int:
    """A whole number, not below `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")
    return operator.index(value)


def check_positive(value: float, name: str) -> float:
    """A finite positive number of a size that squares safely."""
    value = float(value)
    if not (1e-15 <= value <= 1e15):
        raise ValueError(f"{name} must be positive and within 1e-15 .. 1e15, got {value!r}")
    return value


def check_norm(norm: str | None) -> None:
    """A normalization that there is."""
    if norm not in ("unit", "mean", None):
        raise ValueError(f"unknown norm {norm!r}: use 'unit', 'mean' or None")


def check_eps(eps: float, dtype: torch.dtype) -> float:
    """An accuracy that the dtype can hold."""
    least = SMALLEST_EPS[dtype]
    if not (math.isfinite(eps) and eps <= 0.5):
        raise ValueError(f"eps is a relative error and must be at most 0.5, got {eps!r}")
    if eps < least:
        hint = "use float64 points" if dtype == torch.float32 else "use engine='dense'"
        raise ValueError(f"eps = {eps!r} is below what {dtype} can hold ({least:g}); {hint}")
    return float(eps)


def as_points(pos: Tensor, batch: Tensor | None, name: str, values: bool = True) -> Points:
    """(N, D_in), (B, N, D_in), or (N, D_in) with a batch vector."""
    if batch is None:
        return Points(pos)
    if pos.dim() == 3:
        raise ValueError(
            f"{name} of shape {tuple(pos.shape)} is a batch already: pass either "
            "(B, N, D_in) or (N, D_in) with a batch vector, not both"
        )
    count, label = len(pos), "batch" if name == "pos" else "query_batch"
    if not isinstance(batch, Tensor) or batch.dtype not in (torch.int64, torch.int32):
        got = batch.dtype if isinstance(batch, Tensor) else type(batch).__name__
        raise TypeError(f"{label} must be an int64 tensor of cloud numbers, got {got}")
    if tuple(batch.shape) != (count,):
        raise ValueError(
            f"{label} must have shape ({count},), one cloud number per row of {name}, "
            f"got {tuple(batch.shape)}"
        )
    if not values:
        return Points(pos, batch.long())
    if count and int(batch.min()) < 0:
        raise ValueError(f"{label} has negative cloud numbers (least {int(batch.min())})")
    if count > 1 and bool((batch[1:] < batch[:-1]).any()):
        raise ValueError(
            f"{label} is not sorted: order the points by cloud first, for example with "
            f"order = {label}.argsort(stable=True)"
        )
    if count and int(batch[-1]) >= 2**31:
        raise ValueError(f"{label} has cloud numbers of 2^31 and more: renumber from 0")
    return Points(pos, batch.long())


def check_weights(
    weights: Tensor | None, points: Tensor, averaged: bool, values: bool
) -> Tensor | None:
    """One finite number per point; not negative where they are averaged by their sum."""
    if weights is None:
        return None
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        got = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
        raise TypeError(f"weights must be a float tensor, got {got}")
    if weights.shape != points.shape[:-1]:
        raise ValueError(
            f"weights must have shape {tuple(points.shape[:-1])}, one number per point, "
            f"got {tuple(weights.shape)}"
        )
    if values:
        check_finite(weights, "weights")
        if averaged and weights.numel() and float(weights.detach().min()) < 0:
            raise ValueError(
                "weights must not be negative where they are averaged (norm='mean', moments); "
                "use norm=None or plan(...).sum(values)"
            )
    return weights.to(points.dtype).reshape(-1)


def check_frequencies(A: Tensor, name: str, pos: Tensor | None, values: bool) -> Tensor:
    """A float matrix (D_in, columns), in the dtype and on the device of the points if given."""
    if not isinstance(A, Tensor) or A.dim() != 2 or 0 in A.shape or not A.is_floating_point():
        got = f"{A.dtype} {tuple(A.shape)}" if isinstance(A, Tensor) else type(A).__name__
        raise ValueError(f"{name} must be a float tensor of shape (D_in, D), got {got}")
    if values:
        check_finite(A, name)
    if pos is None:
        return A
    if len(A) != pos.shape[-1]:
        raise ValueError(
            f"{name} is for {len(A)} coordinates per point, but pos has {pos.shape[-1]}: "
            f"draw {name} with shape ({pos.shape[-1]}, {A.shape[1]})"
        )
    return A.to(pos)


def check_queries(queries: Tensor, pos: Tensor, values: bool = True) -> None:
    """Queries must be like the points."""
    check_points(queries, "queries", pos.shape[-1], values)
    if queries.dtype != pos.dtype or queries.device != pos.device or queries.dim() != pos.dim():
        raise ValueError(
            f"queries must be like pos in dtype, device and dimensions: got {queries.dtype} "
            f"{tuple(queries.shape)} on {queries.device} beside {pos.dtype} {tuple(pos.shape)} "
            f"on {pos.device}"
        )
    if pos.dim() == 3 and queries.shape[0] != pos.shape[0]:
        raise ValueError(f"pos has {pos.shape[0]} clouds but queries has {queries.shape[0]}")


def centered(points: Points, queries: Points) -> tuple[Points, Points]:
    """Each cloud and its queries about the middle of its box: large coordinates cost digits."""
    if points.pos.numel() == 0:
        return points, queries
    x = points.pos.detach()
    if points.batch is None:
        low, high = torch.aminmax(x, dim=-2, keepdim=True)
        origin = torch.lerp(low, high, 0.5)
    else:
        clouds = max(len(points.counts), len(queries.counts))
        count = torch.bincount(points.batch, minlength=clouds)
        low = torch.segment_reduce(x, "min", lengths=count, axis=0, unsafe=True)
        high = torch.segment_reduce(x, "max", lengths=count, axis=0, unsafe=True)
        origin = torch.where(count[:, None] > 0, low + (high - low) / 2, torch.zeros_like(low))

    def moved(p: Points) -> Points:
        return Points(p.pos - (origin if p.batch is None else origin[p.batch]), p.batch)

    about = moved(points)
    return about, about if queries is points else moved(queries)


def check_phases(pos: Tensor, A: Tensor, reach: float) -> None:
    """The phases that matter must still be numbers that mean something."""
    if not len(pos):
        return
    largest = torch.stack([A.detach().abs().sum(0).amax(), pos.detach().abs().amax()])
    frequency, extent = largest.tolist()
    if frequency * reach > 1e6:
        raise ValueError(
            f"alpha is too large for the window: phases reach {frequency * reach:.1e} rad within "
            f"its radius {reach:g}. Use a smaller alpha (alpha = detail / radius, detail about 6)"
        )
    if frequency * extent > _LARGEST_PHASE:
        raise ValueError(
            f"the cloud reaches {extent:.3g} from its middle, where phases x A of up to "
            f"{frequency * extent:.1e} rad have no accuracy left. Drop far outliers, cut the "
            "cloud into tiles, or use a smaller alpha"
        )
